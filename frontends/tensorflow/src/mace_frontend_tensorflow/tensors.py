"""Constants as TensorFlow writes them: a TensorProto as an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, DType, Shape
from mace_frontend_tensorflow.messages import DataType, TensorProto, TensorShapeProto

DTYPES: Mapping[int, DType] = MappingProxyType(
    {
        1: DType.F32,
        2: DType.F64,
        3: DType.I32,
        4: DType.U8,
        5: DType.I16,
        6: DType.I8,
        9: DType.I64,
        10: DType.BOOL,
        17: DType.U16,
        19: DType.F16,
        22: DType.U32,
        23: DType.U64,
    }
)
"""TensorFlow's element types (types.proto) that the IR holds."""

STRING = 7
REFERENCE = 100
"""What is added to the number of a type for a reference to a variable of it."""

VALUES: Mapping[DType, str] = MappingProxyType(
    {
        DType.F32: "float_val",
        DType.F64: "double_val",
        DType.I32: "int_val",
        DType.U8: "int_val",
        DType.I16: "int_val",
        DType.I8: "int_val",
        DType.U16: "int_val",
        DType.I64: "int64_val",
        DType.BOOL: "bool_val",
        DType.F16: "half_val",
        DType.U32: "uint32_val",
        DType.U64: "uint64_val",
    }
)
"""The field of a TensorProto that holds elements one by one."""

MOST_BYTES = 1 << 28
"""Bytes up to which a constant whose file holds fewer elements than its shape is written out."""


def element_type(code: int) -> DType:
    """The IR's element type for TensorFlow's; ValueError for one that the IR does not hold."""
    plain = code - REFERENCE if code > REFERENCE else code
    if plain not in DTYPES:
        name = DataType.Name(plain).removeprefix("DT_").lower() if plain in DataType.values() else str(code)
        raise ValueError(
            f"its elements are of type {name}, which is not supported; convert the model to float32"
        )
    return DTYPES[plain]


def dims(shape: TensorShapeProto) -> tuple[int | None, ...] | None:
    """The dimensions of a shape, None for each that it leaves open.

    None where not even their number is known.
    """
    return None if shape.unknown_rank else tuple(int(d.size) if d.size >= 0 else None for d in shape.dim)


def complete(shape: TensorShapeProto) -> Shape:
    """A shape that must be known; ValueError if it is not."""
    found = dims(shape)
    if found is None or None in found:
        raise ValueError("its shape is not known")
    return tuple(d for d in found if d is not None)


def is_fill(tensor: TensorProto) -> bool:
    """Whether the file holds one element for all."""
    return not tensor.tensor_content and prod(complete(tensor.tensor_shape)) > 1 and len(_listed(tensor)) <= 1


def _listed(tensor: TensorProto) -> Sequence[int | float | bool]:
    listed: Sequence[int | float | bool] = getattr(tensor, VALUES[element_type(tensor.dtype)])
    return listed


def array(tensor: TensorProto) -> Array:
    """The elements of a TensorProto (tensorflow/core/framework/tensor.proto); ValueError if it is malformed.

    They stand as bytes, or one by one; the last one listed also stands for all that follow, and none listed
    for zeros.
    """
    dtype, shape = element_type(tensor.dtype), complete(tensor.tensor_shape)
    count = prod(shape)
    if tensor.tensor_content:
        found = len(tensor.tensor_content)
        if found != count * dtype.size:
            raise ValueError(f"its constant has {found} bytes for a shape of {list(shape)}")
        return np.frombuffer(tensor.tensor_content, dtype.numpy.newbyteorder("<")).reshape(shape)
    listed = _listed(tensor)
    if len(listed) > count:
        raise ValueError(f"its constant has {len(listed)} elements for a shape of {list(shape)}")
    if len(listed) < count and count * dtype.size > MOST_BYTES:
        raise ValueError(f"its constant of shape {list(shape)} is too large to be written out")
    values = _elements(listed, dtype)
    return np.concatenate(
        [values, np.full(count - len(values), values[-1] if len(values) else 0, dtype.numpy)]
    ).reshape(shape)


def element(tensor: TensorProto) -> Array:
    """The one element that stands for all."""
    dtype = element_type(tensor.dtype)
    values = _elements(_listed(tensor), dtype)
    return values[0].reshape(()) if len(values) else np.zeros((), dtype.numpy)


def _elements(listed: Sequence[int | float | bool], dtype: DType) -> Array:
    if dtype is DType.F16:  # halves are listed as the numbers that their bits make
        return np.asarray(np.asarray(listed, np.uint32).astype(np.uint16).view(np.float16))
    wide = {"f": np.float64, "b": np.bool_, "u": np.uint64}.get(dtype.numpy.kind, np.int64)
    return np.asarray(listed, wide).astype(dtype.numpy)


def texts(tensor: TensorProto) -> tuple[str, ...]:
    """The elements of a tensor of texts."""
    return (
        tuple(value.decode(errors="replace") for value in tensor.string_val) if tensor.dtype == STRING else ()
    )
