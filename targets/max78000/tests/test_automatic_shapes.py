"""Graphs whose shapes, types or last nodes the accelerator does not have: each is refused by name, with what to do, or made right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from automatic_graphs import Writer, sample_of

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run.reference import execute
from mace_target_max78000.design import DesignedNetwork, design_network
from mace_target_max78000.device import MAX78000
from mace_target_max78000.firmware.tensor_words import TensorBinding
from mace_target_max78000.legalize.pipeline import legalize_graph
from mace_target_max78000.options import Options
from mace_target_max78000.quantize.plan import QuantizationPolicy


def designed(graph: Graph) -> DesignedNetwork:
    return design_network(graph, (), MAX78000, Options(), QuantizationPolicy())


def matrix(*shape: int) -> Graph:
    """A graph of real numbers that multiplies data of a shape by a matrix."""
    new = Builder("graph")
    x = new.input("x", DType.F32, shape)
    w = new.weight("w", np.ones((shape[-1], 3), np.float32))
    return new.finish([new.one("MatMul", [x, w])])


def one(op: str, *shape: int) -> Graph:
    """A graph of one op over real numbers of a shape."""
    new = Builder("graph")
    return new.finish([new.one(op, [new.input("x", DType.F32, shape)])])


@pytest.mark.parametrize(
    "graph", [matrix(3, 8), matrix(2, 3, 8), one("Abs", 2, 3, 5), one("Relu", 2, 4, 4, 3)], ids=str
)
def test_batches_are_refused(graph: Graph) -> None:
    with pytest.raises(
        MaceError,
        match=r"a batch of [23], and the accelerator computes one sample at a time; give the model a batch of 1",
    ):
        designed(graph)


@pytest.mark.parametrize(
    "graph", [matrix(8), one("Relu", 7), one("Relu"), one("Relu", 1, 2, 3, 4, 5)], ids=str
)
def test_numbers_of_axes_that_no_layer_has_are_refused(graph: Graph) -> None:
    with pytest.raises(MaceError, match=r"its data has the shape .*; give it one image, line or row"):
        designed(graph)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3,), r"its data has the shape \[3\]; give it one image, line or row"),
        ((1, 3), r"\(MatMul\): its weights are a vector; give them two axes, \[channels, 1\]$"),
    ],
)
def test_a_product_with_a_vector_is_refused(shape: tuple[int, ...], message: str) -> None:
    """The result of two vectors has no axis of channels."""
    new = Builder("graph")
    x, w = new.input("x", DType.F32, shape), new.weight("w", np.ones(3, np.float32))
    with pytest.raises(MaceError, match=message):
        designed(new.finish([new.one("MatMul", [x, w])]))


def test_a_matrix_over_an_image_is_refused() -> None:
    with pytest.raises(
        MaceError, match="its data has 4 axes, and the hardware has MatMul for other data only; use images"
    ):
        designed(matrix(1, 2, 3, 8))


def test_two_matrices_of_data_are_refused() -> None:
    new = Builder("graph")
    x = new.input("x", DType.F32, (1, 2, 3, 4))
    turned = new.one("Transpose", [x], {"perm": (0, 1, 3, 2)})
    # The end of the text: that the output depends on it is not reported again.
    with pytest.raises(MaceError, match=r"those of the hardware are constant; compute it outside$"):
        designed(new.finish([new.one("MatMul", [x, turned])]))


def test_a_batch_made_on_the_way_is_refused_where_it_is_read() -> None:
    w = Writer()
    y = w.conv(w.input(4, 4, 3), 4, (1, 1))
    joined = w.build.one(
        "Concat", [y, y], {"axis": 0}, outputs=[w.build.reserve_output("y", w.build.tensors[y].storage)]
    )
    with pytest.raises(MaceError, match=r"\(Conv\): its data has a batch of 2"):
        legalize_graph(w.graph(w.conv(joined, 4, (1, 1))), MAX78000)


def test_a_single_number_is_refused() -> None:
    new = Builder("graph")
    total = new.one("ReduceSum", [new.input("x", DType.F32, (1, 4))], {"axes": (0, 1), "keepdims": False})
    with pytest.raises(MaceError, match=r"single number without channels|no such operation"):
        designed(new.finish([total]))


def test_sums_of_indices_are_refused() -> None:
    new = Builder("graph")
    x = new.input("x", DType.F32, (1, 4, 7))
    place = new.one("Cast", [new.one("ArgMax", [x], {"axis": -1, "keepdims": False})], {"to": "i32"})
    with pytest.raises(
        MaceError, match=r"\(Sub\): its result is .*i32.*, and the hardware computes signed bytes"
    ):
        designed(new.finish([new.one("Sub", [place, place])]))


def test_constant_outputs_are_refused() -> None:
    new = Builder("graph")
    x = new.input("x", DType.F32, (1, 4, 4, 3))
    constant = new.one("Identity", [new.weight("c", np.arange(3, dtype=np.float32))])
    with pytest.raises(MaceError, match=r"\(Identity\): it makes an output of a constant; leave"):
        designed(new.finish([new.one("Relu", [x]), constant]))


def test_results_of_other_types_are_refused() -> None:
    w = Writer()
    y = w.dense(w.input(4, 4, 3), 10, power=None)
    with pytest.raises(MaceError, match=r"\(Cast\): it makes i32 of results"):
        legalize_graph(w.graph(w.build.one("Cast", [y], {"to": "i32"})), MAX78000)


def fed(graph: Graph) -> None:
    """Compare the outputs that the application makes of results with the reference's."""
    result = designed(graph)
    feed = TensorBinding.of(result.network, result.options, [2.0**-7] * 4).with_ends(result.legalized)
    values = execute(graph, {graph.inputs[0]: sample_of(graph)})
    inner = [result.legalized.tensors[i] for i, layer in enumerate(result.legalized.layers) if layer.output]
    blocks = [
        np.moveaxis(values[t].astype(np.float64), -1, 0).reshape(values[t].shape[-1], -1) for t in inner
    ]
    for name, found in zip(graph.outputs, feed.results(blocks), strict=True):
        np.testing.assert_allclose(found, values[name], atol=1e-6)


