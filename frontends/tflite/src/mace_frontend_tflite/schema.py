"""Names and numbers of the format (tensorflow/lite/schema/schema.fbs), and the IR's types for them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType

import tflite

from mace_core.ir import DType

DAMAGE = (struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError, KeyError)
"""The exceptions that reading a damaged flatbuffer raises: the library checks no offset."""

DTYPES: Mapping[int, DType] = MappingProxyType(
    {
        tflite.TensorType.FLOAT32: DType.F32,
        tflite.TensorType.FLOAT16: DType.F16,
        tflite.TensorType.FLOAT64: DType.F64,
        tflite.TensorType.INT8: DType.I8,
        tflite.TensorType.UINT8: DType.U8,
        tflite.TensorType.INT16: DType.I16,
        tflite.TensorType.UINT16: DType.U16,
        tflite.TensorType.INT32: DType.I32,
        tflite.TensorType.UINT32: DType.U32,
        tflite.TensorType.INT64: DType.I64,
        tflite.TensorType.UINT64: DType.U64,
        tflite.TensorType.BOOL: DType.BOOL,
    }
)
TYPE_NAMES: Mapping[int, str] = MappingProxyType(
    {v: k for k, v in vars(tflite.TensorType).items() if k.isupper()}
)
BUILTINS: Mapping[int, str] = MappingProxyType(
    {v: k for k, v in vars(tflite.BuiltinOperator).items() if k.isupper()}
)

NO_OPTIONS = (struct.pack("<HHi", 4, 4, 4), 4)
"""A table without fields, and where it begins: every field has its default."""
