"""How kernels spell element types."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.ir import DType, Node, Tensor
from mace_core.program import Lowering, Refused

C_TYPES: Mapping[DType, str] = {
    DType.BOOL: "uint8_t",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
    DType.I16: "int16_t",
    DType.U16: "uint16_t",
    DType.I32: "int32_t",
    DType.U32: "uint32_t",
    DType.I64: "int64_t",
    DType.U64: "uint64_t",
    DType.F32: "float",
    DType.F64: "double",
}


def c_type(tensor: Tensor) -> str:
    """The C type of a tensor's elements; Refused for one that kernels do not compute with."""
    if tensor.dtype not in C_TYPES:
        raise Refused(f"{tensor.name} is {tensor.dtype.value}, which no kernel computes with yet")
    return C_TYPES[tensor.dtype]


def need_floats(node: Node, to: Lowering) -> None:
    """Refused unless every operand is float."""
    for name in filter(None, node.inputs):
        if to.tensors[name].dtype is not DType.F32:
            raise Refused(f"{name} is {to.tensors[name].dtype.value}; the kernel computes in f32")
