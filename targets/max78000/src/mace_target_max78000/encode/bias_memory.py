"""Fills bias memory: one byte for each output channel.

It lies in one quadrant's memory or, for depthwise layers, in the memory of each processor's quadrant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, QUADRANTS, Chip
from mace_target_max78000.encode.hardware_layers import HardwareLayer
from mace_target_max78000.encode.weight_runs import LANES

_NONE = int(np.iinfo(np.int64).min)
"""Marks bytes, in the order of processors, that belong to no channel."""


@dataclass(frozen=True)
class Bias:
    """Where a layer's bias lies: by quadrant that reads it the number of its first byte.

    quadrant: the one that holds it; the first of them in a depthwise layer, whose quadrants read their own.
    """

    quadrant: int
    offsets: dict[int, int]

    def offset(self, quadrant: int) -> int:
        """Return what the quadrant's register holds."""
        return self.offsets.get(quadrant, 0)


@dataclass
class Memories:
    """The four bias memories while they are being filled."""

    size: int
    data: list[list[int]] = field(default_factory=lambda: [[] for _ in range(QUADRANTS)])
    faults: list[str] = field(default_factory=list)

    def add(self, quadrant: int, values: Sequence[int], unit: HardwareLayer) -> int:
        """Append bytes; returns the number of the first."""
        memory = self.data[quadrant]
        first = len(memory)
        memory.extend(values)
        if len(memory) > self.size:
            counts = f"would hold {len(memory)} bytes of bias, {self.size} fit"
            self.faults.append(f"layer {unit.index} ({unit.layer.name}): quadrant {quadrant} {counts}")
        return first

    def fill(self, quadrant: int, step: int, unit: HardwareLayer) -> None:
        """Append zeros up to a multiple of `step` bytes."""
        self.add(quadrant, [0] * (-len(self.data[quadrant]) % step), unit)

    def bytes_of(self) -> dict[int, bytes]:
        """Return the content of each memory that is in use."""
        return {q: bytes(v & 0xFF for v in values) for q, values in enumerate(self.data) if values}


