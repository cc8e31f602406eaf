"""The emulator with programs of a few instructions, its peripherals, and its commands beside a firmware that is pretended."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.network import INPUT, Layer, LayerPlacement, Network, Operation
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.emulator import command, machine
from mace_target_max78000.emulator.command import Outcome
from mace_target_max78000.emulator.cores import EXIT, CortexM4, RiscV
from mace_target_max78000.emulator.machine import Firmware, Machine, Peripherals, Symbol, load_firmware
from mace_target_max78000.encode import synthesize
from mace_target_max78000.firmware.tensor_words import TensorBinding
from mace_target_max78000.options import Options
from mace_target_max78002.device import MAX78002

FLASH, SRAM = 0x10000000, 0x20000000
HANDLER = FLASH + 0x40
VECTORS = FLASH + 0x100


class Accelerator:
    """Is done as soon as something is written, and answers with the address and the size."""

    on_done: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.written: list[tuple[int, int, int]] = []

    def write(self, address: int, value: int, size: int = 4) -> None:
        self.written.append((address, value, size))
        if self.on_done is not None:
            self.on_done()

    def read(self, address: int, size: int = 4) -> int:
        return address & 0xFF | size << 8


def thumb(code: Sequence[int], literals: Sequence[int] = (), exit_at: int = 0) -> Firmware:
    """A firmware of these instructions and words; it ends at the last instruction but one."""
    table = struct.pack("<2I", SRAM + 0x1000, FLASH + 9)
    body = struct.pack(f"<{len(code)}H", *code)
    assert len(body) % 4 == 0
    words = struct.pack(f"<{len(literals)}I", *literals)
    handler = struct.pack("<3H", 0x2009, 0x6010, 0x4770)  # movs r0, #9; str r0, [r2]; bx lr
    vector = struct.pack("<I", HANDLER | 1)
    segments = (
        (FLASH, table + body + words),
        (HANDLER, handler),
        (VECTORS + 4 * (16 + 101), vector),
    )
    end = FLASH + 8 + 2 * (exit_at or len(code) - 2)
    symbols = {EXIT: Symbol(end | 1, 0), "input_0": Symbol(SRAM, 8), "odd": Symbol(SRAM, 7)}
    return Firmware(segments, symbols, True)


NOP, WFI = 0xBF00, 0xBF30
HELLO = thumb([0x4902, 0x2041, 0x6008, 0x2007, NOP, NOP], [0x40042020])
"""ldr r1, =UART; movs r0, #'A'; str r0, [r1]; movs r0, #7"""
INTERRUPTED = thumb(
    [0x4904, 0x4805, 0x6008, 0x4905, 0x4A05, 0x6008, WFI, 0x6810, NOP, NOP],
    [machine.VECTOR_TABLE, VECTORS, 0x50100010, SRAM],
)
"""Name the table of vectors, start the accelerator, sleep, and end with what the handler has stored."""


@pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
def test_a_program_speaks_and_ends_with_its_status(device: Chip) -> None:
    executed = Machine(HELLO, device, Accelerator())
    assert executed.run() == 7
    assert executed.console == "A"


def test_the_handler_runs_when_the_accelerator_is_done() -> None:
    accelerator = Accelerator()
    executed = Machine(INTERRUPTED, MAX78000, accelerator)
    assert executed.run() == 9
    assert accelerator.written == [(0x50100010, VECTORS, 4)]
    assert executed.words(Symbol(SRAM, 4)) == (9,)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ([WFI, NOP, NOP, NOP], "waits for an interrupt that never comes, at 0x1000000a"),
        ([0x6008, NOP, NOP, NOP], "at 0x10000008"),  # str r0, [r1] to address 0
        ([0xDE00, NOP, NOP, NOP], "at 0x1000000"),  # an undefined instruction
    ],
)
def test_what_a_program_must_not_do_is_told(code: list[int], problem: str) -> None:
    with pytest.raises(MaceError, match=problem) as error:
        Machine(thumb(code), MAX78000, Accelerator()).run()
    assert str(error.value).startswith("firmware: ")


