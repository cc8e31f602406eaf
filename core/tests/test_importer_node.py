"""A node as its handler sees it: axes, constants, and the nodes of the IR that are made for it."""

from __future__ import annotations

import numpy as np
import pytest
from importer_example import ExampleImporter, ExampleNode, ones

from mace_core.importer import RefusedError, to_first, to_last


@pytest.fixture
def node() -> ExampleNode:
    return ExampleNode(ExampleImporter(), "Split", arrays={1: np.array([[4, -1]], np.int16)})


def test_axes_count_from_either_end(node: ExampleNode) -> None:
    assert [node.axis(axis, 3) for axis in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    for axis in (-4, 3):
        with pytest.raises(RefusedError, match=f"axis {axis} of a tensor of rank 3"):
            node.axis(axis, 3)
    with pytest.raises(RefusedError):
        node.axis(0, 0)


def test_a_constant_is_read_and_what_is_computed_is_refused(node: ExampleNode) -> None:
    assert node.ints(1, "shape") == (4, -1)
    assert all(type(value) is int for value in node.ints(1, "shape"))
    with pytest.raises(
        RefusedError, match=r"its shape \(input 0\) is computed at run time; save the model with a constant"
    ):
        node.ints(0, "shape")


def test_results_inside_are_named_after_the_node_and_numbered(node: ExampleNode) -> None:
    assert node.emit("Relu", ["x"]) == "Split-of-y/inner"
    assert node.emit("Relu", ["x"], tag="positive") == "Split-of-y/positive"
    assert node.emit("Relu", ["x"], tag="positive") == "Split-of-y/positive.1"
    halves = node.emit_all("Split", ["x"], {"axis": 3, "sizes": (2, 3)}, tag="half", count=2)
    assert halves == ("Split-of-y/half-0", "Split-of-y/half-1")
    assert {n.sources for n in node.builder.nodes} == {("Split-of-y",)}


def test_the_last_node_bears_the_names_of_the_file(node: ExampleNode) -> None:
    assert node.done("Relu", ["x"]) == ("y",)
    assert node.done(node.builder.ops["Relu"], ["x"]) == ("y.1",)


def test_steps_of_a_decomposition_are_added_in_order(node: ExampleNode) -> None:
    steps = [("Relu", {}), ("Transpose", {"perm": (3, 2, 1, 0)})]
    assert node.builder.shape(node.emit_steps(steps, "x")) == (5, 4, 2, 1)
    assert node.done_steps(steps, "x") == ("y",)
    assert [n.op.name for n in node.builder.nodes] == ["Relu", "Transpose"] * 2
    assert node.emit_steps([], "x") == "x"


def test_images_are_turned_channels_last_and_back(node: ExampleNode) -> None:
    last = node.channels_last("x")
    assert node.builder.shape(last) == (1, 4, 5, 2)
    assert node.channels_first(last) == ("y",)
    assert node.builder.shape("y") == node.builder.shape("x")
    flat = node.emit("Reshape", ["x"], {"shape": (2, 20)})
    with pytest.raises(
        RefusedError, match="its input has rank 2; it needs a batch, channels and spatial axes"
    ):
        node.channels_last(flat)


def test_the_permutations_undo_each_other() -> None:
    for rank in (3, 4, 5):
        assert [to_last(rank)[i] for i in to_first(rank)] == list(range(rank))


def test_constants_are_named_after_the_node(node: ExampleNode) -> None:
    weights = node.builder.weights
    assert node.add_float([1, 2]) == "Split-of-y/constant"
    assert weights["Split-of-y/constant"].dtype == np.float32
    assert node.add_constant(ones(2).astype(np.int8), tag="places") == "Split-of-y/places"
    assert weights["Split-of-y/places"].dtype == np.int8


@pytest.mark.parametrize(("rank", "is_taken"), [(2, False), (3, True), (4, True)])
def test_an_image_has_a_batch_channels_and_spatial_axes(node: ExampleNode, rank: int, is_taken: bool) -> None:
    tensor = node.builder.weight("image", np.zeros((1, 2, 3, 4)[:rank], np.float32))
    if is_taken:
        assert node.builder.shape(node.channels_last(tensor)) == (1, *(1, 2, 3, 4)[2:rank], 2)
        return
    with pytest.raises(
        RefusedError, match="its input has rank 2; it needs a batch, channels and spatial axes"
    ):
        node.channels_last(tensor)
