"""How OpenCL C spells element types and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mace_core.emit.text import Code
from mace_core.ir import DType, Tensor
from mace_core.lowering import Refused

C_TYPES: Mapping[DType, Code] = {
    DType.BOOL: Code("uchar"),
    DType.I8: Code("char"),
    DType.U8: Code("uchar"),
    DType.I16: Code("short"),
    DType.U16: Code("ushort"),
    DType.I32: Code("int"),
    DType.U32: Code("uint"),
    DType.I64: Code("long"),
    DType.U64: Code("ulong"),
    DType.F32: Code("float"),
}

RAW_TYPES: Mapping[DType, Code] = {DType.F16: Code("ushort"), DType.F64: Code("ulong")}
"""Types as which elements are moved that kernels do not compute with: devices need not have them."""

FLOAT, HALF = Code("float"), Code("half")
INT, SHORT = Code("int"), Code("short")

HALF_VALUE = Code("mace_half")
"""The type of numbers that are computed in half precision; see `half_arithmetic`."""

HALF_STORAGE_PRELUDE = Code(
    """\
float4 mace_widen(ushort4 bits);
float4 mace_widen(ushort4 bits) { return vload_half4(0, (__private const half *)&bits); }
ushort4 mace_narrow(float4 v);
ushort4 mace_narrow(float4 v)
{
    ushort4 bits;
    vstore_half4(v, 0, (__private half *)&bits);
    return bits;
}
"""
)
"""What stands before kernels that load or store four elements in half precision at once.

NVIDIA's compiler makes four loads of two bytes of vloada_half4, and one of eight of a ushort4. Functions of
OpenCL's core convert, which need no extension.
"""

HALF_PRELUDE = Code(
    """\
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define mace_half half
#define mace_half4 half4
#define LOAD_HALF(p, i) ((p)[i])
#define LOAD_HALF4(p, i) (*(__global const half4 *)((p) + (i)))
#define TO_HALF(v) convert_half(v)
#define TO_HALF4(v) convert_half4(v)
#define FROM_HALF(v) convert_float(v)
#define FROM_HALF4(v) convert_float4(v)
"""
)
"""What stands before kernels that compute in half precision.

Types and conversions are macros, so that tests can put a type of the compiler in the place of `half` and run
the kernels on a device without the extension.
"""

UNITS: Mapping[Code, int] = {
    HALF: 2,
    **{kind: dtype.size for dtype, kind in (*C_TYPES.items(), *RAW_TYPES.items())},
}
"""Bytes of an element as it is stored."""

CAST = "let the model cast it to f32 before this node"
"""What a user can do about an element type that no kernel computes."""

MAX_ELEMENTS = (1 << 31) - 1
"""Elements of a tensor, because kernels count in 32 bits: 64-bit divisions are slow on every GPU."""


def c_type(tensor: Tensor) -> Code:
    """Return the type in which kernels compute a tensor's elements; raises Refused if there is none."""
    if tensor.dtype not in C_TYPES:
        reason = f"{tensor.name} is {tensor.dtype.value}, which no OpenCL kernel computes with"
        raise Refused(reason, code="dtype", remedy=CAST)
    return C_TYPES[tensor.dtype]


def storage_type(tensor: Tensor) -> Code:
    """Return the type as which a tensor's elements are loaded and stored."""
    return C_TYPES.get(tensor.dtype) or RAW_TYPES[tensor.dtype]


def value_type(storage: Code) -> Code:
    """Return the type of a loaded element: half precision is a form of storage, computed in float."""
    return Code("float") if storage == HALF else storage


def refuse_type(op: str, dtype: DType) -> Refused:
    """Return the refusal of an op for an element type."""
    remedy = CAST if dtype is not DType.F32 else "choose another operator in the model"
    return Refused(f"no OpenCL kernel computes {op} of {dtype.value}", code="dtype", remedy=remedy)


def need_floats(*tensors: Tensor) -> None:
    """Raise Refused unless every tensor is f32."""
    for tensor in tensors:
        if tensor.dtype is not DType.F32:
            reason = f"{tensor.name} is {tensor.dtype.value}; the OpenCL kernel computes in f32"
            raise Refused(reason, code="dtype", remedy=CAST)


def literal(value: float) -> Code:
    """Return a float constant of OpenCL C, exactly; without the suffix it would be a double."""
    if math.isnan(value):
        return Code("NAN")
    if math.isinf(value):
        return Code("INFINITY" if value > 0 else "(-INFINITY)")
    text = repr(float(value))
    return Code(f"({text}f)" if value < 0 else f"{text}f")


def integer_literal(value: int, dtype: DType) -> Code:
    """Return an integer constant of OpenCL C."""
    # U32 needs no suffix: OpenCL C gives a constant beyond int the type long, which holds it.
    suffix = {DType.U64: "UL", DType.I64: "L"}.get(dtype, "")
    if dtype is DType.I64 and value == -(1 << 63):
        return Code("LONG_MIN")  # its magnitude is no long
    return Code(f"({value}{suffix})")
