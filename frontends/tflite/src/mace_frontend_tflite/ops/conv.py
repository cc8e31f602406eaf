"""Convolutions, pools and products of matrices.

Images are [N, H, W, C]; filters are [O, H, W, I] unless a handler says otherwise, as in the IR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import tflite

from mace_core.decompositions import same_paddings
from mace_core.ir import Shape
from mace_core.numerics import Numerics
from mace_core.quantization import dequantize
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

HW = ("H", "W")
DHW = ("D", "H", "W")


def paddings(size: Shape, reach: Shape, strides: Shape, same: bool) -> tuple[Shape, Shape]:
    """Return the padding before and after each axis: none, or as TensorFlow pads SAME."""
    return same_paddings(size, reach, strides) if same else ((0,) * len(size), (0,) * len(size))


def window(node: TfliteNode, options: Any, kernel: Shape, axes: Sequence[str] = HW) -> dict[str, Any]:
    """Return the attributes of a window that slides over the axes of input 0 between batch and channels."""
    strides = tuple(int(getattr(options, f"Stride{a}")()) for a in axes)
    # Options of pools have no dilation.
    dilations = tuple(int(getattr(options, f"Dilation{a}Factor", lambda: 1)()) for a in axes)
    size = node.shape(0)[1:-1]
    node.require_consistent(
        len(size) == len(kernel) and min(*strides, *dilations) > 0,
        f"it has a window of {kernel} by {strides} over {size}",
    )
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    before, after = paddings(size, reach, strides, options.Padding() == tflite.Padding.SAME)
    return {"strides": strides, "dilations": dilations, "pads_before": before, "pads_after": after}


def _bias(node: TfliteNode, index: int) -> list[str]:
    """Return the bias, or nothing where the node has none."""
    if not node.has(index):
        return []
    info, array = node.info(index), node.array(index)
    if info.quant is None or array is None or array.dtype != np.int64:
        return [node.input(index)]
    # Layers of 16-bit activations have biases of 64 bits, a type for which the IR has no scale. Most fit 32
    # bits; one that does not is computed with as a float, which is exact to 24 bits.
    if np.abs(array).max(initial=0) < 1 << 31:
        return [node.add_stored(array.astype(np.int32), info.quant, tag="bias")]
    return [node.add_constant(dequantize(array, info.quant).astype(np.float32), tag="bias")]


def _conv(node: TfliteNode) -> Sequence[str]:
    options, filters = node.options("Conv2DOptions"), node.shape(1)
    channels = node.shape(0)[-1]
    node.require_consistent(
        len(filters) == 4 and filters[3] > 0 and channels % filters[3] == 0,
        f"it has filters of {list(filters)} on {channels} channels",
    )
    # The format has no number of groups: the kernel divides the channels by the depth of a filter
    # (kernels/conv.cc).
    attrs = window(node, options, filters[1:3]) | {"group": channels // filters[3]}
    return node.done_with_activation(
        "Conv", [node.input(0), node.input(1), *_bias(node, 2)], attrs, options.FusedActivationFunction()
    )


def _conv_3d(node: TfliteNode) -> Sequence[str]:
    options, filters = node.options("Conv3DOptions"), node.shape(1)  # [D, H, W, I, O]
    attrs = window(node, options, filters[:3], DHW)
    inputs = [node.input(0), node.transpose_input(1, (4, 0, 1, 2, 3)), *_bias(node, 2)]
    return node.done_with_activation("Conv", inputs, attrs, options.FusedActivationFunction())


def _depthwise(node: TfliteNode) -> Sequence[str]:
    # Its filters are [1, H, W, channels * multiplier]. The multiplier in the options repeats it, and kernels
    # newer than TensorFlow 2.0 ignore it (schema.fbs, DepthwiseConv2DOptions).
    options, filters = node.options("DepthwiseConv2DOptions"), node.shape(1)
    channels = node.shape(0)[-1]
    node.require_consistent(
        len(filters) == 4 and filters[0] == 1, f"it has depthwise filters of {list(filters)}"
    )
    attrs = window(node, options, filters[1:3]) | {"group": channels}
    inputs = [node.input(0), node.transpose_input(1, (3, 1, 2, 0)), *_bias(node, 2)]
    return node.done_with_activation("Conv", inputs, attrs, options.FusedActivationFunction())


def _conv_transpose(node: TfliteNode, options: Any, filters: str, axes: Sequence[str]) -> Sequence[str]:
    """Add a transposed convolution of (output shape, filters, x, bias).

    filters: [O, spatial axes, I].
    """
    out, x, kernel = node.ints(0, "output shape"), node.shape(2), node.tensor(filters).shape[1:-1]
    node.require_consistent(
        len(out) == len(x) == len(kernel) + 2,
        f"it has operands of ranks {len(out)}, {len(x)} and {len(kernel) + 2}",
    )
    strides = tuple(int(getattr(options, f"Stride{a}")()) for a in axes)
    dilations = tuple(int(getattr(options, f"Dilation{a}Factor", lambda: 1)()) for a in axes)
    node.require_consistent(
        min(*strides, *dilations) > 0, f"it has strides {strides} and dilations {dilations}"
    )
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    before, _ = paddings(out[1:-1], reach, strides, options.Padding() == tflite.Padding.SAME)
    # The file states the size of the result, the IR how much of the full result is cut off. What SAME cuts is
    # the padding of the convolution from that size; behind it, whatever is left is cut, or added if the
    # stated size is larger.
    full = [(n - 1) * s + r for n, s, r in zip(x[1:-1], strides, reach, strict=True)]
    rest = [w - b - o for w, b, o in zip(full, before, out[1:-1], strict=True)]
    attrs = {
        "strides": strides,
        "dilations": dilations,
        "pads_before": before,
        "pads_after": tuple(max(r, 0) for r in rest),
        "output_padding": tuple(max(-r, 0) for r in rest),
    }
    return node.done_with_activation(
        "ConvTranspose", [node.input(2), filters, *_bias(node, 3)], attrs, options.FusedActivationFunction()
    )


def _transpose_conv(node: TfliteNode) -> Sequence[str]:
    return _conv_transpose(node, node.options("TransposeConvOptions"), node.input(1), HW)


def _conv_3d_transpose(node: TfliteNode) -> Sequence[str]:
    """Add a transposed convolution, whose filters are [D, H, W, O, I]."""
    return _conv_transpose(node, node.options("Conv3DOptions"), node.transpose_input(1, (3, 0, 1, 2, 4)), DHW)


def _fully_connected(node: TfliteNode) -> Sequence[str]:
    options = node.options("FullyConnectedOptions")
    node.refuse_unless(
        options.WeightsFormat() == 0, "its weights are shuffled; convert the model again without"
    )
    units, depth = node.shape(1)
    shape = node.shape(0)
    node.require_consistent(
        depth > 0 and prod(shape) % depth == 0,
        f"it multiplies {list(shape)} times weights of {[units, depth]}",
    )
    x = node.input(0)
    # Without keep_num_dims the result has rank 2 whatever the rank of the input is; an input whose last axis
    # is not the depth of the weights is read as rows of that depth in any case (kernels/fully_connected.cc).
    if (len(shape) != 2 and not options.KeepNumDims()) or shape[-1] != depth:
        x = node.emit("Reshape", [x], {"shape": (prod(shape) // depth, depth)}, tag="rows")
    inputs = [x, node.transpose_input(1, (1, 0)), *_bias(node, 2)]
    return node.done_with_activation("MatMul", inputs, {}, options.FusedActivationFunction())


def _batch_matmul(node: TfliteNode) -> Sequence[str]:
    options = node.options("BatchMatMulOptions")
    # In the IR it is the same product as FULLY_CONNECTED, whose reference kernel rounds otherwise.
    is_constant = node.array(1) is not None and node.info(1).quant is not None
    node.require_supported(
        not is_constant or node.importer.numerics is not Numerics.FIXED_POINT,
        f"it multiplies by a quantized constant with numerics: {Numerics.FIXED_POINT.value}",
    )
    inputs = [_adjoint(node, 0, options.AdjX()), _adjoint(node, 1, options.AdjY())]
    return node.done("MatMul", inputs)


def _adjoint(node: TfliteNode, index: int, adjoint: bool) -> str:
    rank = len(node.shape(index))
    if not adjoint:
        return node.input(index)
    # No complex numbers are multiplied here, so the adjoint matrix is the transposed one.
    return node.transpose_input(index, (*range(rank - 2), rank - 1, rank - 2))


def _pool(op: str) -> Handler:
    def handle(node: TfliteNode) -> Sequence[str]:
        options = node.options("Pool2DOptions")
        kernel = (int(options.FilterHeight()), int(options.FilterWidth()))
        # Padding does not count in a mean, as in the IR's default: a window at the edge has fewer elements.
        attrs = {"kernel": kernel, **window(node, options, kernel)}
        return node.done_with_activation(op, [node.input(0)], attrs, options.FusedActivationFunction())

    return handle


def _l2_pool(node: TfliteNode) -> Sequence[str]:
    """Add the root of the mean of squares."""
    options = node.options("Pool2DOptions")
    kernel = (int(options.FilterHeight()), int(options.FilterWidth()))
    squares = node.emit("Mul", [node.input(0), node.input(0)], tag="squares")
    attrs = {"kernel": kernel, **window(node, options, kernel)}
    mean = node.emit("AveragePool", [squares], attrs, tag="mean")
    return node.done_with_activation("Sqrt", [mean], {}, options.FusedActivationFunction())


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
