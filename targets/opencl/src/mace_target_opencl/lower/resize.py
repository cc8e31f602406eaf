"""Resize: by tables of places and weights along each axis, made at build time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mace_core.emit.text import Code
from mace_core.ir import Node, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.resize import ResizeAttributes, Taps, axis_taps
from mace_target_opencl.enqueue import GROUP, Launch, enqueue
from mace_target_opencl.lower.join import constant_of
from mace_target_opencl.types import need_floats, storage_type
from mace_target_opencl.views import dense

MAX_TABLE = 1 << 22
"""Elements of a resized axis: a damaged size would otherwise take more memory than a machine has."""


def resize(node: Node, lowering: Lowering) -> None:
    """Append one call that resizes along every axis, in any mode."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if max(y.shape, default=0) > MAX_TABLE:
        reason = (
            f"resizes an axis to {max(y.shape)}; its table of positions holds at most {MAX_TABLE} elements"
        )
        raise Refused(reason, code="too-large", remedy="state a smaller shape under input_shapes")
    attrs = node.attributes(ResizeAttributes)
    if attrs.mode != "nearest":
        need_floats(x)
    tables: dict[str, str] = {}
    axes = []
    for axis, (size, behind, step) in enumerate(zip(x.shape, dense(y.shape), dense(x.shape), strict=True)):
        taps = axis_taps(attrs, axis, size)
        count = 0 if taps.is_identity(size) else taps.indices.shape[1]
        if count:
            tables |= _add_tables(lowering, y, axis, taps)
        axes.append((axis, behind, y.shape[axis], step, count, count > 1))
    is_wide = bool(axes) and axes[-1][4] == 0 and y.shape[-1] % 4 == 0
    width = 4 if is_wide else 1
    constants = {
        "count": y.elements,
        "width": width,
        "axes": tuple(axes),
        "blends": any(axis[5] for axis in axes),
        "fill": constant_of(attrs.extrapolation, x.dtype, node.op.name),
        "type": storage_type(x),
    }
    launch = Launch(
        "resize",
        {"x": x.name, **tables},
        {"y": y.name},
        (y.elements // width,),
        constants,
        (GROUP,),
        (),
        {name: Code("int") for name in tables if name.startswith("p")},
    )
    enqueue(lowering, node, launch)


def _add_tables(lowering: Lowering, y: Tensor, axis: int, taps: Taps) -> dict[str, str]:
    """Add the tables of an axis as constants; return them by the operand's name."""
    places = np.where(taps.outside[:, None], -1, taps.indices).astype(np.int32)
    names = {f"p{axis}": lowering.weight(f"{y.name}.{axis}.places", places.shape, "int32", lambda: places)}
    if places.shape[1] > 1:
        weights = taps.weights.astype(np.float32)
        name = lowering.weight(f"{y.name}.{axis}.weights", weights.shape, "float32", lambda: weights)
        names[f"c{axis}"] = name
    return names


LOWERINGS: Mapping[str, Lower] = {"Resize": resize}
