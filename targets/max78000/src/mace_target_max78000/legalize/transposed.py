"""Rewrites transposed convolutions and Resize to the one kernel that doubles rows and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from mace_core.ir import Array
from mace_core.ops.arguments import integers
from mace_core.ops.resize import axis_taps
from mace_core.rewrite import Match
from mace_target_max78000.legalize.copies import UNIT_QUANT, copying_filters, plain_window
from mace_target_max78000.legalize.refusals import RefusedError

TRANSPOSED_KERNEL = 3
"""The hardware's only kernel of a transposed convolution.

Its stride is 2, and it makes 2 n + 2 - 2 pad of n.
"""


def rewrite_transposed(match: Match) -> Sequence[str] | None:
    """A transposed convolution of stride 1 as a convolution, one of stride 2 with the hardware's kernel."""
    node = match.node
    if node.op.name != "ConvTranspose":
        return None
    w = match.new.weights[node.inputs[1]]
    group = int(str(node.attrs["group"]))
    if group > 1:
        raise RefusedError(f"it is transposed in {group} groups; use one group")
    attrs = TransposedRewrite(match, w)
    return attrs.as_convolution() if set(attrs.strides) == {1} else attrs.native()


class TransposedRewrite:
    """A transposed convolution.  w: filters [O, *kernel, I]."""

    def __init__(self, match: Match, w: Array) -> None:
        self.match, self.w = match, w
        rank = w.ndim - 2
        self.strides, self.dilations = (
            integers(match.node.attrs, key, rank) for key in ("strides", "dilations")
        )
        self.before = integers(match.node.attrs, "pads_before", rank)
        x = match.new.tensors[match.node.inputs[0]]
        self.size = x.shape[1:-1]
        specs = match.node.op.infer(
            [match.new.tensors[i].real if i else None for i in match.node.inputs], match.node.attrs
        )
        self.count = specs[0][1][1:-1]

    def as_convolution(self) -> Sequence[str]:
        """The kernel turned round, over as much padding as it reaches."""
        kernel = self.w.shape[1:-1]
        before = tuple((k - 1) * d - b for k, d, b in zip(kernel, self.dilations, self.before, strict=True))
        after = tuple(
            c + (k - 1) * d - n - b
            for c, k, d, n, b in zip(self.count, kernel, self.dilations, self.size, before, strict=True)
        )
        if min(*before, *after) < 0:
            raise RefusedError("its padding is larger than its kernel; make it smaller")
        turned = np.flip(self.w, tuple(range(1, self.w.ndim - 1)))
        attrs = {**plain_window(before), "pads_after": after, "dilations": self.dilations}
        return self._emit("Conv", turned, attrs, self.match.node.outputs)

    def native(self) -> Sequence[str] | None:
        """The same with a kernel of 3, stride 2 and one more row and column, the rest of which is cut off."""
        kernel = self.w.shape[1:-1]
        if set(self.strides) != {2} or len(kernel) != 2:
            raise RefusedError(
                f"its strides are {list(self.strides)} over {len(kernel)} axes; the hardware doubles rows and columns of images"
            )
        plans = [self._axis(a) for a in range(2)]
        places, pads, sizes = zip(*plans, strict=True)
        attrs = {**plain_window(pads), "strides": (2, 2), "output_padding": (1, 1)}
        if kernel == (TRANSPOSED_KERNEL, TRANSPOSED_KERNEL) and sizes == self.count and pads == self.before:
            given = {key: self.match.node.attrs[key] for key in ("pads_after", "output_padding", "dilations")}
            if given == {"pads_after": pads, "output_padding": (1, 1), "dilations": (1, 1)}:
                return None
        spread = np.zeros((len(self.w), TRANSPOSED_KERNEL, TRANSPOSED_KERNEL, self.w.shape[-1]), self.w.dtype)
        for tap in product(*map(range, kernel)):
            spread[:, places[0][tap[0]], places[1][tap[1]]] = self.w[:, tap[0], tap[1]]
        if sizes == self.count:
            return self._emit("ConvTranspose", spread, attrs, self.match.node.outputs)
        new, node = self.match.new, self.match.node
        full = self._emit(
            "ConvTranspose",
            spread,
            attrs,
            [new.stored(f"{node.name}.full", new.storages.get(node.outputs[0]))],
        )
        shape = (1, *self.count, len(self.w))
        return self.match.emit("Slice", full, {"starts": (0,) * 4, "sizes": shape, "steps": (1,) * 4})

    def _axis(self, axis: int) -> tuple[tuple[int, ...], int, int]:
        """The places of the taps in the hardware's kernel, its padding, and the size that it makes."""
        offsets = [k * self.dilations[axis] - self.before[axis] for k in range(self.w.shape[1 + axis])]
        for pad in (0, 1, 2):
            places, size = tuple(e + pad for e in offsets), 2 * self.size[axis] + 2 - 2 * pad
            if min(places) >= 0 and max(places) < TRANSPOSED_KERNEL and size >= self.count[axis]:
                return places, pad, size
        raise RefusedError(
            f"kernel {list(self.w.shape[1:-1])} with padding {list(self.before)} reaches further than the hardware's of 3; "
            "use kernel 3 with padding 1, or kernel 2 without"
        )

    def _emit(
        self, op: str, filters: Array, attrs: Mapping[str, object], outputs: Sequence[str]
    ) -> Sequence[str]:
        node, new = self.match.node, self.match.new
        weight = new.weight(f"{node.inputs[1]}.formed", filters, new.tensors[node.inputs[1]].quant)
        limits = {key: node.attrs[key] for key in ("low", "high")}
        return new.add(
            op, [node.inputs[0], weight, *node.inputs[2:]], {**attrs, **limits}, outputs=outputs, like=node
        )


def rewrite_resize(match: Match) -> Sequence[str] | None:
    """Twice the rows and columns by repeating each, as a transposed convolution."""
    node = match.node
    if node.op.name != "Resize":
        return None
    shape = match.shape(0)
    doubled = len(shape) == 4 and all(
        axis_taps(node.attrs, a, n).identity(n)
        if a in (0, 3)
        else _is_repetition(axis_taps(node.attrs, a, n).indices[:, 0], n)
        for a, n in enumerate(shape)
    )
    if not doubled or node.attrs["mode"] != "nearest":
        raise RefusedError(
            "it resizes; the hardware doubles rows and columns of images by repeating them, and nothing else"
        )
    filters = copying_filters(shape[-1], [[1], [1]], TRANSPOSED_KERNEL)
    for place in ((1, 2), (2, 1), (2, 2)):
        filters[:, place[0], place[1]] = filters[:, 1, 1]
    weight = match.new.weight(f"{node.name}.unit", filters, UNIT_QUANT)
    return match.emit(
        "ConvTranspose",
        [node.inputs[0], weight],
        {**plain_window((1, 1)), "strides": (2, 2), "output_padding": (1, 1)},
    )


def _is_repetition(indices: Array, size: int) -> bool:
    return bool(np.array_equal(indices, np.arange(2 * size) // 2))
