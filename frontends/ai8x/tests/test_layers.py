"""Layers of every kind, computed element by element in Python's integers, against the arithmetic and the graph.

The loops below are the vendor's document read word by word: pool, combine, sum products, add 128 times the bias,
shift, round halves up, saturate, activate.  They need neither PyTorch nor the vendor's networks.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import floor
from typing import Any

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.lowering import Lowering, Refused
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.graph import as_any_graph, as_graph
from mace_frontend_ai8x.network import (
    BUFFER,
    INPUT,
    Buffer,
    Eltwise,
    Layer,
    LayerActivation,
    LayerPlacement,
    Network,
    Operation,
    Pool,
    Weights,
)
from mace_frontend_ai8x.options import NetworkOptions

C1, C2, T2 = Operation.CONV1D, Operation.CONV2D, Operation.CONV_TRANSPOSE2D
FC, NO = Operation.LINEAR, Operation.PASSTHROUGH
ADD, SUB = Eltwise.ADD, Eltwise.SUB
RELU, ABS = LayerActivation.RELU, LayerActivation.ABS


def make(
    operation: Operation, dim: tuple[int, int], channels: int = 3, out: int = 4, **changes: Any
) -> Layer:
    """A layer with random weights and biases of its bits."""
    rng, bits = np.random.default_rng(len(changes) + 7 * channels), changes.pop("bits", 8)
    biased = changes.pop("biased", True)
    out = out if operation is not NO else channels
    made = Layer("one", operation, (INPUT,), channels, dim, out, output=True, **changes)
    if operation is NO:
        return made
    values = rng.integers(-(1 << bits - 1), 1 << bits - 1, made.weights_shape)
    bias = rng.integers(-128, 128, out) if biased else None
    return replace(made, weights=Weights(values, bits), bias=bias)


def clip(value: int) -> int:
    return max(-128, min(127, value))


def pooled(layer: Layer, x: Array) -> Array:
    (height, width), (down, right), step = layer.window
    rows, columns = layer.pooled
    result = np.zeros((len(x), rows, columns), object)
    for c, r, k in np.ndindex(*result.shape):
        window = [
            int(x[c, r * step + i * down, k * step + j * right])
            for i, j in product(range(height), range(width))
        ]
        if layer.pool and layer.pool.average:
            # Cut off towards zero, as int() does.
            result[c, r, k] = int(sum(window) / len(window))
        else:
            result[c, r, k] = max(window)
    return result


def tap(layer: Layer, out: int, inner: int, row: int, column: int) -> int:
    """The weight of one tap, in the order of axes that the layer's operation has."""
    assert layer.weights is not None
    values = layer.weights.values
    if layer.operation is T2:
        return int(values[inner, out, row, column])
    return int(values.reshape(*values.shape[:2], *layer.kernel)[out, inner, row, column])


def total(layer: Layer, x: Array, at: tuple[int, int, int]) -> int:
    """The sum of products for one element of the output."""
    assert layer.weights is not None
    out, row, column = at
    if layer.operation is FC:
        values = x.reshape(-1) if layer.flatten else x[:, row, column]
        return sum(int(w) * int(v) for w, v in zip(layer.weights.values[out], values, strict=True))
    sum_, inputs = 0, layer.channels // layer.groups
    for inner, i, j in np.ndindex(inputs, *layer.kernel):
        if layer.operation is T2:
            # Stride 2: position p of the data makes rows 2 p - pad ... 2 p - pad + 2.
            r, c = row + layer.pad[0] - i, column + layer.pad[1] - j
            if r % 2 or c % 2:
                continue
            r, c = r // 2, c // 2
        else:
            r, c = (
                place + tap_ * dilation - pad
                for place, tap_, dilation, pad in zip(
                    (row, column), (i, j), layer.dilation, layer.pad, strict=True
                )
            )
        if 0 <= r < x.shape[1] and 0 <= c < x.shape[2]:
            channel = out if layer.groups > 1 else inner
            sum_ += tap(layer, out, inner, i, j) * int(x[channel, r, c])
    return sum_


def reference(layer: Layer, sample: Array) -> Array:
    """One layer that reads the network's input."""
    data = sample.reshape(layer.operands, layer.channels, *layer.dim)
    parts = [pooled(layer, x) for x in data] if layer.pool_first else list(data)
    x = parts[0]
    if layer.eltwise is not None:
        rest = sum(parts[1:])
        combined = x + rest if layer.eltwise is ADD else x - rest
        x = np.vectorize(clip, otypes=[object])(combined)
    if not layer.pool_first:
        x = pooled(layer, x)
    if layer.operation is NO:
        return x
    result = np.zeros((layer.out_channels, *layer.out_dim), object)
    for at in np.ndindex(*result.shape):
        value = total(layer, x, at) + (0 if layer.bias is None else 128 * int(layer.bias[at[0]]))
        if not layer.wide:
            value = clip(floor(value * 2.0**layer.shift / 128 + 0.5))
            value = max(value, 0) if layer.activation is RELU else value
            value = min(abs(value), 127) if layer.activation is ABS else value
        result[at] = value
    return result


