"""Element-wise ops of one input against their numpy references."""

from pathlib import Path

import numpy as np
import pytest

from mace_core.ops import core_ops
from mace_core.testing.compiled import case, check_graphs
from mace_target_cpu import Cpu
from mace_target_cpu.lower import unary

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 88.8, -88.8, -103.5, 1e30, -1e30, 0.5, 2.5, -2.5]
VALUES = np.concatenate([SPECIAL, np.linspace(-12, 12, 983), np.logspace(-30, 30, 103)]).astype(np.float32)
FLOATS = sorted({*unary.VECTOR, *unary.SCALAR, "Gelu"} - {"GeluNone", "GeluTanh"})


def test_floats(tmp_path: Path) -> None:
    graphs = [case(name, name, [VALUES]) for name in FLOATS]
    graphs.append(case("GeluTanh", "Gelu", [VALUES], {"approximate": "tanh"}))
    check_graphs(Cpu(), graphs, tmp_path, {g.name: {"x0": VALUES} for g in graphs}, tolerance=2e-6)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "i8"])
def test_integers(tmp_path: Path, dtype: str) -> None:
    x = np.array([0, 1, 2, 7, 100, *([] if dtype[0] == "u" else [-1, -2, -100])], dtype)
    graphs = [case(name, name, [x]) for name in unary.INTEGER if name != "Not"]
    check_graphs(Cpu(), graphs, tmp_path, {g.name: {"x0": x} for g in graphs})


def test_not(tmp_path: Path) -> None:
    check_graphs(Cpu(), [case("invert", "Not", [np.array([True, False])])], tmp_path)


def test_every_unary_op_has_a_kernel() -> None:
    assert set(unary.LOWERINGS) <= set(core_ops())
