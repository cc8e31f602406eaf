"""What must hold of every placement, told word by word and without the code that places: each layer finds what its inputs' makers wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mace_frontend_ai8x.network import INPUT, Layer, LayerPlacement, Operation
from mace_target_max78000.device import Chip
from mace_target_max78000.place.search import PlacedNetwork

Words = np.ndarray[Any, np.dtype[np.int64]]
FREE = -1


def bits(mask: int) -> list[int]:
    return [i for i in range(64) if mask >> i & 1]


@dataclass
class Lies:
    """Where a value lies: for channel c slot and word of each position; `step` words between positions."""

    slots: list[int]
    passes: int
    first: int
    step: int
    gap: int
    positions: int
    wide: bool = False
    chw: bool = False

    def words(self, channel: int) -> tuple[int, Words]:
        """The data memory of a channel, and its words there by position."""
        position = np.arange(self.positions, dtype=np.int64)
        slot, e = self.slots[channel % len(self.slots)], channel // len(self.slots)
        if self.chw:
            return slot // 4, self.first + position // 4
        if self.wide:
            return slot // 4, self.first + (position * self.passes + e) * self.gap * 4 + slot % 4
        return slot // 4, self.first + position * self.step + e * self.gap


@dataclass
class Checker:
    """All data memories as tags: whose word, of which position and pass."""

    placed: PlacedNetwork
    device: Chip
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tags = np.full((16, self.device.data_bytes // 4), FREE, np.int64)
        self.lies: dict[int, Lies] = {}

    def check(self) -> list[str]:
        """Run all layers; what each finds wrong."""
        layers, places = self.placed.layers, self.placed.places
        self._load(layers[0], places[0])
        for index, (layer, place) in enumerate(zip(layers, places, strict=True)):
            self._legal(layer, place)
            self._begin_average(layers[:index], layer, place)
            self._read(layer, place)
            self._write(index, layer, place)
        for index, layer in enumerate(layers):
            if layer.output:
                self._find(index, range(layer.out_channels), layer.name)
        return self.faults

    def _load(self, layer: Layer, place: LayerPlacement) -> None:
        passes = -(-layer.channels // 64)
        step = passes * layer.operands
        positions = layer.dim[0] * layer.dim[1]
        self.lies[INPUT] = Lies(
            bits(place.processors), passes, place.in_offset // 4, step, 1, positions, chw=place.chw
        )
        if not place.streaming and (layer.operands == 1 or len(layer.inputs) > 1):
            self._tag(INPUT, range(layer.channels))

    def _legal(self, layer: Layer, place: LayerPlacement) -> None:
        """Counts and alignment that the hardware asks for."""
        for channels, mask, offset in (
            (layer.channels, place.processors, place.in_offset),
            (layer.out_channels, place.output_processors, place.out_offset),
        ):
            passes = -(-channels // 64)
            count = -(-channels // passes)
            count = -(-count // 4) * 4 if passes > 1 else count
            self._require(
                len(bits(mask)) == count, f"{layer.name}: {len(bits(mask))} slots for {channels} channels"
            )
            self._require(offset % 4 == 0 and offset >= 0, f"{layer.name}: offset {offset}")
        self._require(bits(place.output_processors)[0] % 4 == 0, f"{layer.name}: output begins inside a word")
        if layer.operation is Operation.PASSTHROUGH:
            self._require(
                place.processors == place.output_processors, f"{layer.name}: does not convolve, yet moves"
            )

    def _begin_average(self, before: tuple[Layer, ...], layer: Layer, place: LayerPlacement) -> None:
        """The second generation writes a word before an average that follows a layer with operands."""
        if (
            self.device.generation == 2
            and before
            and before[-1].operands > 1
            and layer.pool is not None
            and layer.pool.average
        ):
            slots = bits(place.output_processors)
            inside = slots if layer.weights is not None else [s for s in slots if s < 16]
            self.tags[inside[0] // 4 if inside else 0, place.out_offset // 4] = FREE

    def _require(self, holds: bool, fault: str) -> None:
        if not holds:
            self.faults.append(fault)

    def _tag(self, maker: int, channels: range) -> None:
        lies = self.lies[maker]
        for channel in channels:
            memory, words = lies.words(channel)
            inside = int(words.max()) < self.tags.shape[1]
            self._require(inside, f"value {maker}: beyond the memory")
            kept = words if inside else words[:0]
            self.tags[memory, kept] = maker * (1 << 32) + kept

    def _find(self, maker: int, channels: range, reader: str) -> None:
        for channel in channels:
            memory, words = self.lies[maker].words(channel)
            self._require(
                bool((self.tags[memory, words] == maker * (1 << 32) + words).all()),
                f"{reader}: value {maker} is overwritten",
            )

    def _read(self, layer: Layer, place: LayerPlacement) -> None:
        """Every channel of every input must lie where the layer's registers make it look, and be whole."""
        for source, channel, own, operand in self._channels(layer):
            lies = self.lies[source]
            if place.streaming:
                continue
            passes = -(-layer.channels // 64)
            gap = layer.operands * (place.read_gap + 1)
            looks = Lies(
                bits(place.processors),
                passes,
                place.in_offset // 4 + operand,
                passes * gap,
                gap,
                lies.positions,
                chw=place.chw,
            )
            memory, words = looks.words(channel)
            slot = looks.slots[channel % len(looks.slots)]
            made, found = lies.words(own)
            self._require(
                slot == lies.slots[own % len(lies.slots)], f"{layer.name}: channel {channel} in slot {slot}"
            )
            self._require(
                memory == made and bool((words == found).all()),
                f"{layer.name}: channel {channel} is looked for elsewhere",
            )
            self._find(source, range(own, own + 1), layer.name)

    def _channels(self, layer: Layer) -> Iterator[tuple[int, int, int, int]]:
        """(source, the layer's channel, the source's channel, operand)"""
        if len(layer.inputs) == 1 and layer.operands > 1:
            return
        first = 0
        for operand, source in enumerate(layer.inputs):
            if layer.eltwise is not None and len(layer.inputs) > 1:
                yield from ((source, c, c, operand) for c in range(layer.channels))
                continue
            count = layer.channels if len(layer.inputs) == 1 else self._count(source)
            yield from ((source, first + c, c, 0) for c in range(count))
            first += count

    def _count(self, source: int) -> int:
        return self.placed.layers[source].out_channels if source != INPUT else len(self.lies[INPUT].slots)

    def _write(self, index: int, layer: Layer, place: LayerPlacement) -> None:
        passes, gap = -(-layer.out_channels // 64), place.write_gap + 1
        positions = layer.out_dim[0] * layer.out_dim[1]
        slots = bits(place.output_processors)
        lies = Lies(slots, passes, place.out_offset // 4, passes * gap, gap, positions, wide=layer.wide)
        if not place.streaming:
            self._spare(layer, place, lies)
        self.lies[index] = lies
        if not any(p.streaming for p in self.placed.places[index + 1 : index + 2]):
            self._tag(index, range(layer.out_channels))

    def _spare(self, layer: Layer, place: LayerPlacement, output: Lies) -> None:
        """No word that a position still needs may be written before it has been computed."""
        last = last_needed(layer)
        needed = np.full(self.tags.shape, -1, np.int64)
        for source, _, own, _ in self._channels(layer):
            memory, words = self.lies[source].words(own)
            np.maximum.at(
                needed[memory],
                words,
                last.ravel() if words.size == last.size else layer.out_dim[0] * layer.out_dim[1],
            )
        position = np.arange(output.positions)
        for channel in range(layer.out_channels):
            memory, words = output.words(channel)
            self._require(
                bool((needed[memory, words] < position).all()),
                f"{layer.name}: writes over what it still reads",
            )


def last_needed(layer: Layer) -> Words:
    """For each input position the last output position that depends on it; those of no use -1."""
    rows, columns = layer.out_dim
    result = np.full(layer.dim, -1, np.int64)
    reach = [(k - 1) * d + 1 for k, d in zip(layer.kernel, layer.dilation, strict=True)]
    if layer.flatten or layer.operation is Operation.CONV_TRANSPOSE2D or max(reach) > 9:
        return np.full(layer.dim, rows * columns)
    size, dilation, stride = layer.window
    for position in range(rows * columns):
        spans = []
        for at, kernel, pad, window, apart in zip(
            divmod(position, columns), reach, layer.pad, size, dilation, strict=True
        ):
            spans.append(
                slice(
                    max(0, at - pad) * stride,
                    max(0, (at - pad + kernel - 1) * stride + (window - 1) * apart + 1),
                )
            )
        result[spans[0], spans[1] if layer.dim[1] > 1 else slice(0, 1)] = position
    return result


def faults(placed: PlacedNetwork, device: Chip) -> list[str]:
    """What is wrong with a placement."""
    return Checker(placed, device).check()
