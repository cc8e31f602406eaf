"""Conversions between real numbers and what stores them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from mace_core.ir import DType
from mace_tflite_writer.operator import BuiltinOperator, NodeView, OperatorOptions, need
from mace_tflite_writer.schema import TYPES
from mace_tflite_writer.storage import need_one_scale

if TYPE_CHECKING:
    from mace_tflite_writer.operators import Statement


RESULTS: Mapping[DType, tuple[DType, ...]] = MappingProxyType(
    {
        DType.F32: (DType.I8, DType.U8, DType.I16),
        DType.F16: (DType.I8, DType.U8, DType.I16),
        DType.I8: (DType.I8, DType.U8, DType.I16),
        DType.U8: (DType.I8, DType.U8, DType.I16),
        DType.I16: (DType.I8, DType.I16),
    }
)
"""Types of operands -> those of results, as LiteRT's kernel takes them (kernels/quantize.cc)."""


def _quantize(view: NodeView) -> BuiltinOperator:
    need(
        view.y.quant is not None and view.y.dtype in RESULTS.get(view.x.dtype, ()),
        f"the format's operator makes no {view.y} of {view.x}",
        "quantization",
        "quantize the model to int8, uint8 or int16",
    )
    need_one_scale(view.x)
    need_one_scale(view.y)
    return view.operator("QUANTIZE", options=OperatorOptions("QuantizeOptions"))


def _dequantize(view: NodeView) -> BuiltinOperator:
    need_one_scale(view.x)
    need(
        view.y.dtype is DType.F32 and view.y.quant is None,
        f"its result {view.y} is no float32, which alone the format's operator gives",
        "dtype",
    )
    return view.operator("DEQUANTIZE", options=OperatorOptions("DequantizeOptions"))


def _cast(view: NodeView) -> BuiltinOperator:
    if view.x.dtype is DType.F16 and view.y.dtype is DType.F32:
        # What converters write behind weights of half precision, which accelerators look for.
        return view.operator("DEQUANTIZE", options=OperatorOptions("DequantizeOptions"))
    # To bool, both give true for every number but 0, NaN among them (CastValue of kernels/cast.cc).
    saturates = view.x.dtype.is_float and not view.y.dtype.is_float and view.y.dtype is not DType.BOOL
    need(
        not saturates,
        "a float that its result cannot hold saturates in the IR, and is undefined in the format",
        "dtype",
    )
    need(view.x.quant is None and view.y.quant is None, "it casts stored integers", "quantization")
    fields = {"InDataType": TYPES[view.x.dtype], "OutDataType": TYPES[view.y.dtype]}
    return view.operator("CAST", options=OperatorOptions("CastOptions", fields))


STATEMENTS: Mapping[str, Statement] = MappingProxyType(
    {"Quantize": _quantize, "Dequantize": _dequantize, "Cast": _cast}
)
