"""Weights in fewer bytes than they have: a canonical Huffman code over all of them, for a program whose flash is small."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count

import numpy as np

from mace_core.ir import Array

LONGEST = 16
"""Bits of the longest code."""
PIECE = 1 << 16
"""Bytes that are coded at once, so that little memory is needed."""


@dataclass(frozen=True)
class Packed:
    """counts: codes of each length from 1 bit on.

    symbols: bytes in the order of their codes.  data: the bits, the highest first.
    """

    counts: tuple[int, ...]
    symbols: bytes
    data: bytes


def pack(data: bytes) -> Packed:
    """Code bytes; at least two different ones, of which there may be fewer in the data, have codes."""
    values = np.frombuffer(data, np.uint8)
    lengths = _lengths(np.bincount(values, minlength=256))
    symbols = sorted(np.flatnonzero(lengths).tolist(), key=lambda s: (lengths[s], s))
    codes = np.zeros(256, np.int64)
    code = 0
    for i, symbol in enumerate(symbols):
        if i:
            code = code + 1 << int(lengths[symbol] - lengths[symbols[i - 1]])
        codes[symbol] = code
    counts = np.bincount(lengths[lengths > 0], minlength=LONGEST + 1)[1:]
    return Packed(tuple(counts.tolist()), bytes(symbols), _bits(values, codes, lengths))


def _lengths(frequencies: Array) -> Array:
    """Bits of each byte's code, 0 for those that do not occur: Huffman's, from flattened frequencies where a code would be too long."""
    frequencies = frequencies.copy()
    frequencies[:2] = np.maximum(frequencies[:2], np.count_nonzero(frequencies) < 2)
    while (lengths := _huffman(frequencies)).max() > LONGEST:
        frequencies = np.where(frequencies > 0, frequencies // 2 + 1, 0)
    return lengths


def _huffman(frequencies: Array) -> Array:
    lengths, order = np.zeros(256, np.int64), count()
    trees = [(int(frequencies[s]), next(order), [s]) for s in np.flatnonzero(frequencies).tolist()]
    heapq.heapify(trees)
    while len(trees) > 1:
        (a, _, first), (b, _, second) = heapq.heappop(trees), heapq.heappop(trees)
        lengths[first + second] += 1
        heapq.heappush(trees, (a + b, next(order), first + second))
    return lengths


def _bits(values: Array, codes: Array, lengths: Array) -> bytes:
    """All codes one after another."""
    places = np.arange(LONGEST - 1, -1, -1)
    table = (codes[:, None] << (LONGEST - lengths)[:, None] >> places & 1).astype(np.uint8)
    used = np.arange(LONGEST) < lengths[:, None]
    pieces = [table[part][used[part]] for part in np.split(values, range(PIECE, values.size, PIECE))]
    return np.packbits(np.concatenate(pieces)).tobytes()
