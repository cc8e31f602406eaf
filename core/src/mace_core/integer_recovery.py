"""Finds the integers and scales that give back weights of floats: real = scale * (stored - zero point).

Frontends and transforms turn weights of eight and four bits into floats, so that no stage between them and a
target needs to know of such weights. Each float is then one rounding of a product of its scale by an integer.
So the integers can be recovered, with a proof: the product, rounded to a float, is compared with each
weight. What is recovered may have another scale than the file (a column of even integers gets twice its
scale), and the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from mace_core.ir import Array

BITS = (4, 8)
"""Bits of the integers that are looked for, the fewest first."""

BLOCKS = (256, 128, 64, 32, 16)
"""Elements of the depth that may share a scale, where a column has several; the largest first."""

TOLERANCE = 2.0**-21
"""How far from an integer a weight may be that is scaled so that the largest is one, in parts of the latter.

Both are off by 2^-24 of themselves, and arithmetic in single precision rounds twice more: 2^-22 at most.
"""

SAMPLE = 4
"""Elements of a group that rule out nearly every wrong scale."""

GROUPS = 1 << 13
"""Groups that are searched at a time, so that the search needs little memory beside the weights."""

FIRST_GROUPS = 16
"""Groups that are searched first: they show at once that ordinary weights of floats are no integers."""


@dataclass(frozen=True)
class IntegerForm:
    """An array [outer, depth, lanes] whose elements are integers of `bits` bits times a scale.

    block: elements of the depth that share a scale.
    scales: float32 [outer, blocks, lanes].
    zeros: int8 of the same shape; None where the zero point is `usual_zero` everywhere.
    """

    outer: int
    depth: int
    lanes: int
    bits: int
    block: int
    scales: Array
    zeros: Array | None

    @property
    def stored_shape(self) -> tuple[int, int, int]:
        """The shape of the stored bytes; two integers of four bits that follow in the depth share one."""
        return self.outer, (self.depth + 1) // 2 if self.bits == 4 else self.depth, self.lanes

    @property
    def bytes(self) -> int:
        """Bytes of all arrays."""
        return prod(self.stored_shape) + sum(array.nbytes for array in self.factors)

    @property
    def factors(self) -> tuple[Array, ...]:
        """The scales, and the zero points where there are any."""
        return (self.scales,) if self.zeros is None else (self.scales, self.zeros)

    def pack(self, array: Array) -> Array:
        """Return the stored bytes of the array that this form was found for.

        int8 of 8 bits; of 4 bits uint8, of which the lower half is the element that comes first.
        """
        scale, zero = self._along_depth()
        values = array.reshape(self.outer, self.depth, self.lanes)
        # A quotient is off by parts of 2^-23 of an integer below 2^9, so rounding finds the integer.
        integers = np.rint(values / scale).astype(np.int16) + zero
        if self.bits == 8:
            return np.ascontiguousarray(integers.astype(np.int8))
        padded = np.zeros((self.outer, 2 * self.stored_shape[1], self.lanes), np.uint8)
        padded[:, : self.depth] = integers
        return np.ascontiguousarray(padded[:, ::2] | padded[:, 1::2] << 4)

    def restore(self, packed: Array) -> Array:
        """Return the floats as kernels compute them; tests compare kernels with it."""
        if self.bits == 4:
            halves = np.stack((packed & 15, packed >> 4), axis=2)
            packed = halves.reshape(self.outer, -1, self.lanes)[:, : self.depth]
        scale, zero = self._along_depth()
        return (packed.astype(np.int16) - zero).astype(np.float32) * scale

    def _along_depth(self) -> tuple[Array, Array]:
        """Return scale and zero point of each element of the depth."""
        blocks = np.arange(self.depth) // self.block
        zeros = np.full(self.scales.shape, usual_zero(self.bits), np.int16)
        if self.zeros is not None:
            zeros = self.zeros.astype(np.int16)
        return self.scales[:, blocks], zeros[:, blocks]


def usual_zero(bits: int) -> int:
    """Return the zero point of weights that have none: integers of four bits are stored without a sign."""
    return 8 if bits == 4 else 0


def find_integers(array: Array) -> IntegerForm | None:
    """Return the smallest form that gives back an array of float32 in fewer bytes; None if there is none.

    Zeros may change their sign.
    """
    views = dict.fromkeys((_split(array.shape, 2), _split(array.shape, 1)))
    forms = [_find_form(array.reshape(view)) for view in views if 0 not in view]
    smaller = [form for form in forms if form and form.bytes < array.nbytes]
    return min(smaller, key=lambda form: form.bytes, default=None)


def _split(shape: tuple[int, ...], rank: int) -> tuple[int, int, int]:
    """Return a shape as [outer, depth, lanes], of which the last axes are `rank` of the array's.

    Packed matrices, [..., depth, columns], have a scale for each column, tables for each row.
    """
    last = shape[-rank:]
    depth, lanes = (last[0], last[1]) if len(last) == 2 else (prod(last), 1)
    return prod(shape[:-rank]), depth, lanes


def _find_form(array: Array) -> IntegerForm | None:
    """Return the form of an array [outer, depth, lanes] with the fewest bits and the largest blocks."""
    depth = array.shape[1]
    for bits in BITS:
        for block in (depth, *(size for size in BLOCKS if size < depth)):
            # A block of an odd size would begin in the middle of a byte.
            if (form := _find_blocks(array, bits, block)) is not None:
                return form
    return None


def _find_blocks(array: Array, bits: int, block: int) -> IntegerForm | None:
    """Return the form with so many bits and blocks of this size; None if it does not give the array back."""
    outer, depth, lanes = array.shape
    blocks = -(-depth // block)
    scales, zeros = (np.empty(outer * blocks * lanes, kind) for kind in (np.float32, np.int16))
    start = 0
    for groups in _split_groups(array, block):
        scaled = _find_scales(groups, bits)
        if scaled is None:
            return None
        end = start + len(groups)
        scales[start:end], zeros[start:end] = scaled
        start = end
    shape = (outer, blocks, lanes)
    points = zeros.astype(np.int8).reshape(shape) if (zeros != usual_zero(bits)).any() else None
    return IntegerForm(outer, depth, lanes, bits, block, scales.reshape(shape), points)


def _split_groups(array: Array, block: int) -> Iterator[Array]:
    """Return the groups that share a scale, [groups, block], some at a time; the first time a few."""
    outer, depth, lanes = array.shape
    blocks = -(-depth // block)
    matrices = max(GROUPS // (blocks * lanes), 1)
    for i in range(0, outer, matrices):
        part = array[i : i + matrices]
        padded = np.zeros((len(part), blocks * block, lanes), np.float32)
        padded[:, :depth] = part
        groups = padded.reshape(-1, blocks, block, lanes).swapaxes(2, 3).reshape(-1, block)
        start = 0
        while start < len(groups):
            end = start + (FIRST_GROUPS if i == start == 0 else GROUPS)
            yield groups[start:end]
            start = end


def _find_scales(groups: Array, bits: int) -> tuple[Array, Array] | None:
    """Return a scale and a zero point for each group; None unless every group has them."""
    peaks = np.abs(groups).max(axis=1).astype(np.float64)
    if not np.isfinite(peaks).all():
        return None
    scales, zeros = np.ones(len(groups), np.float32), np.full(len(groups), usual_zero(bits), np.int16)
    # A group of zeros has any scale.
    is_open = peaks > 0
    peaks[~is_open] = 1
    likely = _list_likely(groups, peaks, bits)
    for top in np.flatnonzero(likely.any(axis=0)) + 1:
        chosen = np.flatnonzero(likely[:, top - 1] & is_open)
        values = groups[chosen].astype(np.float64)
        steps = values * (top / peaks[chosen])[:, None]
        is_whole = (np.abs(steps - np.rint(steps)) <= top * TOLERANCE).all(axis=1)
        chosen, values = chosen[is_whole], values[is_whole]
        if chosen.size:
            is_proven, scale, zero = _prove(values, np.rint(steps[is_whole]).astype(np.int16), bits)
            proven = chosen[is_proven]
            scales[proven], zeros[proven] = scale, zero
            is_open[proven] = False
    return None if is_open.any() else (scales, zeros)


def _list_likely(groups: Array, peaks: Array, bits: int) -> Array:
    """Tell for each group which integers its largest magnitude may be, 1 in the first column.

    Some elements are then near integers; that leaves few groups of each integer to be looked at as a whole.
    """
    # Single precision is enough, see TOLERANCE, and takes half the time.
    tops = np.arange(1, 1 << bits, dtype=np.float32)
    likely = np.ones((len(groups), len(tops)), bool)
    step = max(groups.shape[1] // SAMPLE, 1)
    for column in range(0, groups.shape[1], step):
        steps = (groups[:, column] / peaks).astype(np.float32)[:, None] * tops
        likely &= np.abs(steps - np.rint(steps)) <= tops * TOLERANCE
    return likely


def _prove(values: Array, integers: Array, bits: int) -> tuple[Array, Array, Array]:
    """Return which groups are rounded products of their integers and one scale, those scales, zero points."""
    magnitudes = np.abs(values)
    half = np.spacing(magnitudes.astype(np.float32)).astype(np.float64) / 2
    counts = np.abs(integers).astype(np.float64)
    # Every element bounds the scale, because its product is rounded to it; a float between all bounds is one.
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(counts > 0, (magnitudes - half) / counts, 0).max(axis=1)
        high = np.where(counts > 0, (magnitudes + half) / counts, np.inf).min(axis=1)
    scale = ((low + high) / 2).astype(np.float32)
    lowest, highest = integers.min(axis=1), integers.max(axis=1)
    # -8 has a place without a zero point, 8 has none: the scale takes the sign.
    limit = 1 << (bits - 1)
    is_turned = (highest == limit) & (lowest > -limit)
    scale = np.where(is_turned, -scale, scale)
    integers = np.where(is_turned[:, None], -integers, integers)
    lowest, highest = integers.min(axis=1), integers.max(axis=1)
    bottom = 0 if bits == 4 else -limit
    # The zero point must leave room below and above it; the usual one is taken where it does.
    zero = np.clip(usual_zero(bits), bottom - lowest, bottom + 2 * limit - 1 - highest)
    fits = (highest.astype(np.int32) - lowest < 2 * limit) & (zero >= bottom) & (zero < bottom + 2 * limit)
    product = integers.astype(np.float32) * scale[:, None]
    is_proven = fits & (product == values).all(axis=1)
    return is_proven, scale[is_proven], zero[is_proven]
