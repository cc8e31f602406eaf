"""StridedSlice: Python's subscripts, told by numbers and masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.decompositions import StridedSlice
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler

MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def _strided(node: TensorFlowNode) -> Sequence[Held]:
    begin, end, strides = (node.ints(i, what) for i, what in ((1, "begin"), (2, "end"), (3, "strides")))
    node.refuse_unless(
        len(begin) == len(end) == len(strides),
        f"{len(begin)} begins, {len(end)} ends, {len(strides)} strides",
    )
    masks = [node.attr(name, 0) for name in MASKS]
    return node.done_steps_of(0, StridedSlice(begin, end, strides, *masks).steps(node.shape(0)))


HANDLERS: Mapping[str, Handler] = MappingProxyType({"StridedSlice": _strided})
