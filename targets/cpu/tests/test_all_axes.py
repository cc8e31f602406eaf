"""Kernels that loop over several axes, with every axis in use: none as long as another, none merged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from quantized_graphs import I8, I16, U8, check, graph, storage

from mace_core.attributes import Attribute
from mace_core.ir import Array, DType, Graph
from mace_core.levels import with_levels
from mace_core.testing.compiled import case, check_graphs
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu

pytestmark = pytest.mark.slow

LEVELS = levels_here(Cpu().levels("host"))

# What repeats along one of two neighboring axes is not merged with the other.
ODD, EVEN = (3, 1, 4, 1, 2, 1), (1, 2, 1, 3, 1, 5)
WIDE, TALL = (3, 1, 4, 1, 2, 19), (1, 2, 1, 3, 1, 19)


def elementwise() -> list[Graph]:
    """Results of six axes; along the last one both operands walk, or one of them stays."""
    results = []
    for dtype in ("f4", "i4"):
        for name, shapes in (("apart", (ODD, EVEN)), ("back", (EVEN, ODD)), ("along", (WIDE, TALL))):
            results.append(case(f"add_{name}_{dtype}", "Add", [np.zeros(s, dtype) for s in shapes]))
    for name, shapes in (("apart", (ODD, EVEN, ODD)), ("along", (TALL, WIDE, (1, 2, 1, 1, 2, 1)))):
        arrays: list[Array] = [np.zeros(s, "f4") for s in shapes]
        results.append(case(f"where_{name}", "Where", [arrays[0].astype(bool), *arrays[1:]]))
    return results


def reductions() -> list[Graph]:
    """Three axes that are reduced between three that are not."""
    results = []
    for op, dtype in (("ReduceSum", "f4"), ("ReduceMax", "f4"), ("ReduceProd", "i4"), ("ReduceMean", "i4")):
        for first in (0, 1):
            axes = tuple(range(first, 6, 2))
            results.append(
                case(f"{op}_{dtype}_{first}", op, [np.zeros((3, 2, 4, 3, 2, 5), dtype)], {"axes": axes})
            )
    return results


def moves() -> list[Graph]:
    shape = (2, 3, 2, 4, 2, 3, 2, 3)
    attributes: Mapping[str, Mapping[str, Attribute]] = {
        "Transpose": {"perm": (7, 2, 5, 0, 3, 6, 1, 4)},
        "Slice": {"starts": (1, 2, 0, 3, 1, 0, 0, 2), "sizes": (1, 2, 2, 2, 2, 2, 1, 2), "steps": (1, -1, 1, -2, -1, 2, 1, -1)},
        "Pad": {"before": (0, 1, 0, 2, 1, 0, 1, 0), "after": (1, 0, 1, 1, 0, 2, 0, 1)},
        "Tile": {"repeats": (1, 2, 1, 2, 1, 2, 1, 2)},
    }  # fmt: skip
    graphs = [
        case(f"{op}_{dtype}".lower(), op, [np.zeros(shape, dtype)], attrs)
        for op, attrs in attributes.items()
        for dtype in ("f4", "i1")
    ]
    small = (2, 1, 2, 1, 2, 1, 2, 1)
    graphs.append(case("expand", "Expand", [np.zeros(small, "f4")], {"shape": (2, 3, 2, 4, 2, 3, 2, 3)}))
    return graphs


def products() -> list[Graph]:
    """Matrices of batches that repeat on one side or on the other."""
    x, y = np.zeros((2, 1, 4, 1, 3, 5), "f4"), np.zeros((1, 3, 1, 2, 5, 7), "f4")
    return [
        case("batches", "MatMul", [x, y]),
        case("turned", "MatMul", [y.transpose(0, 1, 2, 3, 5, 4), x.transpose(0, 1, 2, 3, 5, 4)]),
        case("integers", "MatMul", [x.astype("i4"), y.astype("i4")]),
        case("doubles", "MatMul", [x.astype("f8"), y.astype("f8")]),
    ]


def test_numbers(tmp_path: Path) -> None:
    target = with_levels(Cpu(), LEVELS[:1])
    check_graphs(target, [*elementwise(), *reductions(), *moves(), *products()], tmp_path)


@pytest.mark.exhaustive
def test_stored_integers(tmp_path: Path) -> None:
    graphs = []
    for x, y, out in ((I8, U8, I8), (U8, None, U8), (I16, I8, I16)):
        for name, shapes in (("apart", (ODD, EVEN)), ("back", (EVEN, ODD)), ("along", (WIDE, TALL))):
            graphs.append(graph(f"{name}_{x.dtype.value}", "Add", [(x, shapes[0]), (y, shapes[1])], {}, out))
    for first in (0, 1):
        axes = {"axes": tuple(range(first, 6, 2))}
        for op, out in (("ReduceMean", U8), ("ReduceSum", storage(DType.I16, 0.1)), ("ReduceMax", I8)):
            graphs.append(graph(f"{op}{first}", op, [(I8, (3, 2, 4, 3, 2, 5))], axes, out))
    kernels = check(graphs, tmp_path / "best", [LEVELS[0]])
    assert not [name for name in kernels.values() if "dequantize" in name], kernels
    check([g for g in graphs if g.name.startswith("along")], tmp_path / "last", [LEVELS[-1]])
