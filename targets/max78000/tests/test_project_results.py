"""What a firmware makes of results: the order in which they come, softmax, and the RISC-V core that runs it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from project_images import (
    DEVICES,
    Build,
    Recorder,
    fed_by_fast_fifo,
    image_of,
    list_writes,
    network_of,
    strict,
)

from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.testing.requirements import require
from mace_frontend_ai8x.network import LayerPlacement, Unload
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.emulator.command import run_firmware
from mace_target_max78000.firmware import emit_project
from mace_target_max78000.firmware.layout import build_firmware
from mace_target_max78000.image import Block
from mace_target_max78000.options import Options

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
    network = replace(network_of(), layers=(layer,), places=(LayerPlacement(15, 15),))
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
        build_firmware(project, strict(zig.compiler("rv32imc")), tmp_path / "riscv", riscv=True),
        device,
        accelerator,
    )
    assert outcome.passed, outcome.console
    expected = list(list_writes(image))
    assert [w for w in accelerator.writes if w in expected][: len(expected)] == expected
    starter = build_firmware(project, strict(zig.compiler("cortex-m4")), tmp_path / "arm")
    with pytest.raises(MaceError, match="waits for an interrupt that never comes"):
        run_firmware(starter, device, Recorder(device))
