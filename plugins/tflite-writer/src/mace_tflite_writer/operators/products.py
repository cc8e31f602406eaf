"""Convolutions and products of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import tflite

from mace_core.ir import DType, Quant, Shape
from mace_core.lowering import Refused
from mace_core.ops.conv import ClampAttributes, ConvAttributes
from mace_core.ops.conv_transpose import ConvTransposeAttributes
from mace_core.ops.windows import Windows
from mace_tflite_writer.operator import (
    BuiltinOperator,
    ConstantOperand,
    NodeView,
    Operand,
    OperatorOptions,
    OptionValue,
    need,
)
from mace_tflite_writer.padding import padding_mode
from mace_tflite_writer.storage import bias_operand, check_products, fused_activation

if TYPE_CHECKING:
    from mace_tflite_writer.operators import Statement


def _conv(view: NodeView) -> BuiltinOperator:
    attrs, w = view.attributes(ConvAttributes), view.input(1)
    assert w is not None
    if len(view.x.shape) == 5:
        return _conv_3d(view)
    need(
        len(view.x.shape) == 4,
        f"it has {len(view.x.shape) - 2} spatial axes; the format's convolutions have 2 or 3",
        "shape",
        "reshape to images of one row" if len(view.x.shape) == 3 else "",
    )
    check_products(view, 0)
    windows = Windows.of(w.shape[1:-1], attrs)
    fields: dict[str, OptionValue] = {
        "Padding": padding_mode(windows, view.x.shape[1:-1], view.y.shape[1:-1]),
        "StrideH": attrs.strides[0],
        "StrideW": attrs.strides[1],
        "DilationHFactor": attrs.dilations[0],
        "DilationWFactor": attrs.dilations[1],
        "FusedActivationFunction": fused_activation(attrs.low, attrs.high, view.y),
    }
    bias = bias_operand(view, w.shape[0])
    channels = view.x.shape[-1]
    if attrs.group == channels and w.shape[-1] == 1 and channels > 1:
        fields["DepthMultiplier"] = w.shape[0] // channels
        inputs: list[Operand] = [view.node.inputs[0], _depthwise_filters(view), bias]
        return view.operator("DEPTHWISE_CONV_2D", inputs, OperatorOptions("DepthwiseConv2DOptions", fields))
    need(
        attrs.group == 1 or view.x.dtype not in (DType.U8, DType.I16),
        f"the format has no convolution in {attrs.group} groups of {view.x.dtype.value}",
        "dtype",
        "use int8 or floats, or split the channels (rewrite `split_groups`)",
    )
    return view.operator("CONV_2D", [*view.node.inputs[:2], bias], OperatorOptions("Conv2DOptions", fields))


def _depthwise_filters(view: NodeView) -> ConstantOperand:
    """Return filters [O, H, W, 1] as [1, H, W, O]."""
    w, array = view.input(1), view.constant(1)
    assert w is not None
    if array is None:
        raise Refused(
            "its filters are computed, and a depthwise convolution of the format has others axes first",
            code="other",
            remedy="let the model hold them as constants",
        )
    return ConstantOperand(array.transpose(3, 1, 2, 0), _moved_axis(w.quant, 3))


def _moved_axis(quant: Quant | None, axis: int) -> Quant | None:
    """Return a quantization whose scales lie along another axis now."""
    if quant is None or quant.axis is None:
        return quant
    return Quant(quant.scale, quant.zero_point, axis)


def _matmul(view: NodeView) -> BuiltinOperator:
    attrs, b = view.attributes(ClampAttributes), view.input(1)
    assert b is not None
    weights = view.constant(1)
    need(
        weights is not None and weights.ndim == 2 and len(view.x.shape) >= 2,
        f"it multiplies {view.x} and {b}; a fully connected layer has constant weights of 2 axes",
        "shape",
        "reshape the operands, or give the product to another target",
    )
    assert weights is not None
    check_products(view, 1)
    fields: dict[str, OptionValue] = {
        "FusedActivationFunction": fused_activation(attrs.low, attrs.high, view.y),
        "KeepNumDims": len(view.x.shape) != 2,
    }
    # The format has weights [results, depth].
    transposed = ConstantOperand(np.swapaxes(weights, 0, 1), _moved_axis(b.quant, 0))
    inputs: list[Operand] = [view.node.inputs[0], transposed, bias_operand(view, weights.shape[1])]
    return view.operator("FULLY_CONNECTED", inputs, OperatorOptions("FullyConnectedOptions", fields))


def _conv_3d(view: NodeView) -> BuiltinOperator:
    attrs, w, filters = view.attributes(ConvAttributes), view.input(1), view.constant(1)
    assert w is not None
    need(
        attrs.group == 1 and filters is not None,
        "the format's convolution over 3 axes has one group and, here, constant filters",
        "attribute",
    )
    assert filters is not None
    check_products(view, 0)
    windows = Windows.of(w.shape[1:-1], attrs)
    fields: dict[str, OptionValue] = {
        "Padding": padding_mode(windows, view.x.shape[1:-1], view.y.shape[1:-1]),
        "FusedActivationFunction": fused_activation(attrs.low, attrs.high, view.y),
    }
    for axis, stride, dilation in zip("DHW", attrs.strides, attrs.dilations, strict=True):
        fields[f"Stride{axis}"] = stride
        fields[f"Dilation{axis}Factor"] = dilation
    # The format has filters [D, H, W, I, O].
    moved = ConstantOperand(filters.transpose(1, 2, 3, 4, 0))
    inputs: list[Operand] = [view.node.inputs[0], moved, bias_operand(view, w.shape[0])]
    return view.operator("CONV_3D", inputs, OperatorOptions("Conv3DOptions", fields))


def _conv_transpose(view: NodeView) -> BuiltinOperator:
    attrs, w = view.attributes(ConvTransposeAttributes), view.input(1)
    assert w is not None
    need(
        len(view.x.shape) == 4 and attrs.group == 1 and set(attrs.dilations) == {1},
        f"it has {len(view.x.shape) - 2} spatial axes, {attrs.group} groups, dilations {attrs.dilations}; the"
        " format's transposed convolution has 2, 1 and none",
        "attribute",
    )
    check_products(view, 0)
    windows = Windows.of(w.shape[1:-1], attrs)
    fields: dict[str, OptionValue] = {
        "Padding": _transposed_padding(windows, view.x.shape[1:-1], view.y.shape[1:-1]),
        "StrideH": attrs.strides[0],
        "StrideW": attrs.strides[1],
        "FusedActivationFunction": fused_activation(attrs.low, attrs.high, view.y),
    }
    inputs: list[Operand] = [
        ConstantOperand(np.asarray(view.y.shape, np.int32)),
        view.node.inputs[1],
        view.node.inputs[0],
        bias_operand(view, w.shape[0]),
    ]
    return view.operator("TRANSPOSE_CONV", inputs, OperatorOptions("TransposeConvOptions", fields))


def _transposed_padding(windows: Windows, size: Shape, out: Shape) -> int:
    """Return the mode of a convolution over the result that gives the input's size and its cut in front.

    The kernels compute the input's size from that of the result (kernels/transpose_conv.cc), and cut off
    in front what that convolution pads; the stated size of the result cuts the rest.
    """
    axes = list(zip(out, windows.strides, windows.extent, strict=True))
    valid = tuple((n - e + s) // s for n, s, e in axes)
    same = tuple(-(-n // s) for n, s, _ in axes)
    missing = [max((m - 1) * s + e - n, 0) for m, (n, s, e) in zip(same, axes, strict=True)]
    if windows.before == (0,) * len(out) and valid == size:
        return int(tflite.Padding.VALID)
    if windows.before == tuple(m // 2 for m in missing) and same == size:
        return int(tflite.Padding.SAME)
    raise Refused(
        f"it makes {list(out)} of {list(size)} and cuts {list(windows.before)} off in front, which neither"
        " VALID nor SAME does",
        code="attribute",
        remedy="crop by a node of its own (rewrite `separate_crops`)",
    )


STATEMENTS: Mapping[str, Statement] = MappingProxyType(
    {"Conv": _conv, "ConvTranspose": _conv_transpose, "MatMul": _matmul}
)