def place_bias(
    units: Sequence[HardwareLayer], quadrants: Sequence[int], device: Chip, ignore_groups: bool
) -> tuple[dict[int, Bias], dict[int, bytes]]:
    """Return where every bias lies, by layer, and the memories by quadrant; a bias of zeros only is none.

    Raises one MaceError with all layers whose bias does not fit.
    """
    memories = Memories(device.bias_bytes)
    biased = [u for u in units if u.layer.bias is not None and np.any(u.layer.bias)]
    biases: dict[int, Bias] = {}
    # Depthwise layers come first: each of their bytes must lie in the quadrant of its processor.
    for unit in (u for u in biased if u.depthwise):
        twin = next((biases[u.index] for u in biased if u.index in biases and _can_share_bias(u, unit)), None)
        biases[unit.index] = twin or _depthwise(unit, memories)
    allowed = {u.index: _allowed_quadrants(u, quadrants, ignore_groups) for u in biased}
    shared: list[tuple[Array, Bias]] = []
    for unit in sorted(
        (u for u in biased if not u.depthwise), key=lambda u: _urgency(u, allowed[u.index], device)
    ):
        values = _values(unit, device)
        # Equal bytes are stored once; bias memory is the smallest of all memories.
        twin = next((b for v, b in shared if np.array_equal(v, values)), None)
        if twin is None:
            step = LANES if unit.place.calcx4 else 1
            quadrant = min(allowed[unit.index], key=lambda q: (_up(len(memories.data[q]), step), q))
            memories.fill(quadrant, step, unit)
            twin = Bias(quadrant, {quadrant: memories.add(quadrant, values.tolist(), unit) // step})
            shared.append((values, twin))
        biases[unit.index] = twin
    if memories.faults:
        raise MaceError(
            "bias memory",
            "; ".join(memories.faults),
            "leave out a layer's bias, or spread layers over more quadrants",
        )
    return biases, memories.bytes_of()


def _allowed_quadrants(unit: HardwareLayer, quadrants: Sequence[int], ignore_groups: bool) -> Sequence[int]:
    groups = unit.place.bias_groups
    return quadrants if groups is None or ignore_groups else groups


def _urgency(unit: HardwareLayer, allowed: Sequence[int], device: Chip) -> tuple[bool, bool, int]:
    """Flattened layers first on the first generation, then layers with one choice, then long ones."""
    # The order of the vendor's tool, followed so that programs can be compared with its programs word by
    # word.
    flat = unit.layer.flatten and device.generation == 1
    choice = len(allowed) > 1
    return not flat, choice, -len(_values(unit, device)) if choice else 0


def _can_share_bias(a: HardwareLayer, b: HardwareLayer) -> bool:
    """Whether two depthwise layers can share their bias."""
    assert a.layer.bias is not None
    assert b.layer.bias is not None
    return (
        a.place.processors == b.place.processors
        and a.broadcast == b.broadcast
        and np.array_equal(a.layer.bias, b.layer.bias)
    )


def _values(unit: HardwareLayer, device: Chip) -> Array:
    """Return the bias bytes, preceded by those of unused output slots."""
    assert unit.layer.bias is not None
    # The first generation reads the bias of a first layer that streams one byte late (vendor's tool,
    # kbias).
    lead = unit.skipped_slots * unit.out_passes
    first = unit.place.streaming and unit.index == 0 and device.generation == 1
    return np.concatenate((np.zeros(lead + first, np.int64), unit.layer.bias))


def _depthwise(unit: HardwareLayer, memories: Memories) -> Bias:
    """Return each channel's byte in the quadrant of its processor, pass by pass.

    Every quadrant begins with the layer's own first byte.

    A row of bytes reaches from the first quadrant in use to the last processor.  Broadcast layers read four
    memories side by side: their rows are whole quadrants, begin at multiples of four, and have the processors
    of each data memory four bytes apart.  In other layers the processors that the first quadrant does not use
    before its first one lie at its end instead.
    """
    rows, step = _rows(unit), 4 if unit.broadcast else 1
    first, last = unit.processors[0] // PER_QUADRANT, unit.processors[-1] // PER_QUADRANT
    offsets = {}
    for quadrant in range(first, last + 1):
        if unit.in_quadrant(quadrant):
            memories.fill(quadrant, step, unit)
            offsets[quadrant] = len(memories.data[quadrant]) // step
        part = slice((quadrant - first) * PER_QUADRANT, (quadrant - first + 1) * PER_QUADRANT)
        values: list[int] = []
        for row in rows:
            values += row[part]
        # bytes that no processor reads are kept, but not at the end of the last quadrant
        while quadrant == last and values[-1] == _NONE:
            values.pop()
        memories.add(quadrant, [0 if v == _NONE else v for v in values], unit)
    return Bias(first, offsets)


def _rows(unit: HardwareLayer) -> list[list[int]]:
    """For each pass the bytes of all processors from the beginning of the first quadrant on."""
    assert unit.layer.bias is not None
    passes, count = unit.in_passes, len(unit.processors)
    values = np.full(passes * count, _NONE)
    values[: unit.layer.bias.size] = unit.layer.bias
    first, unused = divmod(unit.processors[0], PER_QUADRANT)
    places = np.array(unit.processors) - first * PER_QUADRANT
    if unit.broadcast:
        inside = places % PER_QUADRANT
        places += inside % PER_MEMORY * PER_MEMORY + inside // PER_MEMORY - inside
        length = _up(int(places.max()) + 1, PER_QUADRANT)
    else:
        places[places < PER_QUADRANT] -= unused
        length = int(places.max()) + 1
    rows = np.full((passes, length), _NONE)
    rows[:, places] = values.reshape(passes, count)
    as_lists: list[list[int]] = rows.tolist()
    return as_lists


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
