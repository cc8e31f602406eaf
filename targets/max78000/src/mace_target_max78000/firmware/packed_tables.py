"""Packs what the table-driven program writes, for a program whose flash is small.

All weights are coded with one canonical Huffman code.

All registers of all layers become a table. Layers and quadrants repeat each other.  A group is a run of
writes to one layer in one quadrant, in the order of the registers; it says which registers are written, if
others than in the group before, and which of them get another value than they had last.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby

import numpy as np

from mace_core.emit.text import Code
from mace_core.ir import Array
from mace_target_max78000.device import AON_CONTROL, FAST_FIFO, FIFO_CONTROL, QUADRANTS, Chip
from mace_target_max78000.image import Step, Write

GLOBAL = ("control", "SRAM control", "layer count", "SRAM test")


def name_registers(device: Chip) -> Mapping[int, str]:
    """Every register's address -> what it is, in words."""
    names = {AON_CONTROL: "always-on domain: control", FIFO_CONTROL: "FIFO: control"}
    names |= {FAST_FIFO: "fast FIFO: control", FAST_FIFO + 8: "fast FIFO: interrupts"}
    for quadrant in range(QUADRANTS):
        for number, name in enumerate(GLOBAL):
            names[device.control_register(quadrant, number)] = f"quadrant {quadrant}: {name}"
        for name in (*device.registers, *device.stream_registers):
            for layer in range(device.layers if name in device.registers else 8):
                names[device.layer_register(quadrant, name, layer)] = (
                    f"layer {layer}, quadrant {quadrant}: {name}"
                )
        names[device.layer_register(quadrant, "IFRM", 0)] = f"quadrant {quadrant}: input frame size"
    return names


def comment_steps(steps: Sequence[Step], known: Mapping[int, str]) -> list[tuple[Step, Code]]:
    """Return each step with its register in words."""
    return [(step, Code(known.get(step.address, ""))) for step in steps]


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
    """Return the bits of each byte's Huffman code, 0 for bytes that do not occur.

    Where a code would be too long, it is that of flattened frequencies.
    """
    frequencies = frequencies.copy()
    # A code of one symbol has no bits; a second symbol makes it one bit long.
    frequencies[:2] = np.maximum(frequencies[:2], np.count_nonzero(frequencies) < 2)
    while (lengths := _huffman(frequencies)).max() > LONGEST:
        # Flatter frequencies shorten the longest code, at the cost of the total length.
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
    """Return all codes one after another."""
    places = np.arange(LONGEST - 1, -1, -1)
    table = (codes[:, None] << (LONGEST - lengths)[:, None] >> places & 1).astype(np.uint8)
    used = np.arange(LONGEST) < lengths[:, None]
    pieces = [table[part][used[part]] for part in np.split(values, range(PIECE, values.size, PIECE))]
    return np.packbits(np.concatenate(pieces)).tobytes()


NEXT_LAYER, PREVIOUS_LAYER, OTHER_REGISTERS = 4, 8, 16
"""Bits of a group's first byte above its quadrant.

A layer's writes may be interleaved with those of the next.
"""


@dataclass(frozen=True)
class Register:
    """Where a register lies in quadrant 0 and layer 0, and how far from a layer to the next in bytes."""

    name: Code
    address: int
    pitch: int


@dataclass(frozen=True)
class Table:
    """registers: in the order in which each layer's are written.

    data: the groups.  rest: steps after them that belong to no layer.
    """

    registers: tuple[Register, ...]
    data: bytes
    rest: tuple[Step, ...]


@dataclass(frozen=True)
class _Place:
    layer: int
    quadrant: int
    register: int


def make_table(steps: Sequence[Step], device: Chip) -> Table:
    """Return the steps of cnn_configure as a table.

    The program makes the same writes from it in the same order.
    """
    places = _places(device)
    count = next((i for i, s in enumerate(steps) if s.address not in places), len(steps))
    writes = [s for s in steps[:count] if isinstance(s, Write)]
    used = list(dict.fromkeys(places[w.address][2] for w in writes))
    located = [
        (_Place(layer, quadrant, used.index(name)), value)
        for (layer, quadrant, name), value in _locate_writes(writes, places)
    ]
    registers = tuple(_register(name, device) for name in used)
    return Table(registers, bytes(_groups(located)), tuple(steps[count:]))


def _locate_writes(
    writes: Iterable[Write], places: dict[int, tuple[int, int, str]]
) -> Iterator[tuple[tuple[int, int, str], int]]:
    return ((places[w.address], w.value) for w in writes)


def _places(device: Chip) -> dict[int, tuple[int, int, str]]:
    """Address -> layer, quadrant and name of every layer's registers."""
    places = {}
    for name in (*device.registers, *device.stream_registers):
        for layer in range(device.layers if name in device.registers else 8):
            for quadrant in range(QUADRANTS):
                places[device.layer_register(quadrant, name, layer)] = (layer, quadrant, name)
    for quadrant in range(QUADRANTS):  # a quadrant has it once, and gets it with its first layer
        places[device.layer_register(quadrant, "IFRM", 0)] = (0, quadrant, "IFRM")
    return places


def _register(name: str, device: Chip) -> Register:
    first, second = (device.layer_register(0, name, layer) for layer in (0, 1))
    return Register(Code(name), first, second - first)


def _groups(writes: Iterable[tuple[_Place, int]]) -> Iterator[int]:
    """Yield the bytes of all groups."""
    layer, written = -1, 0
    last: dict[int, int] = {}
    for (number, quadrant), values in _runs(writes):
        step = NEXT_LAYER if number > layer else PREVIOUS_LAYER
        # The first byte moves by one layer only, so layers in between get empty groups.
        for _ in range(abs(number - layer) - 1):  # layers of which nothing is written
            yield from (step | OTHER_REGISTERS, 0, 0)
            written = 0
        mask = _mask(values)
        changed = {r: v for r, v in values.items() if last.get(r, 0) != v}
        yield quadrant | (step if number != layer else 0) | (OTHER_REGISTERS if mask != written else 0)
        if mask != written:
            yield from _number(mask)
        yield from _number(_mask(changed))
        for value in changed.values():
            yield from _number(value)
        layer, written = number, mask
        last |= values


def _runs(writes: Iterable[tuple[_Place, int]]) -> Iterator[tuple[tuple[int, int], dict[int, int]]]:
    """Writes to one layer and quadrant whose registers ascend: (layer, quadrant), and register -> value."""
    for place, group in groupby(writes, key=lambda pair: (pair[0].layer, pair[0].quadrant)):
        values: dict[int, int] = {}
        for position, value in group:
            if values and position.register <= max(values):
                yield place, values
                values = {}
            values[position.register] = value
        yield place, values


def _mask(registers: Iterable[int]) -> int:
    return sum(1 << r for r in registers)


def _number(value: int) -> Iterator[int]:
    """7 bits to a byte, the lowest first, bit 7 set where more follow."""
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value