def test_a_program_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SECONDS", 0.05)
    endless = thumb([0xE7FE, NOP, NOP, NOP])  # b .
    with pytest.raises(
        MaceError, match=r"does not end within 0.05 s, at 0x10000008\n; look at what it waits for"
    ):
        Machine(endless, MAX78000, Accelerator()).run()


def test_arrays_of_a_program_are_replaced_from_their_beginning() -> None:
    executed = Machine(HELLO, MAX78000, Accelerator())
    executed.patch("input_0", (5,))
    executed.patch("input_0", (1, 2**32 - 1))
    assert executed.words(HELLO.symbols["input_0"]) == (1, 2**32 - 1)
    assert executed.words(HELLO.symbols["odd"]) == (1,)
    for name, words, size in (("input_0", (1, 2, 3), 2), ("input_1", (1,), 0)):
        problem = f"firmware: {name} has {size} words, not {len(words)}; give input of the network's shape"
        with pytest.raises(MaceError, match=problem):
            executed.patch(name, words)


def test_symbols_and_files_that_are_none() -> None:
    assert HELLO.address(EXIT) == FLASH + 16
    assert (HELLO.thumb, Firmware((), {}, False).thumb) == (1, 0)
    with pytest.raises(MaceError, match="has no symbol main; link it with its symbols and our board layer"):
        HELLO.address("main")
    for data in (b"", b"\x7fELF", bytes(100)):
        with pytest.raises(MaceError, match=r"firmware: is no ELF file \(.*give the firmware.elf"):
            load_firmware(data)


def test_peripherals_keep_what_is_written() -> None:
    peripherals = Peripherals()
    peripherals.write(0x40000104, 0x12345678, 4)
    assert peripherals.read(0x40000104, 4) == 0x12345678
    assert peripherals.read(0x40000108, 4) == 0
    # Clocks and PLL are ready at once, whatever was written: bits 13 and 27, and bit 1.
    assert peripherals.read(0x40000008, 4) == 0x08002000
    peripherals.write(0x40000010, 1, 4)
    assert peripherals.read(0x40000010, 4) == 3


def test_the_uart_is_never_busy() -> None:
    peripherals = Peripherals()
    for character in b"a\r\n":
        peripherals.write(0x40042020, 0x100 | character, 4)
    peripherals.write(0x40042004, 0xFF, 4)
    assert peripherals.read(0x40042004, 4) == 0
    assert peripherals.console == b"a\r\n"


def test_the_system_timer_counts_down_from_its_reset() -> None:
    """It has 24 bits, and 1000 cycles pass between two looks at it."""
    peripherals = Peripherals()
    assert [peripherals.read(0xE000E018, 4) for _ in range(2)] == [2**24 - 1000, 2**24 - 2000]
    peripherals.write(0xE000E018, 5, 4)
    assert peripherals.read(0xE000E018, 4) == 2**24 - 1000


def test_interrupts_of_the_cortex() -> None:
    core = CortexM4()
    core.uc.mem_map(SRAM, 0x1000)
    core.uc.mem_write(SRAM + 4 * (16 + 101), struct.pack("<I", 0x10000041))
    core.write("SP", SRAM + 0x800)
    core.write("PC", 0x10000124)
    core.write("R4", 11)
    assert core.listens
    assert core.interrupt(SRAM) == 0x10000041
    assert (core.read("SP"), core.read("LR"), core.listens) == (SRAM + 0x800 - 32, 0xFFFFFFF9, False)
    core.write("R4", 12)
    assert core.resume() is None
    core.write("PC", 0xFFFFFFF8)
    assert core.resume() == 0x10000125
    assert (core.read("R4"), core.read("SP"), core.listens) == (11, SRAM + 0x800, True)
    core.write("PRIMASK", 1)
    assert not core.listens


