"""The C project of a program made by hand, run against an accelerator that only remembers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.run.files import write_all
from mace_core.testing.requirements import require
from mace_frontend_ai8x.network import INPUT, Layer, Network, Operation, Place, Unload, Weights
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.emulator.command import run_firmware
from mace_target_max78000.firmware import emit_project
from mace_target_max78000.firmware.layout import build_firmware
from mace_target_max78000.image import Block, Check, Chunk, Image, Poll, Write
from mace_target_max78000.options import Options
from mace_target_max78002.device import MAX78002

DEVICES = [MAX78000, MAX78002]
Build = Callable[[Image, Network, Options], bytes]
FIFO, STATUS, FAST_FIFO = 0x50000008, 0x50000004, 0x400C0410
DONE = 1 << 12
GO = 1


@dataclass
class Recorder:
    """Remembers what is written, and ends its network at once when the master's go bit comes, or with the last word of a FIFO."""

    device: Chip = MAX78000
    fifo_words: int = 0
    on_done: Callable[[], None] | None = None
    writes: list[tuple[int, int, int]] = field(default_factory=list)
    memory: dict[int, int] = field(default_factory=dict)

    def write(self, address: int, value: int, size: int = 4) -> None:
        self.writes.append((address, value, size))
        self.memory[address] = value
        fed = address in (FIFO, FAST_FIFO)
        self.fifo_words -= fed
        starts = address == self.device.control and value & GO
        if (starts and self.fifo_words <= 0) or (fed and self.fifo_words == 0):
            self.memory[self.device.control] |= DONE
            assert self.on_done is not None
            self.on_done()

    def read(self, address: int, size: int = 4) -> int:
        return self.memory.get(address, 0)


def written(image: Image) -> Iterator[tuple[int, int, int]]:
    """What a program writes for an image up to the end of its start."""
    for steps in (image.init,):
        yield from ((s.address, s.value, 4) for s in steps if isinstance(s, Write))
    for chunk in image.kernels:
        yield (chunk.address | 1, 1, 1)
        yield from ((chunk.address + 4 * i, word, 4) for i, word in enumerate(chunk.words))
    for quadrant, values in sorted(image.bias.items()):
        yield from ((image.device.bias_address(quadrant) + 4 * i, byte, 4) for i, byte in enumerate(values))
    yield from ((s.address, s.value, 4) for s in image.configure if isinstance(s, Write))
    inputs = [
        (b.address + 4 * i, word, 4) for b in image.inputs if b.fifo is None for i, word in enumerate(b.words)
    ]
    start = [(s.address, s.value, 4) for s in image.start if isinstance(s, Write)]
    fifos = [b for b in image.inputs if b.fifo is not None]
    fed = [
        (b.address, words, 4)
        for row in zip(*(b.words for b in fifos), strict=True)
        for b, words in zip(fifos, row, strict=True)
    ]
    yield from (*inputs, *start, *fed)


def image_of(device: Chip) -> Image:
    """A program without a meaning: two quadrants, two runs of weights, bias, registers, two blocks of input that are their own results."""
    control = [device.control_register(q, 0) for q in (0, 1)]
    names = ("RCNT", "CCNT", "TPTR", "POST")
    registers = tuple(
        Write(device.layer_register(q, n, layer), 0x10203 * (layer + 1) + q)
        for layer in range(5)
        for q in (0, 1)
        for n in names
    )
    return Image(
        device=device,
        kernels=(
            Chunk(device.kernel_address(0, 0), (1, 2, 0xFFFFFFFF), processor=0, column=0, count=1),
            Chunk(
                device.kernel_address(17, 0) + 4 * 4, tuple(range(100, 109)), processor=17, column=4, count=4
            ),
        ),
        bias={0: bytes((5, 255, 7)), 1: bytes(range(20))},
        init=(
            Write(control[0], 8),
            Poll(control[0], 8),
            Write(0x50001000, 0),
            Write(device.control_register(1, 1), 0x40E),
        ),
        configure=registers,
        start=(Write(control[0], 0x100808), Write(control[1], 0x100809), Write(control[0], 0x100009)),
        inputs=(
            Block(device.data_address(0), (0x11, 0x12345678, 33), 0),
            Block(device.data_address(4), (7, 8), 4),
        ),
        known_answer=(
            Check(device.data_address(0), 0xFFFFFFFF, (0x11, 0x12345678)),
            Check(device.data_address(4), 0xFF, (7,)),
        ),
        quadrants=(0, 1),
    )


