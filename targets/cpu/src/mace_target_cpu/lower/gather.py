"""Gather, GatherElements, GatherND: positions known at run time.

What they name is moved by its size alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Shape, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.gather import GatherAttributes, GatherNDAttributes
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.strided import MOVE, RANK, chunks, dense
from mace_target_cpu.lower.types import C_TYPES, MERGE_AXES, unsigned_type

ROWS = (("rows", "i64"), ("grain", "i64"))
WALK = (("count", "i64[8]"), ("read", "i64[8]"), ("write", "i64[8]"), *ROWS)
ELEMENTS = (*WALK, ("n", "i64"), ("step", "i64"), ("size", "i64"), ("along", "i64"))
COORDINATES = (("depth", "i64"), ("size", "i64[8]"), ("step", "i64[8]"))


def index_type(indices: Tensor) -> Code:
    """The C type of indices; Refused for u64, of which not every number is a signed one."""
    if indices.dtype is DType.U64:
        raise Refused("its indices have type u64", code="dtype", remedy="let the model cast them to i64")
    return C_TYPES[indices.dtype]


def along_axis(data: Shape, indices: Shape, axis: int) -> dict[str, Arg]:
    """The arguments of ELEMENTS, less the tasks.

    Loops over the indices; `read` leads to the same place in data, at index 0 of the axis.
    """
    lead = RANK + 1 - len(indices)
    if lead < 0:
        raise Refused(
            f"its indices have {len(indices)} axes; the kernels loop over {RANK + 1}",
            code="shape",
            remedy=MERGE_AXES,
        )
    # Along the axis itself nothing is read by walking: the index says where.
    steps = dense(data)
    read = [0] * lead + [0 if i == axis else step for i, step in enumerate(steps)]
    counts, write = [1] * lead + list(indices), [0] * lead + list(dense(indices))
    return {
        "count": tuple(counts[:-1]),
        "read": tuple(read[:-1]),
        "write": tuple(write[:-1]),
        "n": counts[-1],
        "step": read[-1],
        "size": data[axis],
        "along": steps[axis],
    }


def coordinates(data: Shape, first: int, depth: int, unit: int) -> dict[str, Arg]:
    """The arguments of COORDINATES: sizes and steps of `depth` axes from `first` on, `unit` to an element."""
    # The kernel's arguments hold sizes and steps of so many axes.
    if depth > RANK:
        raise Refused(
            f"an index has {depth} coordinates; the kernel takes {RANK}", code="shape", remedy=MERGE_AXES
        )
    rest = (0,) * (RANK - depth)
    steps = [step * unit for step in dense(data)[first : first + depth]]
    return {"depth": depth, "size": (*data[first : first + depth], *rest), "step": (*steps, *rest)}


def gather(node: Node, lowering: Lowering) -> None:
    """Copy a run of bytes for every index, for everything before the axis."""
    data, indices = (lowering.tensors[t] for t in node.inputs)
    y = lowering.tensors[node.outputs[0]]
    if y.elements == 0:
        return
    axis = node.attributes(GatherAttributes).axis % len(data.shape)
    bytes_ = prod(data.shape[axis + 1 :]) * data.dtype.size
    rows = chunks(prod(data.shape[:axis]) * indices.elements, bytes_)
    args = {"n": indices.elements, "count": data.shape[axis], "bytes": bytes_, **rows}
    fields = (("n", "i64"), ("count", "i64"), ("bytes", "i64"), *ROWS)
    params = {"itype": index_type(indices)}
    kernel = Kernel(f"gather_{indices.dtype.value}", KERNELS / "gather.c.in", fields, params, (MOVE,))
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


def gather_elements(node: Node, lowering: Lowering) -> None:
    """Pick element by element."""
    data, indices = (lowering.tensors[t] for t in node.inputs)
    if indices.elements == 0:
        return
    args = along_axis(data.shape, indices.shape, node.attributes(GatherAttributes).axis % len(data.shape))
    n = indices.shape[-1]
    bits = 8 * data.dtype.size
    params = {"itype": index_type(indices), "ctype": unsigned_type(data.dtype.size)}
    name = f"gather_elements_{bits}_{indices.dtype.value}"
    kernel = Kernel(name, KERNELS / "gather_elements.c.in", ELEMENTS, params, (MOVE,))
    lowering.call(
        node,
        Call(
            kernel, {**args, **chunks(indices.elements // n, n * data.dtype.size)}, node.inputs, node.outputs
        ),
    )


def gather_nd(node: Node, lowering: Lowering) -> None:
    """Copy a run of bytes for every vector of indices."""
    data, indices = (lowering.tensors[t] for t in node.inputs)
    if lowering.tensors[node.outputs[0]].elements == 0:
        return
    batch, depth = node.attributes(GatherNDAttributes).batch_dims, indices.shape[-1]
    bytes_ = prod(data.shape[batch + depth :]) * data.dtype.size
    args = {
        **coordinates(data.shape, batch, depth, data.dtype.size),
        "batch": prod(indices.shape[batch:-1]),
        "batch_bytes": prod(data.shape[batch:]) * data.dtype.size,
        "bytes": bytes_,
        **chunks(prod(indices.shape[:-1]), bytes_),
    }
    fields = (*COORDINATES, ("batch", "i64"), ("batch_bytes", "i64"), ("bytes", "i64"), *ROWS)
    params = {"itype": index_type(indices)}
    kernel = Kernel(f"gather_nd_{indices.dtype.value}", KERNELS / "gather_nd.c.in", fields, params, (MOVE,))
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


LOWERINGS: Mapping[str, Lower] = {"Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd}
