"""layout: which axes are which when a tensor is reshaped, and what may stand beside a transposed operand."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pytest
from expressions import Expressions, ops_after

from mace_core.ir import Shape
from mace_transform_standard.layout.axis_groups import axis_groups
from mace_transform_standard.layout.layout import layout

Groups: TypeAlias = list[tuple[list[int], list[int]]]
"""Axes before a reshape, and the axes after it that hold the same elements."""


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
def test_axes_are_grouped_as_small_as_can_be(before: Shape, after: Shape, groups: Groups | None) -> None:
    assert axis_groups(before, after) == groups


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1)])
def test_a_single_element_is_the_same_in_every_order(shape: Shape) -> None:
    e = Expressions(0)
    moved = e("Transpose", e("Sin", e.input(2, 3, 4, 5)), perm=(0, 2, 3, 1))
    ops = ops_after([layout], e.graph(e("Add", moved, e.input(*shape))))
    assert ops.index("Add") < ops.index("Transpose")


def test_two_elements_keep_a_transpose_where_it_is() -> None:
    e = Expressions(0)
    moved = e("Transpose", e("Sin", e.input(3, 2, 4, 5)), perm=(0, 2, 3, 1))
    graph = e.graph(e("Add", moved, e.input(2)))
    assert ops_after([layout], graph) == [n.op.name for n in graph.nodes]


@pytest.mark.parametrize(
    ("shapes", "perm", "ops"),
    [
        # The Reshape comes first wherever it then moves nothing, whatever order the axes end in.
        (((4, 6), (2, 3, 4)), (1, 0), ["Reshape", "Transpose"]),
        (((2, 3, 4, 5), (2, 20, 3)), (0, 2, 3, 1), ["Reshape", "Transpose"]),
        (((2, 3, 4, 5), (2, 2, 2, 5, 3)), (0, 2, 3, 1), ["Reshape", "Transpose"]),
        (((1, 4, 5), (5, 4)), (2, 0, 1), ["Reshape", "Transpose"]),
        # Axes that were apart are merged: a Transpose stays before, worth it only for channels last to first.
        (((2, 3, 4, 5), (2, 20, 3)), (0, 3, 2, 1), ["Transpose", "Reshape", "Transpose"]),
        (((2, 3, 4, 5, 6), (2, 30, 3, 4)), (0, 4, 3, 1, 2), ["Transpose", "Reshape", "Transpose"]),
        (((2, 2, 3, 2, 3, 2), (2, 6, 2, 3, 2)), (0, 5, 4, 1, 2, 3), ["Transpose", "Reshape", "Transpose"]),
        (((2, 3, 4, 5, 6), (2, 30, 4, 3)), (0, 4, 3, 2, 1), ["Transpose", "Reshape"]),
        (((2, 3, 4), (12, 2)), (2, 1, 0), ["Transpose", "Reshape"]),
        (((2, 3, 4), (3, 8)), (2, 1, 0), ["Transpose", "Reshape"]),
        # All axes together, in their order or not.
        (((2, 3), (6,)), (1, 0), ["Transpose", "Reshape"]),
        (((1, 4, 5), (20,)), (1, 0, 2), ["Transpose", "Reshape"]),
        # Axes of no elements belong to no groups.
        (((0, 3, 4), (12, 0)), (1, 0, 2), ["Transpose", "Reshape"]),
    ],
)
def test_a_reshape_before_or_behind_a_transpose(
    shapes: tuple[Shape, Shape], perm: tuple[int, ...], ops: list[str]
) -> None:
    e = Expressions(0)
    graph = e.graph(e("Reshape", e("Transpose", e("Sin", e.input(*shapes[0])), perm=perm), shape=shapes[1]))
    assert ops_after([layout], graph, 0) == ["Sin", *ops]


@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (0, 1, 3, 2), (0, 3, 2, 1)])
def test_operands_of_other_roles_keep_a_transpose_where_it_is(perm: tuple[int, ...]) -> None:
    e = Expressions(0)
    moved = e("Transpose", e("Sin", e.input(2, 5, 5, 5)), perm=perm)
    graph = e.graph(
        e("GatherElements", moved, e.array(np.arange(625).reshape(5, 5, 5, 5)[:2] % 5, "i8"), axis=1)
    )
    assert ops_after([layout], graph, 0) == [n.op.name for n in graph.nodes]


def test_an_op_of_several_results_has_a_transpose_behind_each() -> None:
    e = Expressions(0)
    moved = e("Transpose", e("Sin", e.input(2, 5, 6, 4)), perm=(0, 3, 1, 2))
    parts = e.new.add("Split", [moved], {"axis": 1, "sizes": (1, 3)}, outputs=2)
    assert ops_after([layout], e.graph(*parts), 0) == ["Sin", "Split", "Transpose", "Transpose"]


def test_transposes_of_different_orders_stay_apart() -> None:
    e = Expressions(0)
    x = e("Sin", e.input(3, 3, 3))
    graph = e.graph(e("Add", e("Transpose", x, perm=(1, 0, 2)), e("Transpose", x, perm=(0, 2, 1))))
    assert ops_after([layout], graph, 0) == [n.op.name for n in graph.nodes]
    same = e.graph(e("Add", e("Transpose", x, perm=(1, 0, 2)), e("Transpose", e("Neg", x), perm=(1, 0, 2))))
    assert ops_after([layout], same, 0) == ["Sin", "Neg", "Add", "Transpose"]


@pytest.mark.parametrize("along", [(4,), (3, 1), (1, 5, 1, 1), (2, 1, 1, 1), (2, 5, 3, 4)])
def test_a_constant_beside_a_transposed_operand_is_turned(along: tuple[int, ...]) -> None:
    e = Expressions(0)
    moved = e("Transpose", e("Sin", e.input(2, 3, 4, 5)), perm=(0, 3, 1, 2))
    ops = ops_after([layout], e.graph(e("Sub", moved, e.constant(*along))), 1e-6)
    assert ops.index("Sub") == len(ops) - 2
    assert ops[-1] == "Transpose"
