"""Names and numbers of the format (tensorflow/lite/schema/schema.fbs), and its types for the IR's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import tflite

from mace_core.ir import DType

IDENTIFIER = b"TFL3"
"""The four bytes behind the first offset of a file."""

FILE_VERSION = 3
"""The version of the schema that every file of today has."""

TYPES: Mapping[DType, int] = MappingProxyType(
    {
        DType.F32: tflite.TensorType.FLOAT32,
        DType.F16: tflite.TensorType.FLOAT16,
        DType.F64: tflite.TensorType.FLOAT64,
        DType.I8: tflite.TensorType.INT8,
        DType.U8: tflite.TensorType.UINT8,
        DType.I16: tflite.TensorType.INT16,
        DType.U16: tflite.TensorType.UINT16,
        DType.I32: tflite.TensorType.INT32,
        DType.U32: tflite.TensorType.UINT32,
        DType.I64: tflite.TensorType.INT64,
        DType.U64: tflite.TensorType.UINT64,
        DType.BOOL: tflite.TensorType.BOOL,
    }
)

CODES: Mapping[str, int] = MappingProxyType(
    {name: code for name, code in vars(tflite.BuiltinOperator).items() if name.isupper()}
)
"""Names of builtin operators -> their numbers."""

LAST_SHORT_CODE = 127
"""A code above it lies in a field of its own, and this number in the old field of one byte."""

SCALE_TOLERANCE = 1e-6
"""Relative difference of two scales that are equal but for the rounding of single precision."""

MAX_DIMENSION = 2**31 - 1
"""The largest dimension: shapes are 32-bit integers."""

MAX_BYTES = 2**31 - 2**20
"""Bytes of constants in a file: its offsets are 32-bit integers; the rest of the range is for the tables."""