def network_of() -> Network:
    """A layer of three wide results in the memory that the input went to."""
    weights = Weights(np.ones((3, 4), np.int64))
    layer = Layer(
        "fc",
        Operation.LINEAR,
        (INPUT,),
        channels=4,
        dim=(1, 1),
        out_channels=3,
        weights=weights,
        wide=True,
        output=True,
    )
    return Network(
        "tiny", (layer,), (Place(processors=15, output_processors=7),), np.zeros((4, 1, 1), np.int64)
    )


def fed_by_fifo(image: Image, fifos: int) -> Image:
    """The same program with all input by FIFOs."""
    blocks = tuple(
        Block(FIFO + 4 * n, tuple(range(10 * n, 10 * n + 6)), processor=16 * n, fifo=n) for n in range(fifos)
    )
    return replace(image, inputs=blocks, known_answer=())


def fed_by_fast_fifo(image: Image) -> Image:
    """The same program with its input by the FIFO of the RISC-V core."""
    return replace(image, inputs=(Block(FAST_FIFO, tuple(range(6)), processor=0, fifo=0),), known_answer=())


@pytest.fixture(params=["arm-none-eabi", "zig"])
def build(request: pytest.FixtureRequest, tmp_path: Path) -> Build:
    """Make a firmware, with each compiler."""
    return builder(request.param, tmp_path)


@pytest.fixture
def quick_build(tmp_path: Path) -> Build:
    """Make a firmware with the compiler that comes as a package."""
    return builder("zig", tmp_path)


def builder(name: str, folder: Path) -> Build:
    """A function that makes a firmware in the folder; the test is skipped where the compiler is not ready."""
    toolchain = Registry.load().toolchains[name]
    require(toolchain.missing("cortex-m4"))
    compiler = toolchain.compiler("cortex-m4")
    return lambda image, network, options: build_firmware(
        emit_project(image, network, options, "SUMMARY"), compiler, folder, options.define
    )


@pytest.mark.slow
@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(table_driven=True),
        Options(compact_weights=True, timer=0, softmax=True, boost=(2, 5)),
        Options(wfi=False),
    ],
    ids=["plain", "tables", "compact", "busy"],
)
def test_firmware_writes_what_the_image_holds(build: Build, device: Chip, options: Options) -> None:
    image = image_of(device)
    accelerator = Recorder(device)
    outcome = run_firmware(build(image, network_of(), options), device, accelerator)
    expected = list(written(image))
    assert accelerator.writes[: len(expected)] == expected
    cleared = [(a, v) for a, v, _ in accelerator.writes[len(expected) :]]
    assert cleared == [(device.control_register(0, 0), 0x100008), (device.control_register(1, 0), 0x100808)]
    assert outcome.passed, outcome.console
    assert outcome.status == 0
    assert outcome.results == (0x11, 0x12345678, 33)


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_fifos_are_fed_in_turn_after_the_start(build: Build, device: Chip) -> None:
    image = fed_by_fifo(image_of(device), fifos=3)
    accelerator = Recorder(device, fifo_words=6)
    outcome = run_firmware(build(image, network_of(), Options(fifo=True)), device, accelerator)
    expected = list(written(image))
    # the last word of FIFO 0 ends the recorder's network, so its interrupt comes before the words of the
    # others
    handled = len(image.quadrants)
    ordinary = [w for w in accelerator.writes if w not in accelerator.writes[-handled - 2 :]]
    assert ordinary == [w for w in expected if w in ordinary]
    assert outcome.passed


@pytest.mark.sampled(every=3)
def test_a_full_fifo_is_waited_for(build: Build) -> None:
    image = fed_by_fifo(image_of(MAX78000), fifos=1)
    accelerator = Recorder(fifo_words=6)
    answers = iter([1, 1, 1, 0] + [0] * 5)
    seen: list[int] = []

    def read(address: int, size: int = 4) -> int:
        if address == STATUS:
            seen.append(next(answers))
            return seen[-1]
        return accelerator.memory.get(address, 0)

    accelerator.read = read  # type: ignore[method-assign]
    assert run_firmware(build(image, network_of(), Options(fifo=True)), MAX78000, accelerator).passed
    assert len(seen) == 9


