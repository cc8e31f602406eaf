"""Bias memory: one byte for each output channel, in one quadrant's memory or, for depthwise layers, in each processor's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_target_max78000.device import PER_QUADRANT, QUADRANTS, Device
from mace_target_max78000.unit import Unit

_NONE = 1 << 16
"""In the order of processors: no channel is there."""


@dataclass(frozen=True)
class Bias:
    """Where a layer's bias lies: by quadrant the number of its first byte.  everywhere: each quadrant reads its own."""

    quadrant: int
    offsets: dict[int, int]
    everywhere: bool = False

    def offset(self, quadrant: int) -> int:
        """What the quadrant's register holds."""
        return self.offsets.get(quadrant, 0)


@dataclass
class Memories:
    """The four bias memories while they are being filled."""

    size: int
    data: list[list[int]] = field(default_factory=lambda: [[] for _ in range(QUADRANTS)])
    faults: list[str] = field(default_factory=list)

    def add(self, quadrant: int, values: Sequence[int], unit: Unit) -> int:
        """Append bytes; returns the number of the first."""
        memory = self.data[quadrant]
        first = len(memory)
        memory.extend(values)
        if len(memory) > self.size:
            self.faults.append(
                f"layer {unit.index} ({unit.layer.name}): quadrant {quadrant} would hold {len(memory)} bytes of bias, {self.size} fit"
            )
        return first

    def bytes_of(self) -> dict[int, bytes]:
        """The content of each memory that is in use."""
        return {q: bytes(v & 0xFF for v in values) for q, values in enumerate(self.data) if values}


def place(units: Sequence[Unit], quadrants: Sequence[int], device: Device, ignore_groups: bool) -> tuple[dict[int, Bias], dict[int, bytes]]:
    """Where every bias lies, by layer, and the memories by quadrant; a bias of zeros only is none.

    Raises one MaceError with all layers whose bias does not fit.
    """
    memories = Memories(device.bias_bytes)
    biased = [u for u in units if u.layer.bias is not None and np.any(u.layer.bias)]
    found: dict[int, Bias] = {}
    for unit in (u for u in biased if u.depthwise):
        twin = next((found[u.index] for u in biased if u.index in found and _alike(u, unit)), None)
        found[unit.index] = twin or _depthwise(unit, quadrants, memories)
    allowed = {u.index: _allowed(u, quadrants, ignore_groups) for u in biased}
    shared: list[tuple[Array, Bias]] = []
    for unit in sorted((u for u in biased if not u.depthwise), key=lambda u: _urgency(u, allowed[u.index], device)):
        values = _values(unit, device)
        twin = next((b for v, b in shared if np.array_equal(v, values)), None)
        if twin is None:
            quadrant = min(allowed[unit.index], key=lambda q: (len(memories.data[q]), q))
            twin = Bias(quadrant, {quadrant: memories.add(quadrant, values.tolist(), unit)})
            shared.append((values, twin))
        found[unit.index] = twin
    if memories.faults:
        raise MaceError("bias memory", "; ".join(memories.faults), "leave out a layer's bias, or spread layers over more quadrants")
    return found, memories.bytes_of()


def _allowed(unit: Unit, quadrants: Sequence[int], ignore_groups: bool) -> Sequence[int]:
    groups = unit.place.bias_groups
    return quadrants if groups is None or ignore_groups else groups


def _urgency(unit: Unit, allowed: Sequence[int], device: Device) -> tuple[bool, bool, int]:
    """Flattened layers first on the first generation, then layers with one choice, then long ones."""
    flat = unit.layer.flatten and not device.pipelined
    choice = len(allowed) > 1
    return not flat, choice, -len(_values(unit, device)) if choice else 0


def _alike(a: Unit, b: Unit) -> bool:
    """Whether two depthwise layers can share their bias."""
    assert a.layer.bias is not None
    assert b.layer.bias is not None
    return a.place.processors == b.place.processors and a.broadcast == b.broadcast and np.array_equal(a.layer.bias, b.layer.bias)


def _values(unit: Unit, device: Device) -> Array:
    """The bytes with those for unused output slots before them."""
    assert unit.layer.bias is not None
    lead = unit.skipped_slots * unit.out_passes
    first = unit.place.streaming and unit.index == 0 and not device.pipelined
    return np.concatenate((np.zeros(lead + first, np.int64), unit.layer.bias))


def _depthwise(unit: Unit, quadrants: Sequence[int], memories: Memories) -> Bias:
    """Each channel's byte in the quadrant of its processor, pass by pass; broadcast layers read four memories side by side."""
    assert unit.layer.bias is not None
    passes, count = unit.in_passes, len(unit.processors)
    padded = np.full(passes * count, _NONE)
    padded[: unit.layer.bias.size] = unit.layer.bias
    by_processor = dict(zip(unit.processors, padded.reshape(passes, count).T.tolist(), strict=True))
    step = 4 if unit.broadcast else 1
    offsets = {}
    for quadrant in (q for q in quadrants if unit.in_quadrant(q)):
        table = [by_processor.get(quadrant * PER_QUADRANT + p, [_NONE] * passes) for p in range(PER_QUADRANT)]
        if unit.broadcast:
            table = [table[p % 4 * 4 + p // 4] for p in range(PER_QUADRANT)]
        values = [table[p][e] for e in range(passes) for p in range(PER_QUADRANT)]
        while values[-1] == _NONE:
            values.pop()
        memories.add(quadrant, [0] * (-len(memories.data[quadrant]) % step), unit)
        offsets[quadrant] = memories.add(quadrant, [0 if v == _NONE else v for v in values], unit) // step
    return Bias(min(offsets), offsets, everywhere=True)
