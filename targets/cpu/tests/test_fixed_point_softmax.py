"""Which stored results of a Softmax the integer arithmetic of LiteRT gives, and which are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Quant, Storage
from mace_core.numerics import Numerics
from mace_core.testing.compiled import run_merged
from mace_target_cpu import Cpu
from mace_target_cpu.fixed_point.softmax import TOLERANCE

STEP = 1 / 256
I8, U8 = DType.I8, DType.U8


@pytest.mark.parametrize(
    ("dtype", "result", "is_imitated"),
    [
        (I8, Storage(I8, Quant.of(STEP, -128)), True),
        (U8, Storage(U8, Quant.of(STEP, 0)), True),
        (I8, Storage(I8, Quant.of(STEP * (1 + TOLERANCE * 0.9), -128)), True),
        (I8, Storage(I8, Quant.of(STEP * (1 + TOLERANCE * 1.1), -128)), False),
        (I8, Storage(I8, Quant.of(STEP * (1 - TOLERANCE * 1.1), -128)), False),
        (I8, Storage(I8, Quant.of(STEP, -127)), False),
        (I8, Storage(U8, Quant.of(STEP, 0)), False),
    ],
)
def test_results_have_the_steps_of_the_kernel(dtype: DType, result: Storage, is_imitated: bool) -> None:
    builder = Builder("softmax")
    x = builder.input("x", dtype, (2, 5), Quant.of(0.1, 3))
    y = builder.one("Softmax", [x], outputs=[builder.reserve_output("y", result)])
    graph = replace(builder.finish([y]), numerics=Numerics.FIXED_POINT)
    refusal = Cpu().refuses(graph.nodes[0], graph)
    assert (refusal is None) == is_imitated
    assert refusal is None or "is not imitated" in refusal.reason


@pytest.mark.slow
def test_many_equal_elements_have_a_share_of_nothing(tmp_path: Path) -> None:
    """Of 512 or more, none has half a step of 1/256, and the shift to its share is as wide as a number."""
    builder = Builder("equal")
    x = builder.input("x", I8, (1, 1001), Quant.of(0.1, 3))
    y = builder.one("Softmax", [x], outputs=[builder.reserve_output("y", Storage(I8, Quant.of(STEP, -128)))])
    graph = replace(builder.finish([y]), numerics=Numerics.FIXED_POINT)
    elements = np.full((1, 1001), 7, np.int8)
    results = run_merged(Cpu(), [graph], tmp_path, {"equal": {"x": elements}})
    assert (results["equal"]["y"] == -128).all()
