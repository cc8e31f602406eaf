"""Where a graph's input becomes the network's: what the application does with it, and how it is folded."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant
from mace_target_max78000.legalize.boundary import AxisFold, InputFold, NetworkInput, cut_input
from mace_target_max78000.legalize.tensors import make_storage

PLAIN = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}


def from_channels_first(second_input: bool = False) -> Graph:
    """Real numbers, channels first, that are rounded and turned before a convolution of single pixels reads them."""
    new = Builder("g")
    x = new.input("x", DType.F32, (1, 2, 3, 2))
    rounded = new.one("Quantize", [x], outputs=[new.reserve_output("q", make_storage(-5))])
    turned = new.one("Transpose", [rounded], {"perm": (0, 2, 3, 1)})
    filters = new.weight("w", np.ones((4, 1, 1, 2), np.int8), Quant.of(2.0**-7))
    outputs = [new.reserve_output("y", make_storage(-5))]
    y = new.one("Conv", [turned, filters], PLAIN, outputs=outputs)
    return new.finish([y, new.input("z", DType.F32, (1,))] if second_input else [y])


def test_what_the_application_does_is_cut_off() -> None:
    graph = from_channels_first()
    inner, network_input = cut_input(graph)
    assert [node.op.name for node in inner.nodes] == ["Conv"]
    assert inner.inputs == (graph.nodes[-1].inputs[0],)
    assert inner.outputs == graph.outputs
    assert (network_input.name, network_input.power, network_input.fold) == ("x", -5, None)
    assert network_input.order.tolist() == np.arange(12).reshape(1, 2, 3, 2).transpose(0, 2, 3, 1).tolist()
    values = np.arange(-6, 6, dtype=np.float32).reshape(1, 2, 3, 2) / 32
    assert network_input.apply(values).tolist() == np.arange(-6, 6).reshape(2, 3, 2).tolist()


def test_an_input_that_a_layer_reads_stays() -> None:
    new = Builder("g")
    x = new.input("x", DType.I8, (1, 3), Quant.of(0.25))
    graph = new.finish([new.one("Relu", [x], outputs=[new.reserve_output("y", make_storage(-2))])])
    inner, network_input = cut_input(graph)
    assert inner is graph
    assert (network_input.power, network_input.order.tolist()) == (-2, [[0, 1, 2]])


def test_inputs_that_are_none_of_the_accelerator() -> None:
    with pytest.raises(MaceError, match="g: it has 2 inputs, and the accelerator takes one; join them"):
        cut_input(from_channels_first(second_input=True))
    new = Builder("g")
    x = new.input("x", DType.I8, (1, 3), Quant.of(0.3))
    graph = new.finish([new.one("Relu", [x], outputs=[new.reserve_output("y", make_storage(-2))])])
    with pytest.raises(
        MaceError, match=r"g: input 'x': it is stored as .*; quantize the graph for this target"
    ):
        cut_input(graph)


def test_numbers_are_rounded_and_limited_where_they_are_no_bytes() -> None:
    whole = NetworkInput("x", -1, np.array([[2, 1, 0]]))
    assert whole.apply(np.array([0.5, -1.25, 900])).reshape(-1).tolist() == [127, -2, 1]
    assert whole.apply(np.array([1, 2, 3], np.int8)).shape == (3, 1, 1)
    assert whole.notes == (
        "the input 'x' is loaded as signed bytes: values divided by 0.5, rounded, limited to -128 ... 127",
    )


def test_copies_of_an_axis_in_steps() -> None:
    """Of the elements 10 to 14 the first copy has those at -1, 1 and 3, of which one is outside, the other 0, 2 and 4."""
    fold = InputFold((AxisFold(2, (-1, 0), 3),))
    assert fold.apply(np.arange(10, 15).reshape(1, 5, 1)).tolist() == [[[0, 10], [11, 12], [13, 14]]]
    assert (
        str(fold) == "its channels are copies, moved and taken in steps (axis 0: 3 elements at 2 i + [-1, 0])"
    )
    note = NetworkInput("x", 0, np.arange(5).reshape(1, 5, 1), fold).notes[1]
    assert note == f"the input 'x' is folded: {fold}"


def test_copies_of_two_axes_lie_before_the_channels() -> None:
    rows, columns = AxisFold(1, (0, 1), 1), AxisFold(2, (0, 1), 2)
    x = np.arange(2 * 4 * 2).reshape(1, 2, 4, 2)
    folded = InputFold((rows, columns)).apply(x)
    assert folded.shape == (1, 1, 2, 8)
    copies = list(product((0, 1), repeat=3))
    for v in (0, 1):
        # The channels of a position: by the row's copy, then the column's, then the channel.
        expected = [x[0, row, 2 * v + move, c] for row, move, c in copies]
        assert folded[0, 0, v].tolist() == expected
