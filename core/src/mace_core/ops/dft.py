"""DFT: the discrete Fourier transform along one axis; complex numbers are pairs along the last axis."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array
from mace_core.ops.op import Op, Perm, Spec
from mace_core.ops.shapes import Inputs, axis_of, need, present


@dataclass(frozen=True)
class DFTAttributes(Attributes):
    """length: number of elements that are transformed along the axis.

    onesided: whether only length // 2 + 1 frequencies are kept, which determine the others of a real signal;
    with inverse, the input has only those.
    """

    length: int
    axis: int = -2
    inverse: bool = False
    onesided: bool = False


def _infer(inputs: Inputs, attrs: DFTAttributes) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype.is_float, f"x is of type {x.dtype.value}; it must be a float type")
    need(
        len(x.shape) >= 2 and x.shape[-1] in (1, 2),
        f"x has shape {list(x.shape)}; its last axis must be 1 or 2, real or complex",
    )
    axis, length = axis_of(attrs.axis, len(x.shape)), attrs.length
    need(axis < len(x.shape) - 1, "axis is the last one, that of the complex numbers")
    need(length >= 1, f"length is {length}; it must be positive")
    half, back = attrs.onesided, attrs.inverse
    count = length // 2 + 1 if half and not back else length
    return [(x.dtype, (*x.shape[:axis], count, *x.shape[axis + 1 : -1], 1 if half and back else 2))]


def _dft(x: Array, attrs: DFTAttributes) -> Array:
    """Transform `length` elements of the axis, which is cut off or filled up with zeros."""
    axis, length = attrs.axis % x.ndim, attrs.length
    wide = x.astype(np.float64)
    z = wide[..., 0] + 1j * wide[..., 1] if x.shape[-1] == 2 else wide[..., 0]
    if attrs.inverse and attrs.onesided:
        return np.fft.irfft(z, length, axis)[..., None].astype(x.dtype)
    y = np.fft.ifft(z, length, axis) if attrs.inverse else np.fft.fft(z, length, axis)
    if attrs.onesided:
        y = np.take(y, np.arange(length // 2 + 1), axis)
    return np.stack([y.real, y.imag], -1).astype(x.dtype)


def _move(attrs: DFTAttributes, perm: Perm) -> tuple[DFTAttributes, Perm] | None:
    # Real and imaginary part lie side by side on the last axis, which must stay there.
    if perm[-1] != len(perm) - 1:
        return None
    return replace(attrs, axis=perm[attrs.axis % len(perm)]), perm


OPS = (
    Op(
        "DFT",
        ("x",),
        ("y",),
        _infer,
        _dft,
        DFTAttributes,
        move=_move,
    ),
)
