"""ScatterElements and ScatterND: a copy of the data, then the updates in order, because order counts."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import Node, Tensor
from mace_core.lowering import Lower, Lowering
from mace_core.ops.scatter import Reduction, ScatterElementsAttributes, ScatterNDAttributes
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.gather import COORDINATES, ELEMENTS, along_axis, coordinates, index_type
from mace_target_cpu.lower.strided import MOVE
from mace_target_cpu.lower.types import c_type, unsigned_type
from mace_target_cpu.lower.view import view

COMBINED: Mapping[str, str] = {
    "none": "u",
    "add": "*p + u",
    "mul": "*p * u",
    "max": "*p > u || *p != *p ? *p : u",
    "min": "*p < u || *p != *p ? *p : u",
}
"""What becomes of element *p where it meets update u; NaN wins."""

WRAPPING: Mapping[str, str] = {
    "add": "({0})((uint64_t)*p + (uint64_t)u)",
    "mul": "({0})((uint64_t)*p * (uint64_t)u)",
}
"""Of integers, whose overflow is undefined in C: modulo their range, as in numpy."""


def _choose_types(reduction: Reduction, data: Tensor, indices: Tensor) -> tuple[str, dict[str, object]]:
    """The end of the kernel's name, and its parameters."""
    # Moved, not combined: one kernel for each size of element.
    if reduction == "none":
        bits = 8 * data.dtype.size
        return f"{bits}_{indices.dtype.value}", {
            "itype": index_type(indices),
            "ctype": unsigned_type(bits // 8),
            "combined": Code("u"),
        }
    ctype = c_type(data)
    text = (
        COMBINED[reduction]
        if data.dtype.is_float
        else WRAPPING.get(reduction, COMBINED[reduction].replace("|| *p != *p ", ""))
    )
    params: dict[str, object] = {
        "itype": index_type(indices),
        "ctype": ctype,
        "combined": Code(text.format(ctype)),
    }
    return f"{reduction}_{data.dtype.value}_{indices.dtype.value}", params


def scatter_elements(node: Node, lowering: Lowering) -> None:
    """Element by element."""
    data, indices = (lowering.tensors[t] for t in node.inputs[:2])
    if indices.elements == 0:
        view(node, lowering)
        return
    attrs = node.attributes(ScatterElementsAttributes)
    axis = attrs.axis % len(data.shape)
    rows = indices.elements // indices.shape[-1]
    walk = along_axis(data.shape, indices.shape, axis)
    # One task: indices may repeat, and then the order of updates decides.
    args: dict[str, Arg] = {**walk, "rows": rows, "grain": rows, "bytes": data.bytes}
    suffix, params = _choose_types(attrs.reduction, data, indices)
    fields = (*ELEMENTS, ("bytes", "i64"))
    kernel = Kernel(f"scatter_elements_{suffix}", KERNELS / "scatter_elements.c.in", fields, params, (MOVE,))
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


def scatter_nd(node: Node, lowering: Lowering) -> None:
    """Run by run."""
    data, indices, updates = (lowering.tensors[t] for t in node.inputs)
    if updates.elements == 0:
        view(node, lowering)
        return
    depth = indices.shape[-1]
    n = prod(data.shape[depth:])
    args = {
        **coordinates(data.shape, 0, depth, 1),
        "rows": updates.elements // n,
        "n": n,
        "bytes": data.bytes,
    }
    suffix, params = _choose_types(node.attributes(ScatterNDAttributes).reduction, data, indices)
    fields = (*COORDINATES, ("rows", "i64"), ("n", "i64"), ("bytes", "i64"))
    kernel = Kernel(f"scatter_nd_{suffix}", KERNELS / "scatter_nd.c.in", fields, params, (MOVE,))
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


LOWERINGS: Mapping[str, Lower] = {"ScatterElements": scatter_elements, "ScatterND": scatter_nd}
