"""Element-wise ops of two inputs against their numpy references."""

from pathlib import Path

import numpy as np
import pytest

from mace_core.emit.integer_expressions import SIGNED
from mace_core.graph_builder import Builder
from mace_core.ir import DType
from mace_core.levels import with_levels
from mace_core.testing.compiled import case, check_graphs
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu

BEST = with_levels(Cpu(), levels_here(Cpu().levels("host"))[:1])
"""One level, where all kinds of an op stand in one library: a compiler takes most of the time."""

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


@pytest.mark.slow
def test_special_values(tmp_path: Path) -> None:
    x, y = np.meshgrid(SPECIAL, SPECIAL)
    ops = (
        "Pow",
        "Minimum",
        "Maximum",
        "PRelu",
        "Sub",
        "Mul",
        "Equal",
        "Less",
        "LessEqual",
        "Greater",
        "GreaterEqual",
    )
    graphs = [case(op, op, [x, y]) for op in ops]
    check_graphs(BEST, graphs, tmp_path, {op: {"x0": x, "x1": y} for op in ops}, tolerance=1e-6)


@pytest.mark.slow
def test_integers(tmp_path: Path) -> None:
    ops = sorted({*SIGNED} - {"ModC", "ModFloor", "BitShiftLeft", "BitShiftRight", "And", "Or", "Xor", "Pow"})
    graphs, given = [], {}
    for dtype in ("i4", "i8", "u1", "i1"):
        values = np.array([0, 1, 2, 3, 7, *([] if dtype[0] == "u" else [-1, -2, -7])], dtype)
        x, y = np.meshgrid(values, values)
        graphs += [case(f"{op}_{dtype}", op, [x, y]) for op in (*ops, "Mod")]
        graphs.append(case(f"ModC_{dtype}", "Mod", [x, y], {"fmod": True}))
        given |= {f"{op}_{dtype}": {"x0": x, "x1": y} for op in (*ops, "Mod", "ModC")}
    values = np.array([0, 1, 31, 32, 2**32 - 1], np.uint32)
    x, y = np.meshgrid(values, values)
    for is_left in (True, False):
        graphs.append(case(f"shift_{is_left}".lower(), "BitShift", [x, y], {"left": is_left}))
        given[graphs[-1].name] = {"x0": x, "x1": y}
    check_graphs(BEST, graphs, tmp_path, given)


@pytest.mark.slow
def test_a_result_does_not_take_the_place_of_what_each_row_reads(tmp_path: Path) -> None:
    """An exponent, or a folded table, that is computed and has as many bytes as the result."""
    power = Builder("power")
    x, y = power.input("x", DType.F32, (2, 8)), power.input("y", DType.I32, (8,))
    raised = power.one("Pow", [x, power.one("Cast", [y], {"to": "i64"})])
    norm = Builder("norm")
    z = norm.input("x", DType.F32, (2, 40))
    vectors = [norm.one("Exp", [norm.input(name, DType.F32, (40,))]) for name in "abcd"]
    normalized = norm.one("BatchNorm", [z, *vectors], {"epsilon": 0.1})
    graphs = [
        power.finish([power.one("Neg", [raised])]),
        norm.finish([norm.one("Neg", [normalized])]),
    ]
    check_graphs(BEST, graphs, tmp_path)


@pytest.mark.slow
def test_mod_of_floats(tmp_path: Path) -> None:
    x, y = np.meshgrid(SPECIAL[np.isfinite(SPECIAL)], [3.0, -3.0, 0.7])
    x, y = x.astype(np.float32), y.astype(np.float32)
    graphs = [case("floor", "Mod", [x, y]), case("c", "Mod", [x, y], {"fmod": True})]
    check_graphs(Cpu(), graphs, tmp_path, {g.name: {"x0": x, "x1": y} for g in graphs}, tolerance=1e-5)


@pytest.mark.slow
def test_where(tmp_path: Path) -> None:
    graphs = []
    for dtype in ("f4", "i8", "u1", "bool"):
        c, x, y = np.zeros((3, 1, 5), bool), np.zeros((2, 5), dtype), np.zeros((), dtype)
        graphs.append(case(f"broadcast_{dtype}", "Where", [c, x, y]))
        # Rows longer than a vector, of which each operand is one number or the whole row.
        for number, shapes in enumerate([((4, 37),) * 3, ((37,), (1,), (4, 37)), ((1,), (4, 37), (4, 1))]):
            arrays = [np.zeros(s, kind) for s, kind in zip(shapes, (bool, dtype, dtype), strict=True)]
            graphs.append(case(f"rows{number}_{dtype}", "Where", arrays))
    check_graphs(Cpu(), graphs, tmp_path)


@pytest.mark.slow
def test_logical(tmp_path: Path) -> None:
    x = np.zeros((4, 5), bool)
    check_graphs(Cpu(), [case(op, op, [x, x[0]]) for op in ("And", "Or", "Xor")], tmp_path)