@pytest.mark.parametrize(
    ("vectors", "handler"), [(0x10000101, 0x10000100 + 4 * 57), (0x10000100, 0x10000100)]
)
def test_interrupts_of_the_risc_v(vectors: int, handler: int) -> None:
    """By the privileged architecture: one entry for each cause where bit 0 of mtvec is set, else one for all."""
    core = RiscV()
    core.write("PC", 0x10000200)
    core.write("MTVEC", vectors)
    core.write("MSTATUS", 1 << 3)
    assert core.listens
    assert core.interrupt(0) == handler
    assert core.read("MEPC") == 0x10000200
    assert core.read("MCAUSE") == 0x80000000 | 57
    status = core.read("MSTATUS")
    # Disabled now, enabled before, and before in machine mode.
    assert (status >> 3 & 1, status >> 7 & 1, status >> 11 & 3, core.listens) == (0, 1, 3, False)
    assert core.resume() is None
    assert core.reset(0x10000000) == 0x10000000


def network(chw: bool = False) -> Network:
    layer = Layer("copy", Operation.PASSTHROUGH, (INPUT,), 3, (2, 5), 3, output=True)
    processors = 0x111 if chw else 0x7
    sample = np.random.default_rng(2).integers(-128, 128, (3, 2, 5))
    return Network("net", (layer,), (LayerPlacement(processors, 0x7, 0, 0x1000, chw=chw),), sample)


@pytest.mark.parametrize("chw", [False, True])
@pytest.mark.parametrize("fifo", [False, True])
def test_words_of_a_sample_are_those_of_the_program(fifo: bool, chw: bool) -> None:
    """Also of a binding that a report has kept as JSON."""
    made, options = network(chw), Options(fifo=fifo)
    image = synthesize(made, options, MAX78000).image
    expected = {b.processor if b.fifo is None else b.fifo: tuple(b.words) for b in image.inputs}
    binding = TensorBinding.of(made, options, [1.0])
    kept = TensorBinding.read(json.loads(json.dumps(binding.to_report())))
    for either in (binding, kept):
        result = either.words(made.sample, MAX78000)
        assert {number: tuple(words) for number, words in result.items()} == expected


def report(**changes: Any) -> dict[str, Any]:
    """What a build says of the network above."""
    binding = TensorBinding.of(network(), Options(), [1.0])
    return {
        "feed": json.loads(json.dumps(binding.to_report())),
        "inputs": [{"dtype": "i8", "shape": [1, 3, 2, 5]}],
        "outputs": [{"dtype": "i8", "shape": [1, 3, 2, 5]}],
        "layers": [{"dtype": "i8"}],
        "cycles": 1500,
        "hertz": 50_000_000,
        "documented": False,
        **changes,
    }


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """The folder of a build with two models."""
    program = tmp_path / "bin" / "lib" / "mace_run"
    program.parent.mkdir(parents=True)
    program.write_text("")
    (program.parent / "a.elf").write_bytes(b"firmware a")
    (tmp_path / "model").mkdir()
    models = {"a": report(), "b": report()}
    (tmp_path / "model" / "lib.json").write_text(json.dumps({"models": models}))
    return program


SAID = "hello\n*** PASS ***\n"


class Pretended:
    """Executes no firmware; every result is the input plus 1."""

    def __init__(self, passes: bool = True) -> None:
        self.passes, self.asked = passes, []  # type: ignore[var-annotated]

    def __call__(
        self, elf: bytes, device: Chip, accelerator: object, words: Mapping[int, Sequence[int]] | None = None
    ) -> Outcome:
        self.asked.append((elf, device.name, words))
        if words is None:
            return Outcome(SAID if self.passes else "*** FAIL ***\n", 0, None)
        values = np.array(words[0], "<u4").view("i1").reshape(10, 4)[:, :3].T + np.int8(1)
        padded = np.concatenate([np.ascontiguousarray(values).reshape(-1), np.zeros(2, np.int8)])
        return Outcome("", 0, tuple(int(w) for w in padded.astype("i1").view("<u4")))


def run(build: Path, *arguments: str) -> int:
    return command.main(MAX78000, [str(build), *arguments])


def samples(folder: Path, count: int) -> Array:
    values = np.random.default_rng(count).integers(-128, 127, (count, 3, 2, 5)).astype(np.int8)
    values.tofile(folder / "in.bin")
    return values


