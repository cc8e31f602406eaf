"""Weights of eight and four bits beside floats: every level of ARM gives the bits of this machine's CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_arm import BuiltForArm, name_emulated_levels

from mace_core.compact_weights import compact_weights
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.levels import with_levels
from mace_core.numerics import Numerics
from mace_core.program import Program
from mace_core.testing.compiled import compile_graphs, random_inputs
from mace_core.testing.processor import levels_here
from mace_core.tuning import NO_TUNING, Tuning
from mace_target_arm import Arm
from mace_target_cpu import Cpu

pytestmark = [pytest.mark.emulator, pytest.mark.slow]

ABIS = ("arm64-v8a", "armeabi-v7a")
EXACT = ("-ffp-contract=off",)
"""The flag of libraries with `numerics: reproducible`: products and sums are rounded each."""


class StoringArm(Arm):
    """The ARM target as a model with `weights: as-stored` gets it."""

    def lower(self, graph: Graph, abi: str = "host", tuning: Tuning = NO_TUNING) -> Program:
        return compact_weights(super().lower(graph, abi, tuning), self.widening_kernels()).program


class StoringCpu(Cpu):
    """The same on this machine."""

    def lower(self, graph: Graph, abi: str = "host", tuning: Tuning = NO_TUNING) -> Program:
        return compact_weights(super().lower(graph, abi, tuning), self.widening_kernels()).program


def products() -> Graph:
    """Few and many rows by weights of both widths, with blocks and zero points, and odd sizes."""
    new, rng, results = Builder("products"), np.random.default_rng(0), []
    for bits in (8, 4):
        scales = rng.uniform(0.5, 1, (3, 53)) / (1 << (bits + 2))
        integers = (
            rng.integers(0, 1 << bits, (75, 53)) - rng.integers(0, 1 << bits, (3, 53)).repeat(32, 0)[:75]
        )
        weights = integers.astype(np.float32) * scales.astype(np.float32).repeat(32, 0)[:75]
        for rows in (1, 4, 9):
            x = new.input(f"x{bits}_{rows}", DType.F32, (rows, 75))
            results.append(new.one("MatMul", [x, new.weight("w", weights)]))
    return replace(new.finish(results), numerics=Numerics.REPRODUCIBLE)


@pytest.mark.parametrize("abi", ABIS)
def test_products_have_the_bits_of_this_machine(
    abi: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = products()
    kernels = {call.kernel.name for call in StoringArm().lower(graph, abi).calls}
    assert kernels == {"matmul_i8_f32", "matmul_i4_f32"}
    inputs = random_inputs(graph)
    (tmp_path / "here").mkdir()
    best = levels_here(Cpu().levels("host"))[0]
    here = with_levels(StoringCpu(), [replace(best, flags=(*best.flags, *EXACT))])
    expected = compile_graphs(here, [graph], tmp_path / "here")[graph.name].run(inputs)
    monkeypatch.setattr("emulated_arm.Arm", StoringArm)
    monkeypatch.setattr("emulated_arm.FLAGS", ("-O2", "-s", *EXACT))
    built = BuiltForArm.from_graph(graph, tmp_path, "zig", abi)
    for level in name_emulated_levels(abi):
        outputs = built.run([inputs[name] for name in graph.inputs], level)
        for name, array in outputs.items():
            assert array.tobytes() == expected[name].tobytes(), f"{level}: {name}"