@pytest.mark.sampled(every=3)
def test_input_made_from_a_few_words(build: Build) -> None:
    image = fed_by_fifo(image_of(MAX78000), fifos=1)
    words = tuple(5 + i % 2 + 0x10203 * (i // 2) for i in range(6))
    image = replace(image, inputs=(replace(image.inputs[0], words=words),))
    options = Options(fifo=True, synthesize_input=0x10203, synthesize_words=2)
    accelerator = Recorder(fifo_words=6)
    assert run_firmware(build(image, network_of(), options), MAX78000, accelerator).passed
    assert tuple(v for a, v, _ in accelerator.writes if a == FIFO) == words
    assert "0x00010208" not in emit_project(image, network_of(), options, "")["sampledata.h"]
    with pytest.raises(MaceError, match="groups of 4"):
        emit_project(image, network_of(), replace(options, synthesize_words=4), "")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("corrupted", [False, True])
def test_weights_word_by_word_and_verified(build: Build, device: Chip, corrupted: bool) -> None:
    image = image_of(device)
    accelerator = Recorder(device)
    first, last = device.kernel_address(0, 0), device.kernel_address(17, 4)
    expected = [(first, 0), (first + 4, 0x00000100), (first + 8, 0x000002FF), (first + 12, 0)]
    packed = b"".join(w.to_bytes(4, "big") for w in image.kernels[1].words)
    for i in range(4):
        word = packed[9 * i : 9 * i + 9]
        parts = (word[0], int.from_bytes(word[1:5], "big"), int.from_bytes(word[5:], "big"), 0)
        expected += [(last + 16 * i + 4 * k, part) for k, part in enumerate(parts)]
    elf = build(image, network_of(), Options(mexpress=False, verify_weights=True))
    if corrupted:
        plain = accelerator.write

        def write(address: int, value: int, size: int = 4) -> None:
            plain(address, value ^ (address == last + 8), size)

        accelerator.write = write  # type: ignore[method-assign]
    outcome = run_firmware(elf, device, accelerator)
    if corrupted:
        assert "FAIL" in outcome.console
        assert outcome.status == 1
    else:
        assert [(a, v) for a, v, _ in accelerator.writes if a in dict(expected)] == expected
        assert outcome.passed


@pytest.mark.sampled(every=3)
def test_a_wrong_result_fails(build: Build) -> None:
    image = image_of(MAX78000)
    wrong = Check(MAX78000.data_address(4), 0xFF, (7, 9))
    outcome = run_firmware(
        build(replace(image, known_answer=(image.known_answer[0], wrong)), network_of(), Options()),
        MAX78000,
        Recorder(),
    )
    assert (
        "Data mismatch (2/2) at address 0x50408004: Expected 0x00000009, read 0x00000008." in outcome.console
    )
    assert "FAIL" in outcome.console
    assert (outcome.status, outcome.passed) == (1, False)


@pytest.mark.sampled(every=3)
def test_other_input_needs_no_other_program(build: Build) -> None:
    elf = build(image_of(MAX78000), network_of(), Options())
    outcome = run_firmware(elf, MAX78000, Recorder(), {0: (0xFFFFFFFF, 1, 2), 4: (3, 4)})
    assert outcome.results == (0xFFFFFFFF, 1, 2)
    assert outcome.status == 0
    with pytest.raises(MaceError, match="input_0 has 3 words, not 4"):
        run_firmware(elf, MAX78000, Recorder(), {0: (1, 2, 3, 4)})


BLOCKS = (
    Unload(0x7F << 2, 7, (3, 5), 0x40),
    Unload(0xFFFF << 14, 40, (2, 3), 0x500),
    Unload(0b1011 << 31, 6, (1, 4), 0x800, write_gap=2),
    Unload(0x3F, 6, (2, 2), 0xC00, width=32),
    Unload(0xFF << 8, 12, (1, 3), 0x1000, width=32, write_gap=1),
)
"""Results of every kind: slots that begin anywhere, passes, gaps between slots and words, 32 bits."""


def in_memory(unload: Unload, values: np.ndarray, device: Chip) -> dict[int, int]:
    """The words of data memory that hold a block's values [channels, pixels], by address, as the facts about the part state them."""
    slots = [p for p in range(64) if unload.processors >> p & 1]
    passes, memory = -(-unload.channels // len(slots)), {}
    bytes_each = unload.width // 8
    for (channel, pixel), value in np.ndenumerate(values):
        e, slot = divmod(channel, len(slots))
        slot = slots[slot]
        index = (pixel * passes + e) * bytes_each * (unload.write_gap + 1)
        address = device.data_address(slot, unload.offset) + 4 * index
        if unload.width == 32:
            memory[address + 4 * (slot % 4)] = int(value)
        else:
            memory[address] = memory.get(address, 0) | int(value) << 8 * (slot % 4)
    return memory


def delivered(unload: Unload, values: np.ndarray) -> bytes:
    """Bytes come channel by channel.

    Words position by position for the channels of one data memory, as the vendor delivers them.
    """
    if unload.width == 8:
        return values.astype("u1").tobytes()
    slots = [p for p in range(64) if unload.processors >> p & 1]
    memories: dict[tuple[int, int], list[int]] = {}
    for channel in range(unload.channels):
        number, slot = divmod(channel, len(slots))
        memories.setdefault((number, slots[slot] // 4), []).append(channel)
    return b"".join(values[channels].T.astype("<u4").tobytes() for channels in memories.values())


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_results_come_in_the_vendors_order(build: Build, device: Chip) -> None:
    random = np.random.default_rng(7)
    accelerator, expected = Recorder(device), []
    for unload in BLOCKS:
        values = random.integers(
            0, 2**unload.width, (unload.channels, unload.dim[0] * unload.dim[1]), dtype=np.int64
        )
        accelerator.memory |= in_memory(unload, values, device)
        data = delivered(unload, values)
        expected += np.frombuffer(data + bytes(-len(data) % 4), "<u4").tolist()
    image = replace(image_of(device), inputs=image_of(device).inputs[1:])
    network = replace(network_of(), unloads=BLOCKS)
    assert run_firmware(
        build(image, network, Options(known_answer=False)), device, accelerator
    ).results == tuple(expected)


@pytest.mark.slow
@pytest.mark.sampled(every=3)
def test_softmax_to_the_base_of_two(build: Build) -> None:
    values = (3 << 14, (1 << 14) + 5, -(2 << 14), (3 << 14) - 1)
    image = image_of(MAX78000)
    block = Block(MAX78000.data_address(0), tuple(v & 0xFFFFFFFF for v in values), 0)
    layer = replace(network_of().layers[0], out_channels=4)
    network = replace(network_of(), layers=(layer,), places=(Place(15, 15),))
    outcome = run_firmware(
        build(replace(image, inputs=(block,), known_answer=()), network, Options(softmax=True)),
        MAX78000,
        Recorder(),
    )
    powers = np.exp2([v >> 14 for v in values])
    told = [float(share) for share in re.findall(r"Class \d: (\d+\.\d)%", outcome.console)]
    assert np.allclose(told, 100 * powers / powers.sum(), atol=0.1)


@pytest.mark.slow
@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "options",
    [Options(), Options(wfi=False, timer=1), Options(fifo=True, fast_fifo=True)],
    ids=["plain", "busy", "fast"],
)
def test_the_risc_v_core_runs_the_network(device: Chip, options: Options, tmp_path: Path) -> None:
    zig = Registry.load().toolchains["zig"]
    require(zig.missing("rv32imc"))
    image = fed_by_fast_fifo(image_of(device)) if options.fast_fifo else image_of(device)
    project = emit_project(
        image, network_of(), replace(options, riscv=True, riscv_exclusive=True, deepsleep=True), ""
    )
    assert {"main.c", "main_riscv.c", "board/bare/link_riscv.ld"} <= set(project)
    accelerator = Recorder(device, fifo_words=6 if options.fast_fifo else 0)
    outcome = run_firmware(
        build_firmware(project, zig.compiler("rv32imc"), tmp_path / "riscv", riscv=True), device, accelerator
    )
    assert outcome.passed, outcome.console
    expected = list(written(image))
    assert [w for w in accelerator.writes if w in expected][: len(expected)] == expected
    starter = build_firmware(project, zig.compiler("cortex-m4"), tmp_path / "arm")
    with pytest.raises(MaceError, match="waits for an interrupt that never comes"):
        run_firmware(starter, device, Recorder(device))


def test_nothing_but_the_network_changes_a_project() -> None:
    first, second = (emit_project(image_of(MAX78000), network_of(), Options(), "A\n  B") for _ in range(2))
    assert first == second
    assert {
        "cnn.c",
        "cnn.h",
        "main.c",
        "weights.h",
        "sampledata.h",
        "sampleoutput.h",
        "Makefile",
        "log.txt",
    } <= set(first)
    assert not any(str(Path.home()) in str(text) or str(Path.cwd()) in str(text) for text in first.values())
    assert " * A\n *   B\n */" in str(first["cnn.h"])
    assert str(first["main.c"]).endswith("/*\n * A\n *   B\n */\n")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_row_memories_are_cleared(quick_build: Build) -> None:
    accelerator = Recorder()
    assert run_firmware(
        quick_build(image_of(MAX78000), network_of(), Options(init_tram=True)), MAX78000, accelerator
    ).passed
    cleared = {a for a, v, _ in accelerator.writes if v == 0}
    for quadrant in (0, 1):
        for processor in range(16):
            first = MAX78000.tram + quadrant * MAX78000.quadrant_pitch + processor * MAX78000.tram_pitch
            assert cleared.issuperset(range(first, first + 4 * MAX78000.tram_words, 4))
    assert not any(
        MAX78000.tram + 2 * MAX78000.quadrant_pitch <= a < MAX78000.kernels + 2 * MAX78000.quadrant_pitch
        for a in cleared
    )


def test_macros_are_the_users() -> None:
    files = emit_project(
        image_of(MAX78000), network_of(), Options.of({"define": "FAST LEVEL=2"}, "options"), ""
    )
    assert "\nDEFINES := -DFAST -DLEVEL=2\n" in str(files["Makefile"])


def test_a_code_of_weights_is_loaded_in_one_way() -> None:
    with pytest.raises(MaceError, match="table_driven: its weights are in a code"):
        emit_project(image_of(MAX78000), network_of(), Options(table_driven=True, mexpress=False), "")


def test_names_of_files_are_the_users() -> None:
    names = {"c": "app.c", "api": "net.c", "weight": "w.h", "sample": "in.h", "sample_output": "out.h"}
    options = Options.of({f"{name}_filename": file for name, file in names.items()}, "options")
    files = emit_project(image_of(MAX78000), network_of(), options, "")
    assert {"app.c", "net.c", "net.h", "w.h", "in.h", "out.h"} <= set(files)
    assert '#include "net.h"\n#include "in.h"\n#include "out.h"' in str(files["app.c"])
    assert '#include "net.h"\n#include "w.h"' in str(files["net.c"])


def test_left_out() -> None:
    files = emit_project(image_of(MAX78000), network_of(), Options(unload=False, known_answer=False), "")
    assert "sampleoutput.h" not in files
    assert "cnn_unload" not in str(files["main.c"]) + str(files["cnn.h"]) + str(files["cnn.c"])
    assert "check_output" not in str(files["main.c"])


@pytest.mark.slow
def test_a_network_that_never_ends(quick_build: Build) -> None:
    image = replace(image_of(MAX78000), start=(Write(MAX78000.control_register(1, 0), 1),))
    with pytest.raises(MaceError, match="waits for an interrupt that never comes"):
        run_firmware(quick_build(image, network_of(), Options()), MAX78000, Recorder())


def test_what_is_no_firmware() -> None:
    with pytest.raises(MaceError, match="no ELF file"):
        run_firmware(b"hello", MAX78000, Recorder())
    with pytest.raises(MaceError, match=r"is for EM_X86_64; build it for cortex-m4|is for EM_AARCH64"):
        run_firmware(Path(sys.executable).resolve().read_bytes(), MAX78000, Recorder())


def test_make_builds_it(tmp_path: Path) -> None:
    require(Registry.load().toolchains["arm-none-eabi"].missing("cortex-m4"))
    require(None if shutil.which("make") else "make is not in PATH: apt-get install make")
    write_all(tmp_path, emit_project(image_of(MAX78000), network_of(), Options(softmax=True, timer=0), ""))
    subprocess.run(
        ["make", "-s"], cwd=tmp_path, check=True, capture_output=True, env={"PATH": os.environ["PATH"]}
    )
    assert run_firmware((tmp_path / "build/cnn.elf").read_bytes(), MAX78000, Recorder()).passed