def test_results_of_all_samples_and_layers_of_the_first(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretended = Pretended()
    monkeypatch.setattr(command, "run_firmware", pretended)
    given = samples(tmp_path, 3)
    assert run(build, "--output", str(tmp_path), "--layers", str(tmp_path), str(tmp_path / "in.bin")) == 0
    assert capsys.readouterr().out == SAID
    assert (tmp_path / "output_0.bin").read_bytes() == (given + np.int8(1)).tobytes()
    assert (tmp_path / "layer_0.bin").read_bytes() == (given[0] + np.int8(1)).tobytes()
    assert [(elf, name, words is None) for elf, name, words in pretended.asked] == [
        (b"firmware a", "MAX78000", True),
        *[(b"firmware a", "MAX78000", False)] * 3,
    ]


def test_without_input_the_known_answer_is_all(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "run_firmware", Pretended())
    assert run(build) == 0
    assert capsys.readouterr().out == SAID
    monkeypatch.setattr(command, "run_firmware", Pretended(passes=False))
    assert run(build) == 2
    told = "known-answer test: failed: *** FAIL ***; the firmware does not compute what it was made for\n"
    assert capsys.readouterr().err == told


def test_a_benchmark_states_estimated_nanoseconds(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        command.main(MAX78000, [str(build.with_name("mace_benchmark")), "--rounds", "2", "--model", "a"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told == {"model": "a", "threads": 1, "ns": [30000, 30000], "layers": []}


def test_a_firmware_that_is_not_there(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(build, "--model", "b") == 2
    assert capsys.readouterr().err == (
        f"{build.with_name('b.elf')}: the firmware cannot be read: No such file or directory; build it for this target\n"
    )


@pytest.mark.parametrize(
    ("console", "status", "passed"),
    [(SAID, 0, True), (SAID, 1, False), ("hello", 0, False), ("*** FAIL ***", 0, False)],
)
def test_when_a_known_answer_test_has_passed(console: str, status: int, passed: bool) -> None:
    assert Outcome(console, status, None).passed is passed


def test_a_benchmark_of_the_first_model_has_one_round(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(MAX78000, [str(build.with_name("mace_benchmark"))]) == 0
    assert json.loads(capsys.readouterr().out) == {"model": "", "threads": 1, "ns": [30000], "layers": []}


REMEDY = "name mace_run or mace_benchmark in the folder bin/LIBRARY of a build, as `mace convert` writes it"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, f"{{program}}: is no program of a firmware: {{report}}: No such file or directory; {REMEDY}"),
        ("{", "{report}: is no report of a build; build the firmware again"),
        ("[]", "{report}: lists no models; build the firmware again"),
        ("{}", "{report}: lists no models; build the firmware again"),
        ('{"models": {}}', "{report}: lists no models; build the firmware again"),
        ('{"models": ["a"]}', "{report}: lists no models; build the firmware again"),
        ('{"models": {"b": {}, "c": {}}}', "{program}: has no model 'a'; name one of b, c"),
    ],
)
def test_reports_that_name_no_such_model(
    build: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    report = build.parents[2] / "model" / "lib.json"
    report.unlink()
    if text is not None:
        report.write_text(text)
    assert run(build, "--model", "a") == 2
    assert capsys.readouterr().err == said.format(program=build, report=report) + "\n"


@pytest.mark.parametrize("program", ["other", "mace_runs"])
def test_programs_of_another_name(build: Path, capsys: pytest.CaptureFixture[str], program: str) -> None:
    assert run(build.with_name(program)) == 2
    assert capsys.readouterr().err == f"{build.with_name(program)}: is no program of a firmware; {REMEDY}\n"


@pytest.mark.parametrize(("path", "is_deep"), [("/lib/mace_run", False), ("/no/bin/lib/mace_run", True)])
def test_a_program_lies_in_a_folder_of_a_folder(
    capsys: pytest.CaptureFixture[str], path: str, is_deep: bool
) -> None:
    assert run(Path(path)) == 2
    reason = ": /no/model/lib.json: No such file or directory" if is_deep else ""
    assert capsys.readouterr().err == f"{path}: is no program of a firmware{reason}; {REMEDY}\n"
