"""The element types that the format's operators take, as tried with LiteRT's kernels.

Left out are types whose kernels are far from the real result: EXP, LOG, RSQRT and RESIZE_BILINEAR of 16 bits
interpolate or weigh with 10 bits and are up to 80 steps off, SUM of int8 and int16 wraps, the table of GELU
of uint8 does for some scales.
"""

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

_SMALL = _types("f32", "i8 u8")

TYPES_TAKEN: Mapping[str, TypesTaken] = MappingProxyType(
    {
        **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"), _WEIGHTED),
        **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "RELU", "SOFTMAX", "LEAKY_RELU"), _WEIGHTED),
        **dict.fromkeys(("TANH", "LOGISTIC"), _WEIGHTED),
        **dict.fromkeys(("ADD", "SUB", "MUL"), _ARITHMETIC),
        **dict.fromkeys(("RESHAPE", "TRANSPOSE", "CONCATENATION", "STRIDED_SLICE"), _MOVING),
        **dict.fromkeys(
            ("RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "PRELU", "HARD_SWISH", "RESIZE_BILINEAR"), _SMALL
        ),
        **dict.fromkeys(("EXP", "RSQRT", "LOG", "ELU", "GELU"), _types("f32", "i8")),
        **dict.fromkeys(("SQRT", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "SIGN", "CONV_3D"), _FLOAT),
        "ABS": _types("f32", "i8 i16"),
        "LOG_SOFTMAX": _types("f32", "i8 u8"),
        "NEG": _types("f32 i32 i64"),
        "DIV": _types("f32 i32", "u8"),
        "POW": _types("f32 i32"),
        "MAXIMUM": _types("f32 i32 i64", "i8 u8 i16"),
        "MINIMUM": _types("f32 i32 i64", "i8 u8 i16"),
        "MEAN": _types("f32 i32 i64", "i8 u8 i16"),
        # The kernels of int8 and int16 wrap.
        "SUM": _types("f32 i32 i64", "u8"),
        "REDUCE_MAX": _types("f32 i32 i64", "i8 u8 i16"),
        "REDUCE_MIN": _types("f32 i32 i64", "i8 u8 i16"),
        "PAD": _types("f32 i32 i64", "i8 u8 i16"),
        "PADV2": _types("f32 i32 i64", "i8 u8"),
        "MIRROR_PAD": _types("f32 i8 u8 i16 i32 i64", "i8 u8 i16"),
        "SLICE": _MOVING,
        "SPLIT": _types("f32 i8 u8 i16 i32", "i8 u8 i16"),
        "SPLIT_V": _types("f32 i8 u8 i16 i32 i64", "i8 u8 i16"),
        "DEPTH_TO_SPACE": _types("f32 i8 u8 i32 i64", "i8 u8"),
        "SPACE_TO_DEPTH": _types("f32 i8 u8 i32 i64", "i8 u8"),
        "TILE": _types("f32 i8 u8 i32 i64 bool", "i8 u8"),
        "GATHER": _types("f32 i8 u8 i16 i32 i64 bool", "i8 u8 i16"),
        "RESIZE_NEAREST_NEIGHBOR": _types("f32", "i8 u8 i16"),
        "CAST": _types("f32 f16 i8 u8 i16 i32 i64 bool"),
        "QUANTIZE": _types("f32", "i8 u8 i16"),
        # Half precision as well: converters write DEQUANTIZE behind weights of it.
        "DEQUANTIZE": _types("f16", "i8 u8 i16"),
    }
)
