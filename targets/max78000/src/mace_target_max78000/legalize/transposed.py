"""Rewrites transposed convolutions and Resize to the one kernel that doubles rows and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from mace_core.ir import Array
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.conv_transpose import ConvTransposeAttributes
from mace_core.ops.resize import ResizeAttributes, axis_taps
from mace_core.rewrite import Match
from mace_frontend_ai8x.network import Operation
from mace_target_max78000.device import KERNELS
from mace_target_max78000.legalize.copies import IMAGE_AXES, UNIT_QUANT, copying_filters, plain_window
from mace_target_max78000.legalize.refusals import NoEquivalentError
from mace_target_max78000.legalize.window_plans import IMAGE_RANK, PADS

((TRANSPOSED_KERNEL, _),) = KERNELS[Operation.CONV_TRANSPOSE2D]
"""The hardware's only kernel of a transposed convolution.

Its stride is 2, and it makes 2 n + 2 - 2 pad of n.
"""

DOUBLING = {"strides": (2, 2), "output_padding": (1, 1)}
"""Attributes of the hardware's transposed convolution, besides its padding."""


def rewrite_transposed(match: Match) -> Sequence[str] | None:
    """Rewrite a transposed convolution: stride 1 to a convolution, stride 2 to the hardware's kernel."""
    node = match.node
    if node.op.name != "ConvTranspose":
        return None
    group = node.attributes(ConvTransposeAttributes).group
    if group > 1:
        raise NoEquivalentError(f"it is a transposed convolution in {group} groups; use one group")
    rewrite = TransposedRewrite(match, match.new.weights[node.inputs[1]])
    return rewrite.as_convolution() if set(rewrite.strides) == {1} else rewrite.as_doubling()


class _AxisPlan(NamedTuple):
    """The places of the taps in the hardware's kernel, its padding, and the size that it makes."""

    places: tuple[int, ...]
    pad: int
    size: int


