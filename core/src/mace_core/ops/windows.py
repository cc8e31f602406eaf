"""Geometry of sliding windows, for convolutions and pools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, Shape
from mace_core.ops.op import OpError
from mace_core.ops.shapes import need

Ints = tuple[int, ...]


@dataclass(frozen=True)
class WindowAttributes(Attributes):
    """The attributes of windows over an input, each with one number for each spatial axis.

    pads_before, pads_after: elements of padding on the two sides of each axis.
    """

    strides: Ints
    pads_before: Ints
    pads_after: Ints
    dilations: Ints


@dataclass(frozen=True)
class KernelAttributes(WindowAttributes):
    """The attributes of windows whose size is not that of an operand.

    kernel: elements of a window along each spatial axis.
    """

    kernel: Ints

    def windows(self, rank: int) -> Windows:
        """Return the windows over `rank` spatial axes; raises OpError unless each has a valid number."""
        need_integers("kernel", self.kernel, rank)
        return Windows.of(self.kernel, self)


@dataclass(frozen=True)
class Windows:
    """Windows over spatial axes, with one entry for each axis in every field.

    before, after: elements of padding on the two sides of each axis.
    """

    kernel: Ints
    strides: Ints
    before: Ints
    after: Ints
    dilations: Ints

    @classmethod
    def of(cls, kernel: Ints, attrs: WindowAttributes) -> Windows:
        """Return the windows of an op's attributes.

        Raises OpError unless each attribute has one valid number for each spatial axis.
        """
        rank = len(kernel)
        need(1 <= rank <= 3, f"{rank} spatial axes, expected 1 to 3")
        need(all(k >= 1 for k in kernel), f"kernel {list(kernel)} must be at least 1 along each axis")
        for name, values, min_value in (
            ("strides", attrs.strides, 1),
            ("dilations", attrs.dilations, 1),
            ("pads_before", attrs.pads_before, 0),
            ("pads_after", attrs.pads_after, 0),
        ):
            need_integers(name, values, rank)
            if min(values) < min_value:
                raise OpError(f"{name} {list(values)} must be at least {min_value} along each axis")
        return cls(kernel, attrs.strides, attrs.pads_before, attrs.pads_after, attrs.dilations)

    @property
    def extent(self) -> Ints:
        """The length that one window spans along each axis, with its gaps."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def count(self, spatial: Shape, ceil: bool = False) -> Shape:
        """Count the windows that fit along each axis of a padded input; raises OpError where none does.

        ceil: whether a last window that reaches beyond the padding counts.
        """
        return tuple(self._count(axis, size, ceil) for axis, size in enumerate(spatial))

    def _count(self, axis: int, size: int, ceil: bool) -> int:
        extent, stride, before = self.extent[axis], self.strides[axis], self.before[axis]
        room = size + before + self.after[axis] - extent
        if room < 0:
            padded = size + before + self.after[axis]
            raise OpError(f"a window of {extent} does not fit into {padded} along spatial axis {axis}")
        if not ceil:
            return room // stride + 1
        count = -(-room // stride) + 1
        # A last window that would start in the padding after the input is dropped, as in ONNX and PyTorch: it
        # would see nothing but padding.
        return count - 1 if (count - 1) * stride >= size + before else count

    def taps(self) -> Iterator[Ints]:
        """Iterate over the positions within the kernel, the last axis fastest."""
        return product(*map(range, self.kernel))

    def pad_input(self, x: Array, out: Shape, value: float) -> Array:
        """Pad x [N, *spatial, C] with `value` so that every window lies inside.

        out: number of windows along each axis; with `ceil` the last one needs more than the stated padding.
        """
        reach = [(o - 1) * s + e for o, s, e in zip(out, self.strides, self.extent, strict=True)]
        after = [max(r - b - n, 0) for r, b, n in zip(reach, self.before, x.shape[1:-1], strict=True)]
        return np.pad(x, [(0, 0), *zip(self.before, after, strict=True), (0, 0)], constant_values=value)

    def view_tap(self, padded: Array, tap: Ints, out: Shape) -> Array:
        """Return a view [N, *out, C] of the elements that all windows have at one position of the kernel."""
        starts = [t * d for t, d in zip(tap, self.dilations, strict=True)]
        cut = (slice(b, b + (o - 1) * s + 1, s) for b, o, s in zip(starts, out, self.strides, strict=True))
        return padded[(slice(None), *cut, slice(None))]


def need_integers(name: str, values: Ints, count: int) -> None:
    """Raise OpError unless an attribute has this many integers."""
    if len(values) != count:
        raise OpError(
            f"attribute {name!r} is {values!r}, expected {count} integer{'s' if count != 1 else ''}"
        )
