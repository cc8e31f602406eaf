"""ScatterElements and ScatterND: updates are applied in their order, as the references do."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Lower, Lowering
from mace_core.ops.scatter import ScatterElementsAttributes, ScatterNDAttributes
from mace_core.ops.shapes import axis_of
from mace_target_opencl.enqueue import GROUP, Launch, enqueue
from mace_target_opencl.lower.lines import view_lines
from mace_target_opencl.lower.unary import wrap_type
from mace_target_opencl.types import RAW_TYPES, c_type, refuse_type, storage_type
from mace_target_opencl.views import dense


def _join(node: Node, x: Tensor, reduction: str) -> Code:
    """Return how an element `a` is combined with its update `v`."""
    if reduction == "none":
        return Code("v")
    if x.dtype in RAW_TYPES:
        raise refuse_type(node.op.name, x.dtype)
    cast = "" if x.dtype.is_float else f"({wrap_type(x.dtype)})"
    is_nan = " || a != a" if x.dtype.is_float else ""
    table = {
        "add": f"{cast}a + {cast}v",
        "mul": f"{cast}a * {cast}v",
        "max": f"a > v{is_nan} ? a : v",
        "min": f"a < v{is_nan} ? a : v",
    }
    return Code(table[reduction])


def scatter_elements(node: Node, lowering: Lowering) -> None:
    """Single elements along one axis, an index for each."""
    x, indices, updates = (lowering.tensors[name] for name in node.inputs)
    attrs = node.attributes(ScatterElementsAttributes)
    axis = axis_of(attrs.axis, len(x.shape))
    c_type(indices)  # refuses what no kernel computes with
    others = [other for other in range(len(x.shape)) if other != axis]
    behind = dense([x.shape[other] for other in others])
    steps = dense(updates.shape)
    axes = tuple(
        (inner, x.shape[other], updates.shape[other], steps[other])
        for inner, other in zip(behind, others, strict=True)
    )
    lines = prod(x.shape[other] for other in others)
    constants = {
        "lines": lines,
        "length": x.shape[axis],
        "step": dense(x.shape)[axis],
        "outer": view_lines(x.shape, axis),
        "axes": axes,
        "updates": updates.shape[axis],
        "update_step": steps[axis],
        "unsigned": indices.dtype is DType.U64,
        "type": storage_type(x),
        "join": _join(node, x, attrs.reduction),
    }
    reads = {"x": x.name, "indices": indices.name, "updates": updates.name}
    launch = Launch("scatter_elements", reads, {"y": node.outputs[0]}, (lines,), constants, (GROUP,))
    enqueue(lowering, node, launch)


def scatter_nd(node: Node, lowering: Lowering) -> None:
    """Slices at coordinates of several axes."""
    x, indices, updates = (lowering.tensors[name] for name in node.inputs)
    attrs, depth = node.attributes(ScatterNDAttributes), indices.shape[-1]
    c_type(indices)  # refuses what no kernel computes with
    inner = prod(x.shape[depth:])
    constants = {
        "inner": inner,
        "slices": prod(x.shape[:depth]),
        "updates": prod(indices.shape[:-1]) if updates.elements else 0,
        "entries": tuple(zip(x.shape[:depth], dense(x.shape[:depth]), strict=True)),
        "unsigned": indices.dtype is DType.U64,
        "type": storage_type(x),
        "join": _join(node, x, attrs.reduction),
    }
    reads = {"x": x.name, "indices": indices.name, "updates": updates.name}
    launch = Launch("scatter_nd", reads, {"y": node.outputs[0]}, (inner,), constants, (GROUP,))
    enqueue(lowering, node, launch)


LOWERINGS: Mapping[str, Lower] = {"ScatterElements": scatter_elements, "ScatterND": scatter_nd}
