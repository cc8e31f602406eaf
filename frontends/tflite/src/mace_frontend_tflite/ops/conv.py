"""Convolutions and products. TensorFlow Lite is channels last, its filters are [O, H, W, I]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import tflite

from mace_core.ir import Shape
from mace_core.recipes import same_paddings
from mace_frontend_tflite.node import Node
from mace_frontend_tflite.ops import Handler
from mace_frontend_tflite.ops.activation import limits

HW = ("H", "W")
DHW = ("D", "H", "W")


def paddings(size: Shape, reach: Shape, strides: Shape, same: bool) -> tuple[Shape, Shape]:
    """Padding before and after each axis."""
    return same_paddings(size, reach, strides) if same else ((0,) * len(size), (0,) * len(size))


def window(node: Node, options: Any, kernel: Shape, axes: Sequence[str] = HW) -> dict[str, Any]:
    """The attributes of a window that slides over input 0."""
    strides = tuple(int(getattr(options, f"Stride{a}")()) for a in axes)
    dilations = tuple(int(getattr(options, f"Dilation{a}Factor", lambda: 1)()) for a in axes)
    size = node.shape(0)[1:-1]
    node.refuse_unless(len(size) == len(kernel) and min(*strides, *dilations) > 0, f"a window of {kernel} by {strides} over {size}")
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    before, after = paddings(size, reach, strides, options.Padding() == tflite.Padding.SAME)
    return {"strides": strides, "dilations": dilations, "pads_before": before, "pads_after": after}


def product(node: Node, op: str, inputs: Sequence[str], attrs: Mapping[str, Any], function: int) -> Sequence[str]:
    """A convolution or matrix product as the node's output, its activation fused."""
    bounds = limits(function)
    if bounds is not None:
        return node.done(op, inputs, {**attrs, "low": bounds[0], "high": bounds[1]})
    return node.activated(node.emit(op, inputs, attrs), function)


def _bias(node: Node, index: int) -> list[str]:
    return [node.input(index)] if node.has(index) else []


def _conv(node: Node) -> Sequence[str]:
    options, filters = node.options("Conv2DOptions"), node.shape(1)
    channels = node.shape(0)[-1]
    node.refuse_unless(
        len(filters) == 4 and filters[3] > 0 and channels % filters[3] == 0, f"filters of {list(filters)} on {channels} channels"
    )
    attrs = window(node, options, filters[1:3]) | {"group": channels // filters[3]}
    return product(node, "Conv", [node.input(0), node.input(1), *_bias(node, 2)], attrs, options.FusedActivationFunction())


def _conv_3d(node: Node) -> Sequence[str]:
    options, filters = node.options("Conv3DOptions"), node.shape(1)  # [D, H, W, I, O]
    attrs = window(node, options, filters[:3], DHW)
    inputs = [node.input(0), node.permuted(1, (4, 0, 1, 2, 3)), *_bias(node, 2)]
    return product(node, "Conv", inputs, attrs, options.FusedActivationFunction())


def _depthwise(node: Node) -> Sequence[str]:
    options, filters = node.options("DepthwiseConv2DOptions"), node.shape(1)  # [1, H, W, channels * multiplier]
    channels = node.shape(0)[-1]
    node.refuse_unless(len(filters) == 4 and filters[0] == 1, f"depthwise filters of {list(filters)}")
    attrs = window(node, options, filters[1:3]) | {"group": channels}
    inputs = [node.input(0), node.permuted(1, (3, 1, 2, 0)), *_bias(node, 2)]
    return product(node, "Conv", inputs, attrs, options.FusedActivationFunction())


def _transpose_conv(node: Node) -> Sequence[str]:
    """TRANSPOSE_CONV(output shape, weights [O, H, W, I], x, bias)."""
    options = node.options("TransposeConvOptions")
    out, filters, x = node.ints(0, "output shape"), node.shape(1), node.shape(2)
    node.refuse_unless(len(out) == len(filters) == len(x) == 4, "its operands are not of rank 4")
    strides = (int(options.StrideH()), int(options.StrideW()))
    node.refuse_unless(min(strides) > 0, f"strides {strides}")
    same = options.Padding() == tflite.Padding.SAME
    before, _ = paddings(out[1:3], filters[1:3], strides, same)
    whole = [(n - 1) * s + k for n, s, k in zip(x[1:3], strides, filters[1:3], strict=True)]
    rest = [w - b - o for w, b, o in zip(whole, before, out[1:3], strict=True)]
    attrs = {
        "strides": strides,
        "dilations": (1, 1),
        "pads_before": before,
        "pads_after": tuple(max(r, 0) for r in rest),
        "output_padding": tuple(max(-r, 0) for r in rest),
    }
    function = options.FusedActivationFunction() if hasattr(options, "FusedActivationFunction") else 0
    return product(node, "ConvTranspose", [node.input(2), node.input(1), *_bias(node, 3)], attrs, function)


def _fully_connected(node: Node) -> Sequence[str]:
    options = node.options("FullyConnectedOptions")
    node.refuse_unless(options.WeightsFormat() == 0, "its weights are shuffled; convert the model again without")
    rows, depth = node.shape(1)
    shape = node.shape(0)
    node.refuse_unless(depth > 0 and prod(shape) % depth == 0, f"{list(shape)} times weights of {[rows, depth]}")
    x = node.input(0)
    if not options.KeepNumDims() or shape[-1] != depth:
        x = node.emit("Reshape", [x], {"shape": (prod(shape) // depth, depth)}, tag="rows")
    inputs = [x, node.permuted(1, (1, 0)), *_bias(node, 2)]
    return product(node, "MatMul", inputs, {}, options.FusedActivationFunction())


def _batch_matmul(node: Node) -> Sequence[str]:
    options = node.options("BatchMatMulOptions")
    inputs = [_adjoint(node, 0, options.AdjX()), _adjoint(node, 1, options.AdjY())]
    return node.done("MatMul", inputs)


def _adjoint(node: Node, index: int, turned: bool) -> str:
    rank = len(node.shape(index))
    return node.permuted(index, (*range(rank - 2), rank - 1, rank - 2)) if turned else node.input(index)


def _pool(op: str) -> Handler:
    def handle(node: Node) -> Sequence[str]:
        options = node.options("Pool2DOptions")
        kernel = (int(options.FilterHeight()), int(options.FilterWidth()))
        attrs = {"kernel": kernel, **window(node, options, kernel)}
        return _then(node, op, attrs, options.FusedActivationFunction())

    return handle


def _then(node: Node, op: str, attrs: Mapping[str, Any], function: int) -> Sequence[str]:
    if limits(function) == limits(0):
        return node.done(op, [node.input(0)], attrs)
    return node.activated(node.emit(op, [node.input(0)], attrs, storage=node.storage()), function)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "CONV_2D": _conv,
        "CONV_3D": _conv_3d,
        "DEPTHWISE_CONV_2D": _depthwise,
        "TRANSPOSE_CONV": _transpose_conv,
        "FULLY_CONNECTED": _fully_connected,
        "BATCH_MATMUL": _batch_matmul,
        "AVERAGE_POOL_2D": _pool("AveragePool"),
        "MAX_POOL_2D": _pool("MaxPool"),
        "L2_POOL_2D": _pool("LpPool"),
    }
)
