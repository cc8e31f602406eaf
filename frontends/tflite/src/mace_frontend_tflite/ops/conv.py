"""Convolutions and products. TensorFlow Lite is channels last, its filters are [O, H, W, I]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import tflite

from mace_core.decompositions import same_paddings
from mace_core.ir import Shape
from mace_core.quantization import dequantize
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

HW = ("H", "W")
DHW = ("D", "H", "W")


def paddings(size: Shape, reach: Shape, strides: Shape, same: bool) -> tuple[Shape, Shape]:
    """Padding before and after each axis."""
    return same_paddings(size, reach, strides) if same else ((0,) * len(size), (0,) * len(size))


def window(node: TfliteNode, options: Any, kernel: Shape, axes: Sequence[str] = HW) -> dict[str, Any]:
    """The attributes of a window that slides over input 0."""
    strides = tuple(int(getattr(options, f"Stride{a}")()) for a in axes)
    dilations = tuple(int(getattr(options, f"Dilation{a}Factor", lambda: 1)()) for a in axes)
    size = node.shape(0)[1:-1]
    node.refuse_unless(
        len(size) == len(kernel) and min(*strides, *dilations) > 0,
        f"a window of {kernel} by {strides} over {size}",
    )
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    before, after = paddings(size, reach, strides, options.Padding() == tflite.Padding.SAME)
    return {"strides": strides, "dilations": dilations, "pads_before": before, "pads_after": after}


def _bias(node: TfliteNode, index: int) -> list[str]:
    """The bias, if there is one.

    Those of 64 bits, of sixteen-bit activations, are stored in 32 if they fit, else become floats.
    """
    if not node.has(index):
        return []
    info, array = node.info(index), node.array(index)
    if info.quant is None or array is None or array.dtype != np.int64:
        return [node.input(index)]
    if np.abs(array).max(initial=0) < 1 << 31:
        return [node.add_stored(array.astype(np.int32), info.quant, tag="bias")]
    return [node.add_constant(dequantize(array, info.quant).astype(np.float32), tag="bias")]


def _conv(node: TfliteNode) -> Sequence[str]:
    options, filters = node.options("Conv2DOptions"), node.shape(1)
    channels = node.shape(0)[-1]
    node.refuse_unless(
        len(filters) == 4 and filters[3] > 0 and channels % filters[3] == 0,
        f"filters of {list(filters)} on {channels} channels",
    )
    attrs = window(node, options, filters[1:3]) | {"group": channels // filters[3]}
    return node.fused(
        "Conv", [node.input(0), node.input(1), *_bias(node, 2)], attrs, options.FusedActivationFunction()
    )


def _conv_3d(node: TfliteNode) -> Sequence[str]:
    options, filters = node.options("Conv3DOptions"), node.shape(1)  # [D, H, W, I, O]
    attrs = window(node, options, filters[:3], DHW)
    inputs = [node.input(0), node.permuted(1, (4, 0, 1, 2, 3)), *_bias(node, 2)]
    return node.fused("Conv", inputs, attrs, options.FusedActivationFunction())


def _depthwise(node: TfliteNode) -> Sequence[str]:
    # [1, H, W, channels * multiplier].
    options, filters = node.options("DepthwiseConv2DOptions"), node.shape(1)
    channels = node.shape(0)[-1]
    node.refuse_unless(len(filters) == 4 and filters[0] == 1, f"depthwise filters of {list(filters)}")
    attrs = window(node, options, filters[1:3]) | {"group": channels}
    inputs = [node.input(0), node.permuted(1, (3, 1, 2, 0)), *_bias(node, 2)]
    return node.fused("Conv", inputs, attrs, options.FusedActivationFunction())


def _transposed(node: TfliteNode, options: Any, filters: str, axes: Sequence[str]) -> Sequence[str]:
    """A transposed convolution of (output shape, filters, x, bias). filters: [O, spatial axes, I]."""
    out, x, kernel = node.ints(0, "output shape"), node.shape(2), node.tensor(filters).shape[1:-1]
    node.refuse_unless(
        len(out) == len(x) == len(kernel) + 2, f"operands of ranks {len(out)}, {len(x)} and {len(kernel) + 2}"
    )
    strides = tuple(int(getattr(options, f"Stride{a}")()) for a in axes)
    dilations = tuple(int(getattr(options, f"Dilation{a}Factor", lambda: 1)()) for a in axes)
    node.refuse_unless(min(*strides, *dilations) > 0, f"strides {strides} and dilations {dilations}")
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    before, _ = paddings(out[1:-1], reach, strides, options.Padding() == tflite.Padding.SAME)
    whole = [(n - 1) * s + r for n, s, r in zip(x[1:-1], strides, reach, strict=True)]
    rest = [w - b - o for w, b, o in zip(whole, before, out[1:-1], strict=True)]
    attrs = {
        "strides": strides,
        "dilations": dilations,
        "pads_before": before,
        "pads_after": tuple(max(r, 0) for r in rest),
        "output_padding": tuple(max(-r, 0) for r in rest),
    }
    return node.fused(
        "ConvTranspose", [node.input(2), filters, *_bias(node, 3)], attrs, options.FusedActivationFunction()
    )


def _transpose_conv(node: TfliteNode) -> Sequence[str]:
    return _transposed(node, node.options("TransposeConvOptions"), node.input(1), HW)


def _conv_3d_transpose(node: TfliteNode) -> Sequence[str]:
    """Its filters are [D, H, W, O, I]."""
    return _transposed(node, node.options("Conv3DOptions"), node.permuted(1, (3, 0, 1, 2, 4)), DHW)


def _fully_connected(node: TfliteNode) -> Sequence[str]:
    options = node.options("FullyConnectedOptions")
    node.refuse_unless(
        options.WeightsFormat() == 0, "its weights are shuffled; convert the model again without"
    )
    rows, depth = node.shape(1)
    shape = node.shape(0)
    node.refuse_unless(
        depth > 0 and prod(shape) % depth == 0, f"{list(shape)} times weights of {[rows, depth]}"
    )
    x = node.input(0)
    if (len(shape) != 2 and not options.KeepNumDims()) or shape[-1] != depth:
        x = node.emit("Reshape", [x], {"shape": (prod(shape) // depth, depth)}, tag="rows")
    inputs = [x, node.permuted(1, (1, 0)), *_bias(node, 2)]
    return node.fused("MatMul", inputs, {}, options.FusedActivationFunction())


def _batch_matmul(node: TfliteNode) -> Sequence[str]:
    options = node.options("BatchMatMulOptions")
    inputs = [_adjoint(node, 0, options.AdjX()), _adjoint(node, 1, options.AdjY())]
    return node.done("MatMul", inputs)


def _adjoint(node: TfliteNode, index: int, turned: bool) -> str:
    rank = len(node.shape(index))
    return node.permuted(index, (*range(rank - 2), rank - 1, rank - 2)) if turned else node.input(index)


def _pool(op: str) -> Handler:
    def handle(node: TfliteNode) -> Sequence[str]:
        options = node.options("Pool2DOptions")
        kernel = (int(options.FilterHeight()), int(options.FilterWidth()))
        attrs = {"kernel": kernel, **window(node, options, kernel)}
        return node.fused(op, [node.input(0)], attrs, options.FusedActivationFunction())

    return handle


def _l2_pool(node: TfliteNode) -> Sequence[str]:
    """The root of the mean of squares."""
    options = node.options("Pool2DOptions")
    kernel = (int(options.FilterHeight()), int(options.FilterWidth()))
    squares = node.emit("Mul", [node.input(0), node.input(0)], tag="squares")
    mean = node.emit(
        "AveragePool", [squares], {"kernel": kernel, **window(node, options, kernel)}, tag="mean"
    )
    return node.fused("Sqrt", [mean], {}, options.FusedActivationFunction())


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "CONV_2D": _conv,
        "CONV_3D": _conv_3d,
        "DEPTHWISE_CONV_2D": _depthwise,
        "TRANSPOSE_CONV": _transpose_conv,
        "CONV_3D_TRANSPOSE": _conv_3d_transpose,
        "FULLY_CONNECTED": _fully_connected,
        "BATCH_MATMUL": _batch_matmul,
        "AVERAGE_POOL_2D": _pool("AveragePool"),
        "MAX_POOL_2D": _pool("MaxPool"),
        "L2_POOL_2D": _l2_pool,
    }
)