TWO, THREE = Pool(False, (2, 2), 2), Pool(True, (3, 3), 1)
LAYERS = {
    "copy": make(NO, (4, 5)),
    "subsampled": make(NO, (5, 7), stride=2),
    "largest": make(NO, (5, 7), pool=TWO),
    "largest of 2x3": make(NO, (5, 7), pool=Pool(False, (2, 3), 1)),
    "largest dilated": make(NO, (6, 9), pool=Pool(False, (2, 3), 2, (2, 3))),
    "mean": make(NO, (5, 7), pool=THREE),
    # A mean of 25 comes nearer to an integer than one of 9; it must not be rounded to it.
    "mean of 5x5": make(NO, (9, 8), pool=Pool(True, (5, 5), 1)),
    "mean of a line": make(NO, (9, 1), pool=Pool(True, (3, 1), 2)),
    "sum": make(NO, (4, 5), operands=2, eltwise=ADD),
    "difference of three": make(NO, (4, 5), operands=3, eltwise=SUB),
    "sum of pools": make(NO, (4, 6), operands=2, eltwise=ADD, pool=TWO),
    "pool of a sum": make(NO, (4, 6), operands=2, eltwise=ADD, pool=TWO, pool_first=False),
    "convolved difference": make(C2, (4, 4), operands=2, eltwise=SUB, kernel=(3, 3), pad=(1, 1), shift=-3),
    "1x1": make(C2, (4, 5), shift=-2),
    "3x3": make(C2, (5, 6), kernel=(3, 3), shift=-4),
    "3x3 padded": make(C2, (4, 5), kernel=(3, 3), pad=(1, 2), shift=-4),
    "3x3 dilated": make(C2, (6, 7), kernel=(3, 3), dilation=(2, 3), shift=-4),
    "3x3 after a pool": make(C2, (6, 9), kernel=(3, 3), pad=(1, 1), pool=TWO, shift=-4, activation=RELU),
    "3x3 after subsampling": make(C2, (6, 9), kernel=(3, 3), pad=(1, 1), stride=3, shift=-4, activation=ABS),
    "without bias": make(C2, (4, 5), kernel=(3, 3), shift=-4, biased=False),
    "4 bits": make(C2, (4, 5), kernel=(3, 3), shift=1, bits=4),
    "1 bit": make(C2, (4, 5), kernel=(3, 3), shift=5, bits=1, biased=False),
    "shifted by 7": make(C2, (4, 5), shift=7, bits=2),
    "shifted by 9": make(C2, (4, 5), shift=9, bits=2),
    "wide": make(C2, (4, 5), kernel=(3, 3), wide=True),
    "depthwise": make(C2, (4, 5), 4, 4, kernel=(3, 3), pad=(1, 1), groups=4, shift=-2),
    "depthwise dilated": make(C2, (7, 6), 4, 4, kernel=(3, 3), dilation=(2, 1), groups=4, shift=-2),
    "transposed": make(T2, (3, 4), kernel=(3, 3), pad=(1, 1), shift=-3),
    "transposed unpadded": make(T2, (3, 4), kernel=(3, 3), shift=-3, activation=RELU),
    "transposed padded by 2": make(T2, (3, 4), kernel=(3, 3), pad=(2, 2), shift=-3),
    "line": make(C1, (9, 1), kernel=(4, 1), shift=-3),
    "line padded": make(C1, (9, 1), kernel=(3, 1), pad=(2, 0), shift=-3),
    "line dilated": make(C1, (12, 1), kernel=(3, 1), dilation=(4, 1), shift=-3),
    "line after a mean": make(C1, (9, 1), kernel=(2, 1), pool=Pool(True, (2, 1), 2), shift=-3),
    "linear": make(FC, (1, 1), 9, shift=-3),
    "linear over positions": make(FC, (3, 2), 5, flatten=True, shift=-4, activation=RELU),
    "linear wide": make(FC, (3, 2), 5, flatten=True, wide=True),
}


def network_of(layer: Layer) -> Network:
    shape = (layer.channels * layer.operands, *layer.dim)
    if layer.dim[1] == 1 and layer.dim[0] > 1:
        shape = shape[:2]
    sample = np.random.default_rng(5).integers(-128, 128, shape)
    return Network("net", (layer,), (LayerPlacement(1, 1),), sample)


