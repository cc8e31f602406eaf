"""DFT: the discrete Fourier transform along one axis; complex numbers are pairs along the last axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mace_core.ir import Array, Attrs
from mace_core.ops.arguments import integer
from mace_core.ops.op import REQUIRED, Op, Perm, Spec
from mace_core.ops.shapes import Inputs, axis_of, need, present


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype.is_float, f"x is of type {x.dtype.value}; it must be a float type")
    need(
        len(x.shape) >= 2 and x.shape[-1] in (1, 2),
        f"x has shape {list(x.shape)}; its last axis must be 1 or 2, real or complex",
    )
    axis, length = axis_of(integer(attrs, "axis"), len(x.shape)), integer(attrs, "length")
    need(axis < len(x.shape) - 1, "axis is the last one, that of the complex numbers")
    need(length >= 1, f"length is {length}; it must be positive")
    half, back = bool(attrs["onesided"]), bool(attrs["inverse"])
    count = length // 2 + 1 if half and not back else length
    return [(x.dtype, (*x.shape[:axis], count, *x.shape[axis + 1 : -1], 1 if half and back else 2))]


def _dft(x: Array, axis: int, length: int, inverse: bool, onesided: bool) -> Array:
    """Of `length` elements, more cut off and fewer filled up with zeros.

    onesided: only the length // 2 + 1 frequencies that those of real numbers are made of; inverse, real
    numbers from those.
    """
    axis %= x.ndim
    wide = x.astype(np.float64)
    z = wide[..., 0] + 1j * wide[..., 1] if x.shape[-1] == 2 else wide[..., 0]
    if inverse and onesided:
        return np.fft.irfft(z, length, axis)[..., None].astype(x.dtype)
    y = np.fft.ifft(z, length, axis) if inverse else np.fft.fft(z, length, axis)
    if onesided:
        y = np.take(y, np.arange(length // 2 + 1), axis)
    return np.stack([y.real, y.imag], -1).astype(x.dtype)


def _move(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm] | None:
    if perm[-1] != len(perm) - 1:
        return None
    return {**attrs, "axis": perm[integer(attrs, "axis") % len(perm)]}, perm


OPS = (
    Op(
        "DFT",
        ("x",),
        ("y",),
        _infer,
        _dft,
        {"length": REQUIRED, "axis": -2, "inverse": False, "onesided": False},
        move=_move,
    ),
)
