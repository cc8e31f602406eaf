"""Element-wise ops of two inputs against their numpy references."""

from pathlib import Path

import numpy as np
import pytest

from mace_core.testing.compiled import case, check_graphs
from mace_target_cpu import Cpu
from mace_target_cpu.lower import binary

SHAPES = [
    ((3, 5), (3, 5)), ((2, 3, 33), (33,)), ((4, 1, 7), (1, 6, 1)), ((), (5,)), ((2, 9), ()), ((), ()), ((0, 3), (3,)),
    ((2, 3, 4, 5), (3, 1, 5)), ((2, 1, 3, 1, 2, 1), (1, 2, 1, 2, 1, 3)), ((1, 1), (1,)), ((17,), (1,)), ((2, 8, 16), (2, 8, 1)),
]  # fmt: skip
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -3.0, 3.0, np.inf, -np.inf, np.nan, 1e-3, 100.25], np.float32
)


@pytest.mark.slow
def test_broadcasting(tmp_path: Path) -> None:
    graphs = [
        case(f"{op}{i}", op, [np.zeros(a, np.float32), np.zeros(b, np.float32)])
        for op in ("Add", "Div", "Less")
        for i, (a, b) in enumerate(SHAPES)
    ]
    check_graphs(Cpu(), graphs, tmp_path)


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("op", ["Pow", "Minimum", "Maximum", "PRelu", "Sub", "Mul", "Equal", "GreaterEqual"])
def test_special_values(tmp_path: Path, op: str) -> None:
    x, y = np.meshgrid(SPECIAL, SPECIAL)
    graph = case("special", op, [x, y])
    check_graphs(Cpu(), [graph], tmp_path, {"special": {"x0": x, "x1": y}}, tolerance=1e-6)


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["i4", "i8", "u1", "i1"])
def test_integers(tmp_path: Path, dtype: str) -> None:
    values = np.array([0, 1, 2, 3, 7, *([] if dtype[0] == "u" else [-1, -2, -7])], dtype)
    x, y = np.meshgrid(values, values)
    ops = sorted(
        {*binary.SIGNED} - {"ModC", "ModFloor", "BitShiftLeft", "BitShiftRight", "And", "Or", "Xor", "Pow"}
    )
    graphs = [case(op, op, [x, y]) for op in ops]
    graphs += [case("Mod", "Mod", [x, y]), case("ModC", "Mod", [x, y], {"fmod": True})]
    check_graphs(Cpu(), graphs, tmp_path, {g.name: {"x0": x, "x1": y} for g in graphs})


@pytest.mark.slow
def test_mod_of_floats(tmp_path: Path) -> None:
    x, y = np.meshgrid(SPECIAL[np.isfinite(SPECIAL)], [3.0, -3.0, 0.7])
    x, y = x.astype(np.float32), y.astype(np.float32)
    graphs = [case("floor", "Mod", [x, y]), case("c", "Mod", [x, y], {"fmod": True})]
    check_graphs(Cpu(), graphs, tmp_path, {g.name: {"x0": x, "x1": y} for g in graphs}, tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f4", "i8", "u1", "bool"])
def test_where(tmp_path: Path, dtype: str) -> None:
    c, x, y = np.zeros((3, 1, 5), bool), np.zeros((2, 5), dtype), np.zeros((), dtype)
    check_graphs(Cpu(), [case("where", "Where", [c, x, y])], tmp_path)


@pytest.mark.slow
def test_logical(tmp_path: Path) -> None:
    x = np.zeros((4, 5), bool)
    check_graphs(Cpu(), [case(op, op, [x, x[0]]) for op in ("And", "Or", "Xor")], tmp_path)
