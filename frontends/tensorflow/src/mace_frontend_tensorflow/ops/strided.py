"""StridedSlice: Python's subscripts, written as numbers and bit masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.decompositions import StridedSlice
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.values import OptionalValue

# Bit i of a mask belongs to the i-th subscript, as in strided_slice_op.cc.
MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def _strided_slice(node: TensorFlowNode) -> Sequence[OptionalValue]:
    begin, end, strides = node.ints(1, "begin"), node.ints(2, "end"), node.ints(3, "strides")
    node.refuse_unless(
        len(begin) == len(end) == len(strides),
        f"it has {len(begin)} begins, {len(end)} ends and {len(strides)} strides",
    )
    masks = [node.attr(name, 0) for name in MASKS]
    return node.done_steps_of(0, StridedSlice(begin, end, strides, *masks).steps(node.shape(0)))


HANDLERS: Mapping[str, Handler] = MappingProxyType({"StridedSlice": _strided_slice})
