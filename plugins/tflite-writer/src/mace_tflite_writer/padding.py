"""The paddings of windows that the format has words for."""

from __future__ import annotations

import tflite

from mace_core.ir import Shape
from mace_core.lowering import Refused
from mace_core.ops.windows import Windows


def has_padding_mode(windows: Windows, size: Shape, count: Shape) -> bool:
    """Tell whether the format has a padding with which windows see what they see in the IR."""
    try:
        padding_mode(windows, size, count)
    except Refused:
        return False
    return True


def padding_mode(windows: Windows, size: Shape, count: Shape) -> int:
    """Return SAME or VALID, with which windows see just the elements that they see in the IR.

    size: the input's spatial axes.  count: the windows along each.
    Refused if neither does. Padding behind the last window is no difference.
    """
    for mode, fits in ((tflite.Padding.VALID, _is_valid), (tflite.Padding.SAME, _is_same)):
        if all(fits(windows, axis, size[axis], count[axis]) for axis in range(len(size))):
            return int(mode)
    sides = list(zip(windows.before, windows.after, strict=True))
    raise Refused(
        f"the format pads VALID or SAME, which is not the padding {sides} of {list(size)}",
        code="attribute",
        remedy="pad by a node of its own (rewrite `separate_pads`)",
    )


def _is_valid(windows: Windows, axis: int, size: int, count: int) -> bool:
    room = size - windows.extent[axis]
    return room >= 0 and count == room // windows.strides[axis] + 1 and windows.before[axis] == 0


def _is_same(windows: Windows, axis: int, size: int, count: int) -> bool:
    stride = windows.strides[axis]
    missing = max((count - 1) * stride + windows.extent[axis] - size, 0)
    # An odd element goes behind (ComputePaddingWithOffset of LiteRT's kernels/padding.h).
    return count == -(-size // stride) and windows.before[axis] == missing // 2


def is_inside(windows: Windows, size: Shape, count: Shape) -> bool:
    """Tell whether no window sees padding."""
    reaches = zip(count, windows.strides, windows.extent, strict=True)
    return not any(windows.before) and all(
        (c - 1) * s + e <= n for (c, s, e), n in zip(reaches, size, strict=True)
    )
