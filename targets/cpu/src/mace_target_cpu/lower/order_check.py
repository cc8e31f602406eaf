"""Proves of packed weights and the order of their sums that vpmaddubsw does not saturate.

It shares nothing with `orders`, which chooses the order: it takes the bytes that igemm_ordered.h.in reads,
forms the slots as that does, and bounds every sum of two products for all activations from 0 to 255. It also
proves that every weight is multiplied once, by its own activation.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array

ACTIVATIONS = 255
MIN_SUM, MAX_SUM = -(1 << 15), (1 << 15) - 1
ELEMENTS = 16
REMEDY = "this is a defect of MACE: choose the candidate products for the node, and report it"


class RowShape(Protocol):
    """What a row of activations consists of: pieces, each of so many quads."""

    @property
    def pieces(self) -> int:
        """How many."""

    @property
    def quads(self) -> int:
        """Quads of each."""


def check_orders(packed: Array, runs: RowShape, starts: Array, table: Array) -> tuple[int, int]:
    """Return the bounds of sums of two products.

    MaceError if they saturate, or a weight is not multiplied once.

    packed: the weights, int8 [..., panels, quads of a row, columns, 4].
    starts, table: as the kernel reads them.
    """
    columns = packed.shape[-2]
    panels = packed.reshape(math.prod(packed.shape[:-3]), runs.pieces * runs.quads, columns, 4)
    per_piece = -(-runs.quads // 4)
    windows = runs.pieces * per_piece
    heads = table[: len(panels) * windows].reshape(len(panels), windows)
    counts = heads & 15
    bounds = [(0, 0)]
    for number, panel in enumerate(panels):
        first = len(panels) * windows + 4 * int(starts[number])
        slots = int(counts[number].sum(dtype=np.int64))
        places = table[first : first + 4 * slots].reshape(-1, 4)
        if len(places) != slots:
            raise _fail(number, "its slots lie behind the end of their table")
        window = np.repeat(np.arange(windows), counts[number])
        natural, quad = np.nonzero(heads[number][:, None] >> (4 + np.arange(4)) & 1)
        sums = _place_elements(number, (runs.quads, per_piece), (window, natural), places, quad)
        bounds.append(_check_panel(number, panel, sums))
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def _place_elements(
    number: int, sizes: tuple[int, int], windows: tuple[Array, Array], places: Array, quad: Array
) -> Array:
    """Return the element in each place of slots and of natural quads, [count, 4]; -1 in a place without one.

    sizes: quads and windows of a piece.  windows: of each slot, and of each natural quad.
    places: of the slots, [slots, 4].  quad: of its window that each natural quad is.
    """
    quads, per_piece = sizes
    window = np.concatenate(windows)
    is_full = np.concatenate([places < 0x80, np.ones((len(quad), 4), bool)])
    # The kernel multiplies a natural quad by the four activations that lie where it does.
    inside = np.concatenate([places.astype(np.int64), 4 * quad[:, None] + np.arange(4)])
    if (inside[is_full] >= ELEMENTS).any():
        raise _fail(number, "a place names no element of its window")
    # As the shuffle of activations reads: 16 bytes from the window's beginning.
    first_quad = window // per_piece * quads + window % per_piece * 4
    end = 4 * np.minimum(first_quad + 4, (window // per_piece + 1) * quads)
    element = np.where(is_full, 4 * first_quad[:, None] + inside, -1)
    if (element >= end[:, None]).any():
        raise _fail(number, "a place names an element behind its piece")
    return element


def _check_panel(number: int, panel: Array, element: Array) -> tuple[int, int]:
    """Check one panel [quads, columns, 4]; returns the bounds of its sums.

    element: in each place of what is multiplied, [count, 4]; -1: none.
    """
    depth = panel.transpose(0, 2, 1).reshape(-1, panel.shape[1]).astype(np.int32)
    times = np.bincount(element[element >= 0], minlength=len(depth))
    if (times > 1).any() or depth[times == 0].any():
        raise _fail(number, "a weight is not multiplied once")
    # A row of zeros behind the last element, which -1 names.
    padded = np.concatenate([depth, np.zeros((1, depth.shape[1]), np.int32)])
    # The instruction adds the products of places 0 and 1, and of 2 and 3.
    pairs = padded[element].reshape(-1, 2, depth.shape[1])
    largest = ACTIVATIONS * int(np.maximum(pairs, 0).sum(1).max(initial=0))
    smallest = ACTIVATIONS * int(np.minimum(pairs, 0).sum(1).min(initial=0))
    if largest > MAX_SUM or smallest < MIN_SUM:
        raise _fail(number, "a sum of two products can leave 16 bits")
    return smallest, largest


def _fail(panel: int, problem: str) -> MaceError:
    return MaceError(f"order of products, panel {panel}", problem, REMEDY)
