"""The element types that the format's operators take, as tried with LiteRT's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mace_core.ir import DType


@dataclass(frozen=True)
class TypesTaken:
    """plain: types of elements that are what they are.  quantized: types of stored real numbers."""

    plain: tuple[DType, ...]
    quantized: tuple[DType, ...]


def _types(plain: str, quantized: str = "") -> TypesTaken:
    return TypesTaken(
        tuple(DType(name) for name in plain.split()), tuple(DType(name) for name in quantized.split())
    )


_WEIGHTED = _types("f32", "i8 u8 i16")
_ARITHMETIC = _types("f32 i32 i64", "i8 u8 i16")
_MOVING = _types("f32 i8 u8 i16 i32 i64 bool", "i8 u8 i16")
_FLOAT = _types("f32")

TYPES_TAKEN: Mapping[str, TypesTaken] = MappingProxyType(
    {
        "CONV_2D": _WEIGHTED,
        "DEPTHWISE_CONV_2D": _WEIGHTED,
        "FULLY_CONNECTED": _WEIGHTED,
        "ADD": _ARITHMETIC,
        "SUB": _ARITHMETIC,
        "MUL": _ARITHMETIC,
        "AVERAGE_POOL_2D": _WEIGHTED,
        "MAX_POOL_2D": _WEIGHTED,
        "RELU": _WEIGHTED,
        "RELU6": _types("f32", "i8 u8"),
        "RELU_N1_TO_1": _types("f32", "i8 u8"),
        "SOFTMAX": _WEIGHTED,
        "RESHAPE": _MOVING,
        "CONCATENATION": _types("f32 i8 u8 i16 i32 i64 bool", "i8 u8 i16"),
        "MEAN": _types("f32 i32 i64", "i8 u8 i16"),
        "PAD": _types("f32 i32 i64", "i8 u8 i16"),
        "PADV2": _types("f32 i32 i64", "i8 u8"),
        "MIRROR_PAD": _types("f32 i8 u8 i16 i32 i64", "i8 u8 i16"),
        "TRANSPOSE": _MOVING,
        "QUANTIZE": _types("f32", "i8 u8 i16"),
        "DEQUANTIZE": _types("", "i8 u8 i16"),
    }
)
