"""Transposes with a Reshape between them."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run.reference import execute
from mace_transform_standard.cleanup.merge_transposes import merge_transposes

Shape = tuple[int, ...]


def chain(x: Shape, first: Shape, shape: Shape, second: Shape, also: bool = False) -> Graph:
    """Transpose, Reshape, Transpose. also: whether what is between them is an output too."""
    new = Builder("chain")
    turned = new.one("Transpose", [new.input("x", DType.F32, x)], {"perm": first})
    flat = new.one("Reshape", [turned], {"shape": shape})
    y = new.one("Transpose", [flat], {"perm": second})
    return new.finish([y, flat] if also else [y])


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


@pytest.mark.parametrize(
    ("x", "first", "shape", "second"),
    [
        ((1, 12, 8, 32), (0, 1, 3, 2), (1, 384, 8), (0, 2, 1)),
        ((2, 3, 4, 5), (3, 0, 2, 1), (5, 2, 12), (2, 0, 1)),
        ((6, 20), (1, 0), (4, 5, 6), (2, 0, 1)),
        ((3, 1, 4), (2, 1, 0), (4, 3), (1, 0)),
        ((3, 4), (1, 0), (1, 4, 1, 3), (3, 0, 1, 2)),
    ],
)
def test_two_become_one(x: Shape, first: Shape, shape: Shape, second: Shape) -> None:
    graph = chain(x, first, shape, second)
    merged = merge_transposes(graph)
    assert ops(merged).count("Transpose") <= 1
    inputs = {"x": np.random.default_rng(0).standard_normal(x).astype(np.float32)}
    np.testing.assert_array_equal(*(execute(g, inputs)[g.outputs[0]] for g in (graph, merged)))


def test_what_tears_an_axis_apart_stays() -> None:
    assert ops(merge_transposes(chain((6, 20), (1, 0), (4, 5, 6), (1, 0, 2)))) == [
        "Transpose",
        "Reshape",
        "Transpose",
    ]
    assert ops(merge_transposes(chain((4, 9), (1, 0), (6, 6), (1, 0)))) == [
        "Transpose",
        "Reshape",
        "Transpose",
    ]


def test_what_others_read_stays() -> None:
    assert (
        ops(merge_transposes(chain((1, 12, 8, 32), (0, 1, 3, 2), (1, 384, 8), (0, 2, 1), also=True))).count(
            "Transpose"
        )
        == 2
    )
