"""How kernels spell element types."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Lowering, Refused
from mace_target_cpu.isa import KERNELS

CONVERT = KERNELS / "convert.h.in"
"""Floats to integers: `mace_to_int32_t(v)` and the like, by the name of the C type."""

HALF_BITS = KERNELS / "half_bits.h.in"
"""Half precision to the bits of a float: `mace_from_half(half)`."""

C_TYPES: Mapping[DType, Code] = {
    DType.BOOL: Code("uint8_t"),
    DType.I8: Code("int8_t"),
    DType.U8: Code("uint8_t"),
    DType.I16: Code("int16_t"),
    DType.U16: Code("uint16_t"),
    DType.I32: Code("int32_t"),
    DType.U32: Code("uint32_t"),
    DType.I64: Code("int64_t"),
    DType.U64: Code("uint64_t"),
    DType.F32: Code("float"),
    DType.F64: Code("double"),
}


CAST = "let the model cast it to f32 before this node"
"""What a user can do about an element type that no kernel computes."""

WRITE_KERNEL = "choose another operator in the model, or add a kernel: docs/contributing.md"
"""What can be done about an operator that no kernel computes even of f32."""

FREEZE = "export the model with this tensor as a constant"
"""What a user can do about a tensor that is computed at run time where a kernel needs to know it before."""

MERGE_AXES = "reshape in the model, so that neighboring axes become one, or split the node into several"
"""What a user can do about a node over more axes than kernels loop over."""


def refuse_type(op: str, dtype: DType) -> Refused:
    """Say that no kernel computes an op of an element type."""
    remedy = WRITE_KERNEL if dtype is DType.F32 else CAST
    return Refused(f"no kernel computes {op} of {dtype.value}", code="dtype", remedy=remedy)


def c_type(tensor: Tensor) -> Code:
    """The C type of a tensor's elements; Refused for one that kernels do not compute with."""
    if tensor.dtype not in C_TYPES:
        raise Refused(
            f"{tensor.name} is {tensor.dtype.value}, which no kernel computes with", code="dtype", remedy=CAST
        )
    return C_TYPES[tensor.dtype]


def unsigned_type(size: int) -> Code:
    """Return the C type of an unsigned integer of so many bytes, as which elements of any type are moved."""
    return Code(f"uint{8 * size}_t")


def wrap_type(dtype: DType) -> Code:
    """The unsigned C type in which sums and products of integers are computed.

    Overflow of signed integers is undefined in C, and products of uint16_t are products of (signed) int;
    unsigned ones of 32 or 64 bits wrap, and their low bits are those of the result in two's complement.
    """
    # Types below int are promoted to signed int, so 32 bits are the least.
    return Code("uint64_t" if dtype.size > 4 else "uint32_t")


def is_signed(dtype: DType) -> bool:
    """Whether it is an integer that can be negative."""
    return dtype.value[0] == "i"


def need_type(node: Node, *tensors: Tensor, dtype: DType = DType.F32) -> None:
    """Refused unless all the tensors have one element type: single precision, if none is named."""
    for tensor in tensors:
        if tensor.dtype is not dtype:
            raise refuse_type(node.op.name, tensor.dtype)


def operands(node: Node, lowering: Lowering) -> list[Tensor]:
    """Return the inputs that a node has."""
    return [lowering.tensors[name] for name in filter(None, node.inputs)]
