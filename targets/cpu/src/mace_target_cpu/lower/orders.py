"""The order in which AVX2 sums products of bytes, so that vpmaddubsw does not saturate.

The instruction adds two products of an unsigned and a signed byte in 16 bits. Whatever the unsigned bytes
are, that is exact if of the two weights the positive ones sum to at most 128, and the negative ones to at
least -128: 255 * 128 = 32640. So for each panel of columns the elements of a window, sixteen that lie
together in a row of activations, are paired such that large weights meet small ones. What has no partner that
fits stays alone, and elements whose weights are zero in all columns of the panel are left out. `order_check`
proves the result again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array

WINDOW = 16
"""Elements that one load and one shuffle bring into any order."""

LIMIT = 128
"""What weights of one sign may sum to, because 255 * 129 is more than 16 bits hold."""

EMPTY = 0x80
"""A place without an element: vpshufb makes it zero."""

QUAD, PAIRS = 4, 2
QUADS = WINDOW // QUAD
NATURAL_BITS = 4
"""Where the natural quads of a window begin in a byte; its slots, 8 at most, lie below."""

SLOT_TIME = 1.12
"""Time of a slot, which shuffles activations, beside that of a natural quad, measured on Zen 3."""

# numpy 1.26 has no bitwise_count.
BITS = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)
"""How many bits of a byte are set, by its value."""

SLACK = WINDOW - QUAD
"""Bytes behind the table, which the kernel reads with its last slot."""


@dataclass(frozen=True)
class Runs:
    """What a row of activations consists of: pieces that lie anywhere, each of quads that lie together."""

    pieces: int
    quads: int

    @property
    def windows(self) -> int:
        """Windows of a row; the last one of a piece may have fewer elements."""
        return self.pieces * -(-self.quads * QUAD // WINDOW)


@dataclass(frozen=True, eq=False)
class Orders:
    """The natural quads and the slots of the panels of a packed matrix.

    natural_quads: those of each window, as bits, uint8 [panels, windows].
    counts: slots of each window, [panels, windows].
    places: the element of the window in each of a slot's four places, or EMPTY, [slots, 4]; those of a panel
    follow each other, window by window.
    """

    natural_quads: Array
    counts: Array
    places: Array

    @property
    def natural_count(self) -> int:
        """The natural quads of all panels."""
        return int(_count_bits(self.natural_quads.astype(np.uint16)).sum(dtype=np.int64))

    @property
    def starts(self) -> Array:
        """The first slot of each panel."""
        totals = self.counts.sum(1, dtype=np.int64)
        starts: Array = (np.cumsum(totals) - totals).astype(np.int32)
        return starts

    @property
    def max_slots(self) -> int:
        """The slots of the panel that has the most."""
        return int(self.counts.sum(1, dtype=np.int64).max(initial=0))

    def pack(self) -> Array:
        """Return natural quads, counts and places in one table, as the kernel reads it."""
        windows = self.counts | self.natural_quads << NATURAL_BITS
        return np.concatenate([windows.reshape(-1), self.places.reshape(-1), np.zeros(SLACK, np.uint8)])


def cut_windows(packed: Array, runs: Runs) -> Array:
    """Return packed weights [..., panels, steps, panel, 4] as int8 [panels, windows, 16, panel].

    Windows that a piece does not fill end with zeros.
    """
    panels, panel = math.prod(packed.shape[:-3]), packed.shape[-2]
    quads = packed.reshape(panels, runs.pieces, runs.quads, panel, QUAD)
    filled = -(-runs.quads * QUAD // WINDOW) * WINDOW // QUAD
    full = np.zeros((panels, runs.pieces, filled, panel, QUAD), np.int8)
    full[:, :, : runs.quads] = quads
    # Elements before columns.
    elements = full.transpose(0, 1, 2, 4, 3).reshape(panels, runs.windows, WINDOW, panel)
    return np.ascontiguousarray(elements)


def find_orders(packed: Array, runs: Runs) -> Orders:
    """Return the order of every panel of a packed matrix."""
    windows = cut_windows(packed, runs)
    panels, count = windows.shape[:2]
    flat = windows.reshape(-1, WINDOW, windows.shape[-1])
    natural = _find_natural_quads(flat)
    some = np.flatnonzero(natural.any(1))
    rest = np.where(np.repeat(natural[some], QUAD, 1)[..., None], np.int8(0), flat[some])
    # All in one go: most of the time goes to calls of numpy, whose arrays are small.
    all_slots, all_places = _fill_slots(np.concatenate([flat, rest]))
    (slots, rest_slots), (places, rest_places) = (np.split(a, [len(flat)]) for a in (all_slots, all_places))
    # Fewer elements have fewer partners: where that costs more slots, all are paired.
    is_cheaper = natural[some].sum(1) + SLOT_TIME * rest_slots < SLOT_TIME * slots[some]
    natural[some[~is_cheaper]] = False
    some, rest_slots, rest_places = some[is_cheaper], rest_slots[is_cheaper], rest_places[is_cheaper]
    slots[some], places[some] = rest_slots, rest_places
    bits = (natural << np.arange(QUADS)).sum(1).astype(np.uint8).reshape(panels, count)
    is_taken = np.arange(places.shape[1]) < slots[:, None]
    return Orders(bits, slots.astype(np.uint8).reshape(panels, count), places[is_taken])


def _fill_slots(windows: Array) -> tuple[Array, Array]:
    """Return how many slots each of some windows [count, 16, columns] has, and the places [count, 8, 4]."""
    pairs = pair_elements(windows)
    slots: Array = ((pairs[:, :, 0] != EMPTY).sum(1) + PAIRS - 1) // PAIRS
    # A window has two pairs in a slot, and empty pairs last.
    return slots, pairs.reshape(len(pairs), WINDOW // PAIRS, QUAD)


def _find_natural_quads(windows: Array) -> Array:
    """Return which quads of windows [count, 16, columns] are exact as they lie, bool [count, 4].

    A quad without weights is not among them, because it need not be multiplied at all.
    """
    count, _, columns = windows.shape
    pairs = windows.reshape(count, QUADS, QUAD // PAIRS, PAIRS, columns).astype(np.int16)
    has_room = (np.maximum(pairs, 0).sum(3) <= LIMIT) & (np.minimum(pairs, 0).sum(3) >= -LIMIT)
    natural: Array = has_room.all((2, 3)) & pairs.any((2, 3, 4))
    return natural


def pair_elements(windows: Array) -> Array:
    """Return pairs uint8 [count, 16, 2] of the elements of windows int8 [count, 16, columns].

    An element without a partner has EMPTY for one; pairs of two EMPTY come last.
    """
    partners = _find_partners(windows)
    alive = (windows.any(-1) << np.arange(WINDOW)).sum(1).astype(np.uint16)
    pairs = np.full((len(windows), WINDOW, 2), EMPTY, np.uint8)
    for position in range(WINDOW):
        rows = np.flatnonzero(alive)
        if not rows.size:
            break
        open_partners = partners[rows] & alive[rows, None]
        options = _count_bits(open_partners).astype(np.int16)
        is_alive = (alive[rows, None] >> np.arange(WINDOW, dtype=np.uint16)) & 1
        # The element with the fewest partners chooses first, and takes the partner with the fewest others.
        first = np.where(is_alive, options, WINDOW).argmin(1)
        mask = open_partners[np.arange(len(rows)), first]
        is_option = (mask[:, None] >> np.arange(WINDOW, dtype=np.uint16)) & 1
        second = np.where(is_option, options, WINDOW).argmin(1)
        has_partner = mask != 0
        pairs[rows, position, 0] = first
        pairs[rows, position, 1] = np.where(has_partner, second, EMPTY)
        taken = (1 << first) | np.where(has_partner, 1 << second, 0)
        alive[rows] &= ~taken.astype(np.uint16)
    return pairs


def _find_partners(windows: Array) -> Array:
    """Return for each element of each window the elements that it may meet, as bits, uint16 [count, 16]."""
    # Windows last: numpy takes five times as long where the last axis is a short one.
    columns = np.ascontiguousarray(windows.transpose(1, 2, 0))
    # As unsigned bytes, -(-128) is 128.
    positive = np.maximum(columns, 0).view(np.uint8)
    negative = np.negative(np.minimum(columns, 0)).view(np.uint8)
    partners = np.zeros((WINDOW, len(windows)), np.uint16)
    for i in range(WINDOW - 1):
        room_above, room_below = (LIMIT - part[i] for part in (positive, negative))
        exceeds = (positive[i + 1 :] > room_above) | (negative[i + 1 :] > room_below)
        fits = (~exceeds.any(1)).astype(np.uint16)
        partners[i] |= np.bitwise_or.reduce(fits << np.arange(i + 1, WINDOW, dtype=np.uint16)[:, None])
        partners[i + 1 :] |= fits << np.uint16(i)
    return np.ascontiguousarray(partners.T)


def _count_bits(words: Array) -> Array:
    """Return how many bits of 16 are set."""
    count: Array = BITS[words & 0xFF] + BITS[words >> 8]
    return count
