"""Sliding windows as TensorFlow states them: a stride for every axis, padding by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mace_core.decompositions import same_paddings
from mace_core.importer import to_first, to_last
from mace_core.ir import Shape
from mace_frontend_tensorflow.node import CUT_BEFORE, TensorFlowNode

FORMATS = ("NHWC", "NCHW", "NDHWC", "NCDHW", "NWC", "NCW")


@dataclass(frozen=True)
class AxisOrder:
    """The order of a tensor's axes.

    channels_first: whether the channels come before the spatial axes.
    rank: the number of axes.
    """

    channels_first: bool
    rank: int

    def spatial(self, values: Sequence[int]) -> tuple[int, ...]:
        """Return, of one value for each axis, those of the spatial axes."""
        return tuple(values[2:] if self.channels_first else values[1:-1])

    def batch_and_channels(self, values: Sequence[int]) -> tuple[int, ...]:
        """Return, of one value for each axis, those of batch and channels."""
        return (values[0], values[1 if self.channels_first else -1])


def axis_order(node: TensorFlowNode, index: int = 0) -> AxisOrder:
    """Return the axis order of operand `index`, which must have a batch, spatial axes and channels."""
    rank = node.rank(index)
    node.refuse_unless(rank >= 3, f"its input has rank {rank}; it needs a batch, spatial axes and channels")
    name = node.attr("data_format", "NHWC")
    # NCHW_VECT_C packs four channels of int8 into one element, for GPUs.
    node.refuse_unless(name in FORMATS, f"data_format {name!r} is not supported", CUT_BEFORE)
    return AxisOrder(name.startswith("NC"), rank)


def channels_last(node: TensorFlowNode, tensor: str, order: AxisOrder) -> str:
    """Return a tensor with its channels last, as spatial ops of the IR read it."""
    if not order.channels_first:
        return tensor
    return node.emit("Transpose", [tensor], {"perm": to_last(order.rank)}, tag="channels-last")


def done_in_order(
    node: TensorFlowNode, op: str, inputs: Sequence[str], attrs: Mapping[str, Any], order: AxisOrder
) -> Sequence[str]:
    """Add the node's output in its own axis order, computed by an op that has the channels last."""
    if not order.channels_first:
        return node.done(op, inputs, attrs)
    return node.done("Transpose", [node.emit(op, inputs, attrs)], {"perm": to_first(order.rank)})


def per_axis(node: TensorFlowNode, name: str, order: AxisOrder, default: int | None = None) -> Shape:
    """Return the values of a list attribute for the spatial axes.

    RefusedError if the other axes have another value than 1: TensorFlow has no kernel for that either.
    """
    fallback = (default,) * order.rank if default is not None else ()
    values = node.attr(name, fallback) or fallback
    node.refuse_unless(len(values) == order.rank, f"it has {name} {list(values)} for {order.rank} axes")
    node.refuse_unless(
        order.batch_and_channels(values) == (1, 1),
        f"it has {name} {list(values)}, which must be 1 for batch and channels",
    )
    return order.spatial(values)


def reach(kernel: Sequence[int], dilations: Sequence[int]) -> Shape:
    """Return how many elements a window spans along each axis."""
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))


def paddings(
    node: TensorFlowNode,
    size: Sequence[int],
    extent: Sequence[int],
    strides: Sequence[int],
    order: AxisOrder,
) -> tuple[Shape, Shape]:
    """Return the padding before and after each spatial axis.

    SAME makes as many windows as strides fit into the input, and puts the odd row of padding behind it
    (tensorflow/core/framework/common_shape_fns.cc, GetWindowedOutputSizeVerbose).
    size: of the input.  extent: how many elements a window spans.
    """
    padding = node.attr("padding", "")
    if padding == "VALID":
        return (0,) * len(size), (0,) * len(size)
    if padding == "EXPLICIT":
        # Pairs for all axes, batch and channels among them.
        pads = node.attr("explicit_paddings", ())
        node.refuse_unless(
            len(pads) == 2 * order.rank and min(pads) >= 0,
            f"it has explicit_paddings {list(pads)} for {order.rank} axes",
        )
        return order.spatial(pads[::2]), order.spatial(pads[1::2])
    node.refuse_unless(padding == "SAME", f"padding {padding!r} is not supported")
    node.refuse_unless(min(strides) >= 1, f"its strides are {list(strides)}; each must be at least 1")
    return same_paddings(tuple(size), tuple(extent), tuple(strides))
