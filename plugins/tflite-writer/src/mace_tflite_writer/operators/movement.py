"""Ops that move elements."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import tflite

from mace_core.ir import Array
from mace_core.lowering import Refused
from mace_core.ops.pad import PadAttributes
from mace_core.ops.shapes import AxisAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_core.quantization import quantize
from mace_tflite_writer.operator import (
    BuiltinOperator,
    ConstantOperand,
    NodeView,
    Operand,
    OperatorOptions,
    need,
    need_same_storage,
)

if TYPE_CHECKING:
    from mace_tflite_writer.operators import Statement

MAX_TRANSPOSED_RANK = 6
MAX_PADDED_RANK = 5


def ints(values: object) -> Array:
    """Return values as the format holds axes and sizes: 32-bit integers."""
    return np.asarray(values, np.int32)


def _reshape(view: NodeView) -> BuiltinOperator:
    need_same_storage(view)
    shape = ints(view.y.shape)
    # The shape is an operand and an option: some readers take the one, some the other.
    options = OperatorOptions("ReshapeOptions", {"NewShape": shape})
    return view.operator("RESHAPE", [view.node.inputs[0], ConstantOperand(shape)], options)


def _transpose(view: NodeView) -> BuiltinOperator:
    need_same_storage(view)
    perm, rank = view.attributes(TransposeAttributes).perm, len(view.x.shape)
    need(
        0 < rank <= MAX_TRANSPOSED_RANK,
        f"it transposes {rank} axes; the format's operator takes 1 to {MAX_TRANSPOSED_RANK}",
        "shape",
    )
    return view.operator(
        "TRANSPOSE", [view.node.inputs[0], ConstantOperand(ints(perm))], OperatorOptions("TransposeOptions")
    )


def _concat(view: NodeView) -> BuiltinOperator:
    need_same_storage(view)
    fields = {
        "Axis": view.attributes(AxisAttributes).axis % len(view.y.shape),
        "FusedActivationFunction": tflite.ActivationFunctionType.NONE,
    }
    return view.operator("CONCATENATION", options=OperatorOptions("ConcatenationOptions", fields))


def _pad(view: NodeView) -> BuiltinOperator:
    need_same_storage(view)
    attrs, rank = view.attributes(PadAttributes), len(view.x.shape)
    need(
        0 < rank <= MAX_PADDED_RANK,
        f"it pads {rank} axes; the format's operator takes 1 to {MAX_PADDED_RANK}",
        "shape",
    )
    sides = ConstantOperand(ints(list(zip(attrs.before, attrs.after, strict=True))))
    inputs: list[Operand] = [view.node.inputs[0], sides]
    if attrs.mode == "reflect":
        mode = {"Mode": tflite.MirrorPadMode.REFLECT}
        is_short = all(max(pair) < n for pair, n in zip(np.asarray(sides.array), view.x.shape, strict=True))
        need(is_short, "it reflects more elements than the axis has, which the format does not repeat")
        return view.operator("MIRROR_PAD", inputs, OperatorOptions("MirrorPadOptions", mode))
    if attrs.mode != "constant":
        raise Refused(f"the format has no padding of mode {attrs.mode!r}", code="attribute")
    if attrs.value == 0:
        return view.operator("PAD", inputs, OperatorOptions("PadOptions"))
    storage = view.y.storage
    value = quantize(np.asarray(attrs.value, np.float64), storage) if storage else np.asarray(attrs.value)
    fill = ConstantOperand(value.astype(view.x.dtype.numpy), view.y.quant)
    return view.operator("PADV2", [*inputs, fill], OperatorOptions("PadV2Options"))


STATEMENTS: Mapping[str, Statement] = MappingProxyType(
    {
        "Reshape": _reshape,
        "Identity": _reshape,
        "Transpose": _transpose,
        "Concat": _concat,
        "Pad": _pad,
    }
)
