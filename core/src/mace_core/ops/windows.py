"""Geometry of sliding windows: what convolutions and pools share."""

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
    """How windows lie over an input: one number for each spatial axis everywhere.

    pads_before, pads_after: rows of padding on the two sides of each axis.
    """

    strides: Ints
    pads_before: Ints
    pads_after: Ints
    dilations: Ints


@dataclass(frozen=True)
class KernelAttributes(WindowAttributes):
    """Windows whose size is no operand's.

    kernel: elements of a window along each spatial axis.
    """

    kernel: Ints

    def windows(self, rank: int) -> Windows:
        """Make the windows over `rank` spatial axes; OpError unless there is a fitting number for each."""
        need_integers("kernel", self.kernel, rank)
        return Windows.of(self.kernel, self)


@dataclass(frozen=True)
class Windows:
    """Windows over spatial axes, one entry for each axis everywhere.

    before, after: rows of padding on the two sides of each axis.
    """

    kernel: Ints
    strides: Ints
    before: Ints
    after: Ints
    dilations: Ints

    @classmethod
    def of(cls, kernel: Ints, attrs: WindowAttributes) -> Windows:
        """Make them from an op's attributes.

        OpError unless each has one fitting number for each spatial axis.
        """
        rank = len(kernel)
        need(1 <= rank <= 3, f"{rank} spatial axes, expected 1 to 3")
        need(all(k >= 1 for k in kernel), f"kernel {list(kernel)} must be at least 1 along each axis")
        for name, values, least in (
            ("strides", attrs.strides, 1),
            ("dilations", attrs.dilations, 1),
            ("pads_before", attrs.pads_before, 0),
            ("pads_after", attrs.pads_after, 0),
        ):
            need_integers(name, values, rank)
            if min(values) < least:
                raise OpError(f"{name} {list(values)} must be at least {least} along each axis")
        return cls(kernel, attrs.strides, attrs.pads_before, attrs.pads_after, attrs.dilations)

    @property
    def extent(self) -> Ints:
        """What one window spans along each axis, its gaps included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def count(self, spatial: Shape, ceil: bool = False) -> Shape:
        """Count the windows that fit along each axis of a padded input; OpError where none does.

        ceil: also count a last window that sticks out, if it starts before the padding behind the input (as
        ONNX has it).
        """
        return tuple(self._count(axis, size, ceil) for axis, size in enumerate(spatial))

    def _count(self, axis: int, size: int, ceil: bool) -> int:
        extent, stride, before = self.extent[axis], self.strides[axis], self.before[axis]
        room = size + before + self.after[axis] - extent
        if room < 0:
            raise OpError(
                f"a window of {extent} does not fit into {size + before + self.after[axis]} along spatial axis {axis}"
            )
        count = (-(-room // stride) if ceil else room // stride) + 1
        return count - 1 if ceil and (count - 1) * stride >= size + before else count

    def taps(self) -> Iterator[Ints]:
        """Go through every position within the kernel."""
        return product(*map(range, self.kernel))

    def padded(self, x: Array, out: Shape, value: float) -> Array:
        """Surround the [N, *spatial, C] input with so much of `value` that every window lies inside."""
        reach = [(o - 1) * s + e for o, s, e in zip(out, self.strides, self.extent, strict=True)]
        after = [max(r - b - n, 0) for r, b, n in zip(reach, self.before, x.shape[1:-1], strict=True)]
        return np.pad(x, [(0, 0), *zip(self.before, after, strict=True), (0, 0)], constant_values=value)

    def seen(self, padded: Array, tap: Ints, out: Shape) -> Array:
        """Return what all windows see at one position of the kernel: a view [N, *out, C]."""
        starts = [t * d for t, d in zip(tap, self.dilations, strict=True)]
        cut = (slice(b, b + (o - 1) * s + 1, s) for b, o, s in zip(starts, out, self.strides, strict=True))
        return padded[(slice(None), *cut, slice(None))]


def need_integers(name: str, values: Ints, count: int) -> None:
    """Raise OpError unless an attribute has so many integers."""
    if len(values) != count:
        raise OpError(
            f"attribute {name!r} is {values!r}, expected {count} integer{'s' if count != 1 else ''}"
        )
