"""How kernels spell element types."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Tensor
from mace_core.program import Lowering, Refused

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


def c_type(tensor: Tensor) -> Code:
    """The C type of a tensor's elements; Refused for one that kernels do not compute with."""
    if tensor.dtype not in C_TYPES:
        raise Refused(f"{tensor.name} is {tensor.dtype.value}, which no kernel computes with yet")
    return C_TYPES[tensor.dtype]


def unsigned(size: int) -> Code:
    """Return the C type of an unsigned integer of so many bytes, as which elements of any type are moved."""
    return Code(f"uint{8 * size}_t")


def need_floats(node: Node, to: Lowering) -> None:
    """Refused unless every operand is float."""
    for name in filter(None, node.inputs):
        if to.tensors[name].dtype is not DType.F32:
            raise Refused(f"{name} is {to.tensors[name].dtype.value}; the kernel computes in f32")
