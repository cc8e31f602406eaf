"""layout: which axes are which when a tensor is reshaped, and what may stand beside a transposed operand."""

from __future__ import annotations

from typing import Any

import pytest

from mace_transform_standard.layout.axis_groups import axis_groups
from mace_transform_standard.layout.layout import layout


@pytest.mark.parametrize(
    ("before", "after", "groups"),
    [
        ((2, 3), (2, 3), [([0], [0]), ([1], [1])]),
        ((6, 4), (2, 3, 4), [([0], [0, 1]), ([1], [2])]),
        ((2, 3, 4), (6, 4), [([0, 1], [0]), ([2], [1])]),
        ((1, 6), (6, 1), [([0], []), ([1], [0]), ([], [1])]),
        ((1, 1, 5), (5,), [([0], []), ([1], []), ([2], [0])]),
        ((5,), (1, 1, 5), [([], [0]), ([], [1]), ([0], [2])]),
        ((1, 3), (1, 3), [([0], [0]), ([1], [1])]),
        ((4, 6), (3, 8), [([0, 1], [0, 1])]),
        ((), (), []),
        ((0, 3), (3, 0), None),
    ],
)
def test_axes_are_grouped_as_small_as_can_be(before: Any, after: Any, groups: Any) -> None:
    assert axis_groups(before, after) == groups


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1)])
def test_a_single_element_is_the_same_in_every_order(expressions: Any, ops_after: Any, shape: Any) -> None:
    e = expressions(0)
    moved = e("Transpose", e("Sin", e.input(2, 3, 4, 5)), perm=(0, 2, 3, 1))
    ops = ops_after([layout], e.graph(e("Add", moved, e.input(*shape))))
    assert ops.index("Add") < ops.index("Transpose")


def test_two_elements_keep_a_transpose_where_it_is(expressions: Any, ops_after: Any) -> None:
    e = expressions(0)
    moved = e("Transpose", e("Sin", e.input(3, 2, 4, 5)), perm=(0, 2, 3, 1))
    graph = e.graph(e("Add", moved, e.input(2)))
    assert ops_after([layout], graph) == [n.op.name for n in graph.nodes]