ENDS: dict[str, Callable[[Builder, str], str]] = {
    "reshape": lambda b, y: b.one("Reshape", [b.one("Softmax", [y])], {"shape": (1, 16, 6)}),
    "transpose": lambda b, y: b.one("Transpose", [b.one("Softmax", [y])], {"perm": (0, 3, 1, 2)}),
    "rows": lambda b, y: b.one("Transpose", [b.one("Softmax", [y], {"axis": 1})], {"perm": (0, 2, 1, 3)}),
    "concat": lambda b, y: b.one("Concat", [b.one("Softmax", [y]), b.one("Softmax", [y])], {"axis": 1}),
    "sigmoid": lambda b, y: b.one("Concat", [b.one("Sigmoid", [y]), b.one("Sigmoid", [y])], {"axis": 3}),
}
REFUSED: dict[str, Callable[[Builder, str], str]] = {
    "flat": lambda b, y: b.one("Reshape", [b.one("Softmax", [y])], {"shape": (1, 96)}),
    "joined": lambda b, y: b.one("Concat", [b.one("Softmax", [y]), b.one("Softmax", [y])], {"axis": 3}),
    "mixed": lambda b, y: b.one("Concat", [y, b.one("Sigmoid", [y])], {"axis": 3}),
}


@pytest.mark.parametrize("end", ENDS)
def test_functions_before_the_last_order_are_computed_along_their_axis(end: str) -> None:
    w = Writer()
    y = w.conv(w.input(4, 4, 3), 6, (1, 1))
    fed(w.graph(ENDS[end](w.build, y)))


@pytest.mark.parametrize("end", REFUSED)
def test_functions_that_the_last_order_mixes_are_refused(end: str) -> None:
    w = Writer()
    y = w.conv(w.input(4, 4, 3), 6, (1, 1))
    with pytest.raises(
        MaceError, match=r"rearranges the axis that a Softmax|different functions are computed"
    ):
        fed(w.graph(REFUSED[end](w.build, y)))
