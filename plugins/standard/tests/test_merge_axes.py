"""Transposes and Slices of more than four axes between two Reshapes."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant
from mace_core.run.reference import execute
from mace_transform_standard.cleanup.merge_axes import merge_axes

Shape = tuple[int, ...]


def build_move(shape: Shape, op: str, attrs: dict[str, Shape], quant: Quant | None = None) -> Graph:
    """A vector that is reshaped, moved, and reshaped to a vector."""
    builder = Builder("moved")
    x = builder.input("x", DType.I8, (prod(shape),), quant)
    y = builder.one(op, [builder.one("Reshape", [x], {"shape": shape})], attrs)
    count = prod(builder.shape(y))
    return builder.finish([builder.one("Reshape", [y], {"shape": (count,)})])


def rank(graph: Graph, op: str) -> int:
    (node,) = (node for node in graph.nodes if node.op.name == op)
    return len(graph.tensors[node.inputs[0]].shape)


def check(graph: Graph, merged: Graph) -> None:
    """Each element is a distinct number, so an element in a wrong position is found."""
    inputs = {"x": np.arange(prod(graph.tensors["x"].shape)).astype(np.int8)}
    np.testing.assert_array_equal(*(execute(g, inputs)[g.outputs[0]] for g in (graph, merged)))


@pytest.mark.parametrize(
    ("shape", "perm", "axes"),
    [
        ((1, 3, 4, 2, 5), (0, 1, 2, 4, 3), 3),
        ((1, 2, 5, 3, 1), (0, 2, 1, 3, 4), 3),
        ((1, 2, 2, 3, 3, 2), (0, 3, 1, 4, 2, 5), 5),
        ((2, 1, 1, 3, 1), (3, 2, 1, 0, 4), 2),
        ((1, 1, 1, 1, 1), (4, 3, 2, 1, 0), 1),
        ((2, 3, 2, 2, 2), (2, 3, 4, 0, 1), 2),
    ],
)
def test_axes_that_stay_neighbors_are_one(shape: Shape, perm: Shape, axes: int) -> None:
    graph = build_move(shape, "Transpose", {"perm": perm})
    merged = merge_axes(graph)
    check(graph, merged)
    assert rank(merged, "Transpose") == axes
    assert [node.op.name for node in merged.nodes] == ["Reshape", "Transpose", "Reshape"]


@pytest.mark.parametrize(
    ("shape", "starts", "sizes", "steps", "axes"),
    [
        ((1, 4, 3, 2, 5), (0, 0, 1, 0, 0), (1, 4, 1, 2, 5), (1, 1, 1, 1, 1), 2),
        ((1, 4, 3, 2, 5), (0, 1, 1, 0, 0), (1, 2, 2, 2, 5), (1, 1, 1, 1, 1), 2),
        ((2, 4, 1, 2, 5), (0, 3, 0, 0, 0), (2, 2, 1, 2, 5), (1, -2, 1, 1, 1), 3),
        ((2, 4, 1, 2, 5), (0, 0, 0, 0, 0), (2, 4, 1, 2, 5), (1, 1, 1, 1, 1), 1),
        ((2, 4, 1, 2, 5), (0, 0, 0, 0, 4), (2, 4, 1, 0, 1), (1, 1, 1, 1, 1), 3),
        ((1, 1, 1, 1, 1), (0, 0, 0, 0, 0), (1, 1, 1, 1, 1), (1, 1, 1, 1, 1), 1),
    ],
)
def test_axes_that_are_taken_whole_are_one(
    shape: Shape, starts: Shape, sizes: Shape, steps: Shape, axes: int
) -> None:
    graph = build_move(shape, "Slice", {"starts": starts, "sizes": sizes, "steps": steps})
    merged = merge_axes(graph)
    check(graph, merged)
    assert rank(merged, "Slice") == axes


@pytest.mark.parametrize("seed", range(40))
def test_random_moves_keep_every_element(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(int(d) for d in random.integers(1, 4, int(random.integers(5, 7))))
    if seed % 2:
        attrs = {"perm": tuple(int(axis) for axis in random.permutation(len(shape)))}
        graph = build_move(shape, "Transpose", attrs)
    else:
        sizes = tuple(int(random.choice([d, random.integers(1, d + 1)])) for d in shape)
        starts = tuple(int(random.integers(0, d - n + 1)) for d, n in zip(shape, sizes, strict=True))
        graph = build_move(shape, "Slice", {"starts": starts, "sizes": sizes, "steps": (1,) * len(shape)})
    check(graph, merge_axes(graph))


def test_the_storage_of_elements_stays() -> None:
    graph = build_move((1, 3, 4, 2, 5), "Transpose", {"perm": (0, 1, 2, 4, 3)}, Quant.of(0.5, 3))
    merged = merge_axes(graph)
    assert len({tensor.storage for tensor in merged.tensors.values()}) == 1
    assert merged.tensors[merged.outputs[0]] == graph.tensors[graph.outputs[0]]


def test_what_is_read_with_all_its_axes_stays() -> None:
    builder = Builder("read")
    x = builder.input("x", DType.F32, (120,))
    turned = builder.one(
        "Transpose", [builder.one("Reshape", [x], {"shape": (1, 3, 4, 2, 5)})], {"perm": (0, 1, 2, 4, 3)}
    )
    graph = builder.finish([builder.one("Reshape", [turned], {"shape": (120,)}), turned])
    assert merge_axes(graph).nodes == graph.nodes


@pytest.mark.parametrize(
    ("shape", "perm"), [((3, 4, 2, 5), (0, 1, 3, 2)), ((2, 3, 2, 3, 2), (4, 3, 2, 1, 0))]
)
def test_four_axes_and_axes_that_all_part_stay(shape: Shape, perm: Shape) -> None:
    graph = build_move(shape, "Transpose", {"perm": perm})
    assert merge_axes(graph).nodes == graph.nodes


def test_no_element_is_left_alone() -> None:
    graph = build_move((1, 0, 4, 2, 5), "Transpose", {"perm": (0, 1, 2, 4, 3)})
    assert merge_axes(graph).nodes == graph.nodes
