"""Element-wise ops of one input against their numpy references."""

from math import erf
from pathlib import Path

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import DType
from mace_core.levels import Level, with_levels
from mace_core.ops import core_ops
from mace_core.testing.compiled import case, check_graphs, run_merged
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.lower import unary
from mace_target_cpu.lower.broadcast import collapse

BEST = with_levels(Cpu(), levels_here(Cpu().levels("host"))[:1])
"""One level, where all kinds of an op stand in one library: a compiler takes most of the time."""

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-40,
    -1e-40,
    88.8,
    -88.8,
    -103.5,
    1e30,
    -1e30,
    0.5,
    2.5,
    -2.5,
]
VALUES = np.concatenate([SPECIAL, np.linspace(-12, 12, 983), np.logspace(-30, 30, 103)]).astype(np.float32)
FLOATS = sorted({*unary.VECTOR, *unary.SCALAR, "Gelu"} - {"GeluNone", "GeluTanh"})


@pytest.mark.slow
def test_floats(tmp_path: Path) -> None:
    graphs = [case(name, name, [VALUES]) for name in FLOATS]
    graphs.append(case("GeluTanh", "Gelu", [VALUES], {"approximate": "tanh"}))
    check_graphs(Cpu(), graphs, tmp_path, {g.name: {"x0": VALUES} for g in graphs}, tolerance=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("level", levels_here(Cpu().levels("host")), ids=lambda level: str(level.name))
def test_erf_is_near_that_of_double_precision(tmp_path: Path, level: Level) -> None:
    """Relative to it, beside 1, where another formula begins, and up to where it is 1."""
    x = np.concatenate([np.linspace(1e-3, 4.5, 200_000), np.linspace(0.999, 1.001, 2_000)]).astype(np.float32)
    graph = case("erf", "Erf", [x])
    y = run_merged(with_levels(Cpu(), [level]), [graph], tmp_path, {"erf": {"x0": x}})["erf"]["y0"]
    exact = np.array([erf(value) for value in x.tolist()])
    assert np.abs(y / exact - 1).max() <= 2e-7
    assert y.max() == 1


@pytest.mark.slow
def test_integers(tmp_path: Path) -> None:
    signed = [0, 1, 2, 7, 100, -1, -2, -100]
    values = [
        np.array(signed[: 5 if dtype[0] == "u" else None], dtype) for dtype in ("i1", "u1", "i2", "i4", "i8")
    ]
    graphs = [case(f"{name}_{x.dtype}", name, [x]) for x in values for name in unary.INTEGER]
    given = {f"{name}_{x.dtype}": {"x0": x} for x in values for name in unary.INTEGER}
    check_graphs(BEST, graphs, tmp_path, given)


def test_not(tmp_path: Path) -> None:
    check_graphs(Cpu(), [case("invert", "Not", [np.array([True, False])])], tmp_path)


def test_every_unary_lowering_is_of_an_op_and_has_doubles() -> None:
    assert set(unary.LOWERINGS) <= set(core_ops())
    # Models in double precision are rare, so a missing line would show in no model that we test.
    assert {*unary.VECTOR, *unary.SCALAR} - {*unary.DOUBLE} == set()


HUGE = 1 << 31
WINDOW = {"strides": (1,), "pads_before": (0,), "pads_after": (0,), "dilations": (1,)}


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "said"),
    [
        (
            "Add",
            [(HUGE,), (1,)],
            {},
            "x0 has a dimension of 2147483648; libraries support at most 2147483647; state a smaller one under input_shapes",
        ),
        (
            "ReduceSum",
            [(1 << 16, 1 << 15)],
            {"axes": (0, 1)},
            "its over would be 2147483648; kernel reducesum_f32 counts in 32 bits",
        ),
        ("Conv", [(1, HUGE, 1), (1, 1, 1)], WINDOW, "x0 has a dimension of 2147483648"),
    ],
)
def test_what_kernels_cannot_count_is_refused(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Attribute], said: str
) -> None:
    new = Builder("huge")
    inputs = [new.input(f"x{i}", DType.F32, shape) for i, shape in enumerate(shapes)]
    graph = new.finish(new.add(op, inputs, attrs, outputs=["y0"]))
    (node,) = graph.nodes
    assert str(Cpu().refuses(node, graph)).startswith(said)


def test_axes_are_merged_only_as_far_as_kernels_count() -> None:
    shape = (1 << 16, 1 << 15)
    dims, (strides,) = collapse(shape, [shape])
    assert dims[-2:] == shape
    assert strides[-2:] == (1 << 15, 1)
