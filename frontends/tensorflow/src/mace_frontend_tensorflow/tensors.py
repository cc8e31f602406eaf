"""Reads constants: the arrays of TensorProto messages."""

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
"""What version 1 adds to the number of a type for a reference to a variable of it."""

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
"""The field of a TensorProto that lists elements one by one."""

MAX_FILL_BYTES = 1 << 28
"""Bytes of a constant whose file lists a part of its elements: damaged files must not make huge ones."""


def element_type(code: int) -> DType:
    """Return the IR's element type for TensorFlow's; ValueError for one that the IR does not hold."""
    plain = code - REFERENCE if code > REFERENCE else code
    if plain not in DTYPES:
        name = DataType.Name(plain).removeprefix("DT_").lower() if plain in DataType.values() else str(code)
        raise ValueError(
            f"its elements are of type {name}, which is not supported; convert the model to float32"
        )
    return DTYPES[plain]


def dims(shape: TensorShapeProto) -> tuple[int | None, ...] | None:
    """Return the dimensions of a shape, None for each that is open; None if their number is unknown."""
    if shape.unknown_rank:
        return None
    return tuple(int(dim.size) if dim.size >= 0 else None for dim in shape.dim)


def complete_shape(shape: TensorShapeProto) -> Shape:
    """Return a shape that must be known; ValueError if it is not."""
    sizes = dims(shape)
    if sizes is None or None in sizes:
        raise ValueError("its shape is not known")
    return tuple(size for size in sizes if size is not None)


def is_fill(tensor: TensorProto) -> bool:
    """Tell whether the file holds one element for all."""
    count = prod(complete_shape(tensor.tensor_shape))
    return not tensor.tensor_content and count > 1 and len(_listed_elements(tensor)) <= 1


def _listed_elements(tensor: TensorProto) -> Sequence[int | float | bool]:
    listed: Sequence[int | float | bool] = getattr(tensor, VALUES[element_type(tensor.dtype)])
    return listed


def array(tensor: TensorProto) -> Array:
    """Return the elements of a TensorProto; ValueError if it is malformed.

    The file (tensorflow/core/framework/tensor.proto) has their bytes, or lists them one by one. The last
    listed one also stands for all that follow, and an empty list for zeros.
    """
    dtype, shape = element_type(tensor.dtype), complete_shape(tensor.tensor_shape)
    count = prod(shape)
    if tensor.tensor_content:
        size = len(tensor.tensor_content)
        if size != count * dtype.size:
            raise ValueError(f"its constant has {size} bytes for a shape of {list(shape)}")
        return np.frombuffer(tensor.tensor_content, dtype.numpy.newbyteorder("<")).reshape(shape)
    listed = _listed_elements(tensor)
    if len(listed) > count:
        raise ValueError(f"its constant has {len(listed)} elements for a shape of {list(shape)}")
    if len(listed) < count and count * dtype.size > MAX_FILL_BYTES:
        raise ValueError(
            f"its constant of shape {list(shape)} is too large, as the file holds a part of its elements"
        )
    values = _convert_elements(listed, dtype)
    last = values[-1] if len(values) else 0
    return np.concatenate([values, np.full(count - len(values), last, dtype.numpy)]).reshape(shape)


def element(tensor: TensorProto) -> Array:
    """Return the one element that stands for all."""
    dtype = element_type(tensor.dtype)
    values = _convert_elements(_listed_elements(tensor), dtype)
    return values[0].reshape(()) if len(values) else np.zeros((), dtype.numpy)


def _convert_elements(listed: Sequence[int | float | bool], dtype: DType) -> Array:
    if dtype is DType.F16:
        # Halves are listed as the integers that their bits make: protobuf has no type for them.
        return np.asarray(np.asarray(listed, np.uint32).astype(np.uint16).view(np.float16))
    # The lists have wider types than the tensor, such as int_val for int8: numpy would refuse what does not
    # fit.
    wide = {"f": np.float64, "b": np.bool_, "u": np.uint64}.get(dtype.numpy.kind, np.int64)
    return np.asarray(listed, wide).astype(dtype.numpy)


def strings(tensor: TensorProto) -> tuple[str, ...]:
    """Return the elements of a tensor of strings; none for a tensor of another type."""
    if tensor.dtype != STRING:
        return ()
    return tuple(value.decode(errors="replace") for value in tensor.string_val)
