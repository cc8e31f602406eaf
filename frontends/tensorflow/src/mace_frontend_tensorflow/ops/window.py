"""Sliding windows as TensorFlow states them: strides for every axis, padding by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mace_core.decompositions import same_paddings
from mace_core.ir import Shape
from mace_frontend_tensorflow.node import TensorFlowNode


@dataclass(frozen=True)
class Layout:
    """How a tensor's axes lie. first: whether the channels come before the spatial axes."""

    first: bool
    rank: int

    @property
    def to_last(self) -> tuple[int, ...]:
        """The permutation to [N, *spatial, C]."""
        return (0, *range(2, self.rank), 1)

    @property
    def to_first(self) -> tuple[int, ...]:
        """The permutation from [N, *spatial, C]."""
        return (0, self.rank - 1, *range(1, self.rank - 1))

    def spatial(self, values: Sequence[int]) -> tuple[int, ...]:
        """Of one value for each axis, those of the spatial axes."""
        return tuple(values[2:] if self.first else values[1:-1])

    def others(self, values: Sequence[int]) -> tuple[int, ...]:
        """Of one value for each axis, those of batch and channels."""
        return (values[0], values[1 if self.first else -1])


def layout(node: TensorFlowNode, index: int = 0) -> Layout:
    """The layout of operand `index`, which has a batch, spatial axes and channels."""
    rank = node.rank(index)
    node.refuse_unless(rank >= 3, f"its input has rank {rank}; it needs a batch, spatial axes and channels")
    form = node.attr("data_format", "NHWC")
    node.refuse_unless(
        form in ("NHWC", "NCHW", "NDHWC", "NCDHW", "NWC", "NCW"), f"data_format {form!r} is not supported"
    )
    return Layout(form.startswith("NC"), rank)


def channels_last(node: TensorFlowNode, tensor: str, how: Layout) -> str:
    """A tensor with its channels last."""
    return (
        node.emit("Transpose", [tensor], {"perm": how.to_last}, tag="channels-last") if how.first else tensor
    )


def finished(
    node: TensorFlowNode, op: str, inputs: Sequence[str], attrs: Mapping[str, Any], how: Layout
) -> Sequence[str]:
    """The node's output, computed by an op that has channels last, in the node's own layout."""
    if not how.first:
        return node.done(op, inputs, attrs)
    return node.done("Transpose", [node.emit(op, inputs, attrs)], {"perm": how.to_first})


def per_axis(node: TensorFlowNode, name: str, how: Layout, default: int | None = None) -> Shape:
    """A list attribute's values along the spatial axes.

    RefusedError if it wants another thing than 1 of the other axes.
    """
    fallback = (default,) * how.rank if default is not None else ()
    values = node.attr(name, fallback) or fallback
    node.refuse_unless(
        len(values) == how.rank, f"{name} {list(values)} for {how.rank} axes; export the model again"
    )
    node.refuse_unless(
        how.others(values) == (1, 1),
        f"{name} {list(values)} of batch or channels; only spatial axes are supported",
    )
    return how.spatial(values)


def reach(kernel: Sequence[int], dilations: Sequence[int]) -> Shape:
    """What a window spans along each axis."""
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))


def paddings(
    node: TensorFlowNode, size: Sequence[int], extent: Sequence[int], strides: Sequence[int], how: Layout
) -> tuple[Shape, Shape]:
    """Rows of padding before and after (tensorflow/core/framework/common_shape_fns.cc, GetWindowedOutputSizeVerbose).

    SAME: as many windows as strides fit into the input, the odd row of padding after it.
    """
    padding = node.attr("padding", "")
    if padding == "VALID":
        return (0,) * len(size), (0,) * len(size)
    if padding == "EXPLICIT":
        pads = node.attr("explicit_paddings", ())
        node.refuse_unless(
            len(pads) == 2 * how.rank and min(pads) >= 0,
            f"explicit_paddings {list(pads)} for {how.rank} axes",
        )
        return how.spatial(pads[::2]), how.spatial(pads[1::2])
    node.refuse_unless(padding == "SAME", f"padding {padding!r} is not supported")
    node.refuse_unless(min(strides) >= 1, f"strides {list(strides)}; each must be at least 1")
    return same_paddings(tuple(size), tuple(extent), tuple(strides))
