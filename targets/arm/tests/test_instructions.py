"""Instructions of a program for ARM, by its readings of the clock."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from emulated_arm import FLAGS, require_runner, require_toolchain
from quantized_graphs import I8, conv

from mace_core.errors import MaceError
from mace_core.ir import DType
from mace_core.levels import with_levels
from mace_core.run.compile import program
from mace_core.testing.compiled import generate_library
from mace_target_arm import Arm
from mace_target_arm.instructions import InstructionCounter


def test_only_qemu_counts() -> None:
    with pytest.raises(MaceError, match="counts no instructions; build with a toolchain that qemu-aarch64"):
        InstructionCounter().count(["adb", "shell", "mace_benchmark"])


def test_libraries_for_arm_are_counted() -> None:
    assert isinstance(Arm().counter(), InstructionCounter)


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("abi", ["arm64", "armhf"])
def test_a_pixel_more_executes_what_a_pixel_less_did_and_more(abi: str, tmp_path: Path) -> None:
    toolchain = require_toolchain("gnu", abi)
    runner = require_runner(toolchain, abi)
    none = {"pads_before": (0, 0), "pads_after": (0, 0)}
    graphs = [
        conv(f"side{side}", (1, side, side, 64), (64, 1, 1, 64), (I8, DType.I8, I8), **none)
        for side in (8, 16)
    ]
    target = with_levels(Arm(), Arm().levels(abi)[-1:])
    path = program(
        "mace_benchmark",
        generate_library([target], graphs, abi),
        toolchain.compiler(abi),
        tmp_path,
        FLAGS,
    )
    runs = []
    for graph in graphs:
        words = [f"--model={graph.name}", "--rounds=1", "--warmup=0", "--layers=1"]
        counted = InstructionCounter().count(runner.command(path, words))
        layers = json.loads(counted.printed)["layers"]
        assert len(counted.readings) == 5 + 2 * len(layers) == 7
        runs.append([after - before for (before,), (after,) in pairwise(counted.readings)][2])
    small, large = runs
    # Four times the multiply-adds, 64 * 64 a pixel; no instruction of NEON does more than four of them.
    assert 3.5 * small < large < 4.1 * small
    assert large > 16 * 16 * 64 * 64 / 4