class TransposedRewrite:
    """A transposed convolution.  w: filters [O, *kernel, I]."""

    def __init__(self, match: Match, w: Array) -> None:
        self.match, self.w = match, w
        attrs = match.node.attributes(ConvTransposeAttributes)
        self.strides, self.dilations, self.before = attrs.strides, attrs.dilations, attrs.pads_before
        self.size = match.new.tensors[match.node.inputs[0]].shape[1:-1]
        inputs = [match.new.tensors[name].real if name else None for name in match.node.inputs]
        self.count = match.node.op.infer(inputs, attrs)[0][1][1:-1]

    def as_convolution(self) -> Sequence[str]:
        """Emit a convolution with the kernel reversed, over as much padding as it reaches."""
        kernel = self.w.shape[1:-1]
        extents = [(k - 1) * d for k, d in zip(kernel, self.dilations, strict=True)]
        before = tuple(extent - pad for extent, pad in zip(extents, self.before, strict=True))
        sizes = zip(self.count, extents, self.size, before, strict=True)
        after = tuple(results + extent - size - pad for results, extent, size, pad in sizes)
        if min(*before, *after) < 0:
            raise NoEquivalentError("its padding is larger than its kernel; make the padding smaller")
        reversed_filters = np.flip(self.w, tuple(range(1, self.w.ndim - 1)))
        attrs = {**plain_window(before), "pads_after": after, "dilations": self.dilations}
        return self._emit("Conv", reversed_filters, attrs, self.match.node.outputs)

    def as_doubling(self) -> Sequence[str] | None:
        """Emit the hardware's kernel with stride 2, and a crop of what is too much; None if it can stay."""
        kernel = self.w.shape[1:-1]
        if set(self.strides) != {2} or len(kernel) != IMAGE_AXES:
            problem = f"its strides are {list(self.strides)} over {len(kernel)} axes"
            raise NoEquivalentError(f"{problem}; use stride 2 over rows and columns of an image")
        rows, columns = (self._plan_axis(axis) for axis in range(IMAGE_AXES))
        pads, sizes = (rows.pad, columns.pad), (rows.size, columns.size)
        if self._is_native(pads, sizes):
            return None
        shape = (len(self.w), TRANSPOSED_KERNEL, TRANSPOSED_KERNEL, self.w.shape[-1])
        filters = np.zeros(shape, self.w.dtype)
        for row, column in product(*map(range, kernel)):
            filters[:, rows.places[row], columns.places[column]] = self.w[:, row, column]
        attrs = {**plain_window(pads), **DOUBLING}
        if sizes == self.count:
            return self._emit("ConvTranspose", filters, attrs, self.match.node.outputs)
        builder, node = self.match.new, self.match.node
        # The hardware always makes one row and column more (output padding 1); they are cropped.
        name = builder.stored(f"{node.name}.full", builder.storages.get(node.outputs[0]))
        full = self._emit("ConvTranspose", filters, attrs, [name])
        result = (1, *self.count, len(self.w))
        return self.match.emit("Slice", full, {"starts": (0,) * 4, "sizes": result, "steps": (1,) * 4})

    def _is_native(self, pads: tuple[int, int], sizes: tuple[int, int]) -> bool:
        """Whether the node is the hardware's transposed convolution already."""
        if self.w.shape[1:-1] != (TRANSPOSED_KERNEL,) * 2 or sizes != self.count or pads != self.before:
            return False
        attrs = self.match.node.attributes(ConvTransposeAttributes)
        return (attrs.pads_after, attrs.output_padding, attrs.dilations) == (pads, (1, 1), (1, 1))

    def _plan_axis(self, axis: int) -> _AxisPlan:
        """Place the taps of one axis in the hardware's kernel, with the smallest padding that allows it."""
        offsets = [k * self.dilations[axis] - self.before[axis] for k in range(self.w.shape[1 + axis])]
        for pad in PADS:
            places, size = tuple(e + pad for e in offsets), 2 * self.size[axis] + 2 - 2 * pad
            if min(places) >= 0 and max(places) < TRANSPOSED_KERNEL and size >= self.count[axis]:
                return _AxisPlan(places, pad, size)
        kernel = f"kernel {list(self.w.shape[1:-1])} with padding {list(self.before)}"
        problem = f"{kernel} reaches further than the hardware's kernel of {TRANSPOSED_KERNEL}"
        raise NoEquivalentError(f"{problem}; use kernel 3 with padding 1, or kernel 2 without")

    def _emit(
        self, op: str, filters: Array, attrs: Mapping[str, object], outputs: Sequence[str]
    ) -> Sequence[str]:
        """Add the node's operation with other filters, its bias and its limits."""
        node, builder = self.match.node, self.match.new
        weight = builder.weight(f"{node.inputs[1]}.formed", filters, builder.tensors[node.inputs[1]].quant)
        clamp = node.attributes(ClampAttributes)
        limits = {"low": clamp.low, "high": clamp.high}
        inputs = [node.inputs[0], weight, *node.inputs[2:]]
        return builder.add(op, inputs, {**attrs, **limits}, outputs=outputs, like=node)


def rewrite_resize(match: Match) -> Sequence[str] | None:
    """Rewrite a Resize that repeats each row and column to a transposed convolution."""
    node = match.node
    if node.op.name != "Resize":
        return None
    shape = match.shape(0)
    if node.attributes(ResizeAttributes).mode != "nearest" or len(shape) != IMAGE_RANK or not _doubles(match):
        problem = "it resizes in another way than repeating each row and column of an image"
        raise NoEquivalentError(f"{problem}; use nearest with a factor of 2, or resize outside")
    # Stride 2 puts a zero behind every element; ones at these four taps repeat it over 2 x 2.
    filters = copying_filters(shape[-1], [[1], [1]], TRANSPOSED_KERNEL)
    for row, column in ((1, 2), (2, 1), (2, 2)):
        filters[:, row, column] = filters[:, 1, 1]
    weight = match.new.weight(f"{node.name}.unit", filters, UNIT_QUANT)
    return match.emit("ConvTranspose", [node.inputs[0], weight], {**plain_window((1, 1)), **DOUBLING})


def _doubles(match: Match) -> bool:
    """Whether a Resize keeps batch and channels, and repeats each row and column."""
    for axis, size in enumerate(match.shape(0)):
        taps = axis_taps(match.node.attributes(ResizeAttributes), axis, size)
        is_spatial = 0 < axis < IMAGE_RANK - 1
        if is_spatial and not np.array_equal(taps.indices[:, 0], np.arange(2 * size) // 2):
            return False
        if not is_spatial and not taps.is_identity(size):
            return False
    return True
