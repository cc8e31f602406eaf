"""Graphs of every op that layers are formed of, and of those that the hardware lacks: each layer equals the IR's reference bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from automatic_graphs import Writer, assert_same, sample_of

from mace_core.errors import MaceError
from mace_core.ir import DType, Graph, Quant
from mace_core.run.reference import execute
from mace_frontend_ai8x.network import Eltwise, LayerActivation, Operation, Pool
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.legalize.pipeline import legalize_graph
from mace_target_max78000.legalize.tensors import make_storage
from mace_target_max78002.device import MAX78002

DEVICES = pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
SAME = {"pads_before": (1, 1), "pads_after": (1, 1)}

WINDOWS = (
    # kernel, padding before and after, stride, dilation
    ((5, 5), (2, 2), (2, 2), 1, 1),
    ((5, 5), (0, 0), (0, 0), 1, 1),
    ((7, 7), (3, 3), (3, 3), 1, 1),
    ((7, 7), (3, 3), (3, 3), 2, 1),
    ((6, 6), (2, 2), (3, 3), 1, 1),
    ((4, 4), (1, 1), (2, 2), 1, 1),
    ((2, 2), (0, 0), (0, 0), 1, 1),
    ((2, 2), (0, 0), (0, 0), 2, 1),
    ((2, 2), (0, 0), (1, 1), 1, 1),
    ((1, 3), (0, 1), (0, 1), 1, 1),
    ((3, 1), (1, 0), (1, 0), 1, 1),
    ((1, 1), (0, 0), (0, 0), 2, 1),
    ((3, 3), (0, 0), (1, 1), 2, 1),  # as TensorFlow pads an even number of rows
    ((3, 3), (1, 1), (1, 1), 2, 1),
    ((3, 3), (1, 1), (1, 1), 3, 1),
    ((3, 3), (3, 3), (3, 3), 1, 1),
    ((3, 3), (2, 2), (2, 2), 1, 2),
    ((3, 3), (5, 5), (5, 5), 1, 5),
)


@DEVICES
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("inner", [False, True], ids=("input", "inner"))
def test_windows_that_the_hardware_lacks(
    window: tuple[Sequence[int], ...], inner: bool, device: Chip
) -> None:
    kernel, before, after, stride, dilation = window
    w = Writer(2)
    y = x = w.input(16, 17, 3)
    if inner:
        y = w.conv(x, 5, (3, 3), low=0.0, **SAME)
    attrs = {
        "strides": (stride, stride),
        "dilations": (dilation, dilation),
        "pads_before": before,
        "pads_after": after,
    }
    y = w.conv(y, 6, kernel, **attrs)
    formed = assert_same(w.graph(w.conv(y, 4, (1, 1))), device)
    assert all(layer.kernel in ((1, 1), (3, 3)) for layer in formed.layers)
    assert all(max(layer.pad) <= 2 for layer in formed.layers)


@DEVICES
def test_a_pool_joins_the_convolution_behind_it(device: Chip) -> None:
    w = Writer(1)
    y = w.pool(w.conv(w.input(8, 8, 3), 16, (3, 3), low=0.0, **SAME), (2, 2), 2)
    formed = assert_same(w.graph(w.dense(w.conv(y, 8, (3, 3), low=0.0), 10, power=None)), device)
    first, second, last = formed.layers
    assert (first.pool, second.pool) == (None, Pool(False, (2, 2), 2))
    assert (first.activation, last.activation) == (LayerActivation.RELU, LayerActivation.NONE)
    assert (last.operation, last.flatten, last.wide, last.output) == (Operation.LINEAR, True, True, True)


@DEVICES
def test_input_folded_by_the_application(device: Chip) -> None:
    """The first layer of a keyword spotter: kernel 10 x 4, stride 2."""
    w = Writer(2)
    attrs = {"strides": (2, 2), "pads_before": (4, 1), "pads_after": (5, 1)}
    formed = assert_same(w.graph(w.conv(w.input(49, 10, 1), 8, (10, 4), **attrs)), device)
    assert len(formed.layers) == 1
    assert formed.network_input.fold is not None
    assert "folded" in formed.notes[-1]


@DEVICES
def test_depthwise(device: Chip) -> None:
    w = Writer(2)
    y = w.conv(w.input(9, 9, 8), 8, (3, 3), group=8, low=0.0, **SAME)
    y = w.conv(y, 8, (3, 3), group=8, strides=(2, 2), **SAME)
    formed = assert_same(w.graph(w.conv(w.conv(y, 16, (3, 3), group=4), 4, (1, 1))), device)
    assert [layer.groups for layer in formed.layers][:3] == (
        [8, 8, 1] if device.features.depthwise else [1, 1, 1]
    )


@DEVICES
def test_depthwise_as_tensorflow_halves(device: Chip) -> None:
    """Padding behind only: the first result of the hardware is one too many, and is cut off."""
    w = Writer(2)
    y = w.conv(
        w.conv(w.input(8, 8, 3), 8, (3, 3), low=0.0, **SAME),
        8,
        (3, 3),
        group=8,
        strides=(2, 2),
        pads_after=(1, 1),
    )
    formed = assert_same(w.graph(w.conv(y, 4, (1, 1))), device)
    assert (formed.layers[1].groups == 8) == device.features.depthwise


@DEVICES
def test_residual(device: Chip) -> None:
    w = Writer(3)
    a = w.conv(w.input(8, 8, 4), 16, (3, 3), low=0.0, **SAME)
    d = w.one("Relu", [w.one("Add", [a, w.conv(a, 16, (3, 3), **SAME)])])
    formed = assert_same(w.graph(w.conv(d, 8, (3, 3)), w.conv(w.pool(d, (2, 2), 2), 8, (1, 1))), device)
    assert [layer.eltwise for layer in formed.layers].count(Eltwise.ADD) == 1
    assert all(layer.operands == 2 for layer in formed.layers if layer.eltwise)


@DEVICES
@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_pool_and_element_wise_operation_in_either_order(op: str, device: Chip) -> None:
    w = Writer(3)
    x = w.input(8, 8, 4)
    a, b = w.conv(x, 16, (3, 3), **SAME), w.conv(x, 16, (1, 1))
    first = w.conv(w.one(op, [w.pool(a, (2, 2), 2), w.pool(b, (2, 2), 2)]), 8, (3, 3))
    second = w.conv(w.pool(w.one(op, [a, b]), (2, 2), 2), 8, (3, 3))
    formed = assert_same(w.graph(w.one("Add", [first, second])), device)
    joined = [layer for layer in formed.layers if layer.eltwise and layer.pool]
    assert [layer.pool_first for layer in joined if layer.operation is Operation.CONV2D].count(False) == 1


@DEVICES
def test_sum_of_data_in_different_steps(device: Chip) -> None:
    w = Writer(3)
    x = w.input(8, 8, 4)
    a, b = w.conv(x, 16, (3, 3), power=-5, **SAME), w.conv(x, 16, (1, 1))
    c = w.build.one("Add", [a, b], outputs=[w.build.reserve_output("sum", make_storage(-7))])
    formed = assert_same(w.graph(c), device)
    assert formed.layers[-1].inputs == (0, 1)
    assert formed.layers[-1].eltwise is None


@DEVICES
@pytest.mark.parametrize("channels", [(16, 16), (5, 7)], ids=str)
def test_concatenation(channels: tuple[int, int], device: Chip) -> None:
    w = Writer(3)
    x = w.input(8, 8, 4)
    a, b = w.conv(x, channels[0], (3, 3), **SAME), w.conv(x, channels[1], (1, 1))
    c = w.one("Concat", [a, b, x], {"axis": 3})
    formed = assert_same(w.graph(w.conv(w.pool(c, (2, 2), 2), 8, (3, 3)), w.dense(c, 9)), device)
    widths = [
        formed.layers[i].out_channels
        for layer in formed.layers
        if len(layer.inputs) > 1
        for i in layer.inputs[:-1]
    ]
    assert all(width % 4 == 0 for width in widths)


@DEVICES
def test_lines(device: Chip) -> None:
    w = Writer(3)
    a = w.conv(w.input(40, 70), 80, (3,), pads_before=(1,), pads_after=(1,), low=0.0)
    b = w.pool(w.conv(a, 16, (5,), pads_before=(2,), pads_after=(2,)), (2,), 2)
    c = w.conv(b, 8, (5,), strides=(2,), pads_before=(2,), pads_after=(2,))
    c = w.conv(w.conv(c, 8, (2,), dilations=(3,)), 8, (1,))
    formed = assert_same(w.graph(w.dense(c, 10)), device)
    lines = [layer for layer in formed.layers if layer.operation is Operation.CONV1D]
    assert lines
    assert device.features.wide_padded_conv1d or all(
        layer.channels <= 64 or layer.pad == (0, 0) for layer in lines
    )


@DEVICES
def test_transposed(device: Chip) -> None:
    w = Writer(3)
    up = {"op": "ConvTranspose", "strides": (2, 2)}
    a = w.conv(w.input(6, 6, 4), 16, (3, 3), output_padding=(1, 1), **SAME, **up)
    b = w.conv(a, 8, (2, 2), **up)
    c = w.conv(w.pool(b, (2, 2), 2), 8, (3, 3), **SAME, **up)
    d = w.conv(c, 4, (3, 3), op="ConvTranspose", **SAME)
    sizes = {
        "sizes": (1, *(2 * n for n in w.shape(d)[1:3]), 4),
        "scales": (1.0, 2.0, 2.0, 1.0),
        "coordinates": "asymmetric",
        "nearest": "floor",
    }
    formed = assert_same(w.graph(w.conv(w.one("Resize", [d], sizes), 4, (3, 3))), device)
    doubling = [layer for layer in formed.layers if layer.operation is Operation.CONV_TRANSPOSE2D]
    assert len(doubling) >= 4
    assert all(layer.pool is None and layer.stride == 1 for layer in doubling)


@DEVICES
def test_pools_with_padding_and_over_everything(device: Chip) -> None:
    w = Writer(3)
    a = w.conv(w.input(13, 13, 4), 16, (3, 3), low=0.0)
    b = w.pool(w.pool(a, (3, 3), 2, **SAME), (3, 3), 2, pads_after=(1, 1))
    c = w.one("ReduceMax", [w.conv(b, 4, (1, 1))], {"axes": (1, 2), "keepdims": False})
    assert_same(w.graph(w.dense(c, 3)), device)


@DEVICES
def test_activations_of_their_own(device: Chip) -> None:
    w = Writer(3)
    a = w.one("Relu", [w.pool(w.input(13, 13, 4), (2, 2), 2)])
    b = w.one("Abs", [w.conv(a, 8, (3, 3))])
    c = w.one("Abs", [w.pool(b, (2, 2), 2)])
    formed = assert_same(w.graph(w.conv(c, 4, (1, 1))), device)
    assert [layer.activation for layer in formed.layers].count(LayerActivation.ABS) == 2


@DEVICES
def test_limit_below_the_greatest_step(device: Chip) -> None:
    w = Writer(3)
    a = w.conv(w.input(8, 8, 4, power=-4), 16, (3, 3), low=0.0, high=6.0, gain=2)
    graph = w.graph(w.conv(a, 4, (1, 1)))
    assert execute(graph, {"x": sample_of(graph)})[graph.nodes[0].outputs[0]].max() == 96
    assert_same(graph, device)


@DEVICES
def test_more_than_64_channels(device: Chip) -> None:
    w = Writer(3)
    a = w.conv(w.input(6, 6, 80), 130, (3, 3))
    formed = assert_same(w.graph(w.dense(w.pool(a, (2, 2), 2), 70)), device)
    alone = formed.layers[1]
    assert alone.operation is (Operation.PASSTHROUGH if device.features.wide_pools else Operation.CONV2D)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_weights_take_the_fewest_bits(bits: int) -> None:
    w = Writer(bits)
    formed = assert_same(w.graph(w.conv(w.input(6, 6, 8), 16, (3, 3), bits=bits)), MAX78000)
    assert formed.layers[0].weights is not None
    assert formed.layers[0].weights.bits == bits


def test_binary_weights_of_the_second_generation() -> None:
    w = Writer()
    signs = np.where(np.random.default_rng(0).random((4, 3, 3, 8)) < 0.5, -1, 1).astype(np.int8)
    attrs = {"strides": (1, 1), "dilations": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0)}
    weight = w.build.weight("w", signs, Quant.of(2.0**-5))
    graph = w.graph(
        w.build.one(
            "Conv", [w.input(6, 6, 8), weight], attrs, outputs=[w.build.reserve_output("y", make_storage(-7))]
        )
    )
    results = [legalize_graph(graph, device).layers[0].weights for device in (MAX78000, MAX78002)]
    assert [(f.bits, f.binary) for f in results if f] == [(2, False), (1, True)]


def test_every_fault_is_told_at_once() -> None:
    w = Writer()
    x = w.input(20, 20, 4)
    a = w.conv(x, 4, (3, 3), strides=(2, 1), **SAME)
    b = w.pool(w.conv(x, 4, (3, 3)), (17, 17), 17)
    c = w.one("Sigmoid", [w.conv(x, 4, (1, 1))])
    d = w.one("Mul", [c, w.conv(c, 4, (1, 1))])
    graph = w.graph(w.conv(a, 4, (1, 1)), w.conv(b, 4, (1, 1)), w.conv(d, 4, (1, 1)))
    with pytest.raises(MaceError) as error:
        legalize_graph(graph, MAX78000)
    told = str(error.value).splitlines()
    assert sum("strides" in line for line in told) == 1
    assert sum("at most 16" in line for line in told) == 1
    first = [line for line in told if "Conv" in line and "strides [2, 1]" in line]
    assert first
    assert all(": " in line and ";" in line for line in told)


def test_operations_that_the_hardware_lacks_are_named() -> None:
    w = Writer()
    c = w.one("Sigmoid", [w.conv(w.input(20, 20, 4), 4, (1, 1))])
    graph = w.graph(w.conv(w.one("Mul", [c, c]), 4, (1, 1)))
    with pytest.raises(MaceError, match=r"(?s)\(Sigmoid\): .*\(Mul\): "):
        legalize_graph(graph, MAX78000)


def test_what_the_application_does_is_told() -> None:
    w = Writer()
    y = w.dense(w.input(4, 4, 3), 10, power=None)
    formed = legalize_graph(w.graph(w.build.one("Softmax", [y])), MAX78000)
    assert "the application computes Softmax of the results" in formed.notes
    assert "divided by 0.0078125" in formed.notes[0]


def test_two_inputs_are_refused() -> None:
    w = Writer()
    x = w.input(4, 4, 3)
    other = w.build.input("other", DType.I8, (1, 4, 4, 3), make_storage(-7).quant)
    graph: Graph = w.graph(w.one("Add", [x, other]))
    with pytest.raises(MaceError, match="2 inputs"):
        legalize_graph(graph, MAX78000)
