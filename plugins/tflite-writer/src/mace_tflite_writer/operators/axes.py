"""Ops that relate the elements along axes: softmax and means."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from mace_core.ir import DType
from mace_core.ops.reduce import ReduceAttributes
from mace_core.ops.softmax import SoftmaxAttributes
from mace_tflite_writer.operator import (
    BuiltinOperator,
    ConstantOperand,
    NodeView,
    OperatorOptions,
    need,
    need_same_storage,
)
from mace_tflite_writer.operators.elementwise import need_operands_alike
from mace_tflite_writer.schema import SCALE_TOLERANCE

if TYPE_CHECKING:
    from mace_tflite_writer.operators import Statement

SOFTMAX_STORAGE: Mapping[DType, tuple[float, int]] = MappingProxyType(
    {DType.I8: (1 / 256, -128), DType.U8: (1 / 256, 0), DType.I16: (1 / 32768, 0)}
)
LOG_SOFTMAX_STORAGE: Mapping[DType, tuple[float, int]] = MappingProxyType(
    {DType.I8: (16 / 256, 127), DType.U8: (16 / 256, 255)}
)
"""Scale and zero point of results, which the kernels do not read but assume (kernels/activations.cc)."""


def need_storage(view: NodeView, storages: Mapping[DType, tuple[float, int]]) -> None:
    """Raise Refused unless a quantized result has the scale and zero point that the kernels assume."""
    quant = view.y.quant
    if quant is None or view.y.dtype not in storages:
        return
    scale, zero_point = storages[view.y.dtype]
    need(
        abs(quant.scale[0] - scale) <= SCALE_TOLERANCE * scale and quant.zero_point[0] == zero_point,
        f"its result has scale {quant.scale[0]:g} and zero point {quant.zero_point[0]}; the format's kernels"
        f" give scale {scale:g} and zero point {zero_point}",
        "quantization",
        "quantize its result so",
    )


def _softmax(view: NodeView, code: str, storages: Mapping[DType, tuple[float, int]]) -> BuiltinOperator:
    rank = len(view.x.shape)
    axis = view.attributes(SoftmaxAttributes).axis
    need(
        rank > 0 and axis % rank == rank - 1,
        f"it normalizes axis {axis} of {rank}; the format's operator normalizes the last one",
        "attribute",
        "transpose that axis to the end",
    )
    need_operands_alike(view)
    need_storage(view, storages)
    if code == "LOG_SOFTMAX":
        return view.operator(code)
    # The schema's default of the factor is 0, with which all results would be equal.
    return view.operator(code, options=OperatorOptions("SoftmaxOptions", {"Beta": 1.0}))


def _reduce(view: NodeView, code: str) -> BuiltinOperator:
    attrs = view.attributes(ReduceAttributes)
    need_operands_alike(view)
    # Their result is one of the stored integers, which the kernels copy.
    if code in ("REDUCE_MAX", "REDUCE_MIN"):
        need_same_storage(view)
    rank = len(view.x.shape)
    axes = np.asarray(sorted({axis % rank for axis in attrs.axes}), np.int32)
    need(len(axes) > 0, "it reduces no axis, and the format's operator would reduce all")
    fields = {"KeepDims": attrs.keepdims}
    return view.operator(
        code, [view.node.inputs[0], ConstantOperand(axes)], OperatorOptions("ReducerOptions", fields)
    )


STATEMENTS: Mapping[str, Statement] = MappingProxyType(
    {
        "Softmax": lambda view: _softmax(view, "SOFTMAX", SOFTMAX_STORAGE),
        "LogSoftmax": lambda view: _softmax(view, "LOG_SOFTMAX", LOG_SOFTMAX_STORAGE),
        "ReduceMean": lambda view: _reduce(view, "MEAN"),
        "ReduceSum": lambda view: _reduce(view, "SUM"),
        "ReduceMax": lambda view: _reduce(view, "REDUCE_MAX"),
        "ReduceMin": lambda view: _reduce(view, "REDUCE_MIN"),
    }
)