@pytest.mark.parametrize("name", LAYERS)
def test_arithmetic(name: str) -> None:
    network = network_of(LAYERS[name])
    (found,) = outputs(network, NetworkOptions())
    assert found.dtype.kind == "i"
    assert found.tolist() == reference(LAYERS[name], network.sample).tolist()


@pytest.mark.parametrize("name", LAYERS)
def test_graph(name: str) -> None:
    """The ops' own references compute the same; results have the axes and the scale that the graph states."""
    layer, network = LAYERS[name], network_of(LAYERS[name])
    graph = verify(as_graph(network))
    assert list(graph.outputs) == ["one"]
    actual = execute(graph, {"input": network.sample[None].astype(np.int8)})["one"]
    expected = reference(layer, network.sample)
    rows, columns = layer.out_dim
    spatial = (rows, columns) if columns > 1 else (rows,) if rows > 1 else ()
    assert actual.shape == (1, layer.out_channels, *spatial)
    assert np.array_equal(actual.reshape(expected.shape), expected.astype(np.int64))
    tensor = graph.tensors["one"]
    assert tensor.quant is not None
    assert tensor.quant.scale[0] == (2.0**-14 if layer.wide else 2.0**-7)


def two(second: Layer, **changes: Any) -> Network:
    """A 1x1 convolution of 3 channels, and a layer that reads it."""
    first = replace(make(C2, (4, 6), shift=-2, out=3), name="first", output=False)
    sample = np.random.default_rng(5).integers(-128, 128, (3, 4, 6))
    layers = (first, replace(second, **changes))
    return Network("net", layers, (LayerPlacement(1, 1),) * 2, sample)


@pytest.mark.parametrize(
    "network",
    [
        two(make(C2, (4, 6), 6, shift=-3), inputs=(INPUT, 0)),
        two(make(C2, (6, 4), 3, shift=-3), inputs=(0,)),
        two(make(NO, (4, 6), operands=2, eltwise=SUB), inputs=(0, INPUT)),
        two(make(NO, (6, 4), operands=2, eltwise=ADD, pool=TWO), inputs=(INPUT, 0)),
    ],
    ids=["joined", "recounted", "difference", "recounted sum of pools"],
)
def test_layers_that_read_layers(network: Network) -> None:
    graph = verify(as_graph(network))
    actual = execute(graph, {"input": network.sample[None].astype(np.int8)})["one"]
    expected = outputs(network, NetworkOptions())[-1]
    assert np.array_equal(actual[0], expected)


def test_what_only_the_accelerator_computes() -> None:
    """One node stands for the whole network; it computes what the accelerator does and says why kernels cannot."""
    xor = replace(make(NO, (4, 6), operands=2), eltwise=Eltwise.XOR, inputs=(0, INPUT))
    network = two(xor)
    with pytest.raises(MaceError) as error:
        as_graph(network)
    reason = "layer 'one': bits of stored numbers have no meaning as real numbers; only the accelerator computes this"
    assert str(error.value) == f"net: {reason}"
    graph = verify(as_any_graph(network))
    (node,) = graph.nodes
    actual = execute(graph, {"input": network.sample[None].astype(np.int8)})["one"]
    assert np.array_equal(actual[0], outputs(network, NetworkOptions())[-1])
    assert node.op.lower is not None
    with pytest.raises(Refused, match="bits of stored numbers have no meaning"):
        node.op.lower(node, Lowering(graph))


def test_a_buffer_outlives_the_inference() -> None:
    read = replace(make(NO, (4, 1)), inputs=(BUFFER,))
    buffer = Buffer("past", 1, 3, (4, 1), 0x100)
    sample = np.zeros((3, 4), np.int64)
    network = Network("net", (read,), (LayerPlacement(1, 1, 0x100),), sample, buffers=(buffer,))
    with pytest.raises(
        MaceError, match="layer 'one': reads a buffer that outlives the inference; only the accel"
    ):
        as_graph(network)


def test_a_layer_whose_predecessor_is_left_out_reads_what_ran_last() -> None:
    """Where the sample's conditions leave out a layer, the data are those of the layer before it."""
    doubled = replace(make(NO, (2, 3), operands=2, eltwise=ADD), inputs=(INPUT, INPUT))
    negated = replace(make(NO, (2, 3), operands=2, eltwise=SUB), inputs=(INPUT, 0))
    total = replace(make(NO, (2, 3), operands=2, eltwise=SUB), inputs=(1, INPUT))
    sample = np.arange(18).reshape(3, 2, 3)
    network = Network("net", (doubled, negated, total), (LayerPlacement(1, 1),) * 3, sample)
    assert np.array_equal(outputs(network, NetworkOptions())[-1], -2 * sample)
    assert np.array_equal(outputs(replace(network, sampled=(0, 2)), NetworkOptions())[-1], sample)
