"""Checks that layers read what was written: each channel by its processor, at its offset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from mace_core.ir import Array
from mace_frontend_ai8x.network import BUFFER, INPUT, Operation
from mace_target_max78000.check.context import Fault, LayerContext
from mace_target_max78000.check.processors import format_mask
from mace_target_max78000.device import PER_MEMORY
from mace_target_max78000.encode.hardware_layers import Unit, bits_of

WORD = 4


@dataclass(frozen=True)
class ChannelAddresses:
    """Where some data lie: each channel's processor (or slot) and byte offset at the first position, and bytes between positions."""

    processors: Array
    offsets: Array
    pitch: int

    def finds(self, other: ChannelAddresses | None) -> bool:
        """Whether reading here gives what was written there."""
        if other is None:
            return False
        same = np.array_equal(self.processors, other.processors) and np.array_equal(
            self.offsets, other.offsets
        )
        return same and self.pitch == other.pitch


def find_flow_faults(site: LayerContext) -> Iterator[Fault]:
    """Faults of one layer's offsets and processors against those of the layers that it reads from."""
    yield from _check_buffers(site)
    for source, wanted in _list_read_addresses(site):
        made = _find_written(site, source)
        if made is None and (site.options.fifo or site.options.fast_fifo):
            yield site.fault(
                "in_sequences",
                "data in memory",
                "the network's input, which goes through a FIFO",
                "do not use FIFOs",
            )
        if made is not None and not any(
            wanted.finds(_find_written(site, i)) for i in _list_same_data(site, source)
        ):
            yield _describe_difference(site, source, made, wanted)


def find_origins(site: LayerContext) -> list[int]:
    """The layers, or INPUT, whose memory is read: not always the inputs, where passthrough layers have the same data elsewhere."""
    return [
        next((i for i in _list_same_data(site, source) if wanted.finds(_find_written(site, i))), source)
        for source, wanted in _list_read_addresses(site)
    ]


def _list_read_addresses(site: LayerContext) -> Iterator[tuple[int, ChannelAddresses]]:
    """For each input that lies in memory, what the layer takes of it."""
    layer, begin = site.layer, 0
    apart = layer.operands > 1 and len(layer.inputs) > 1
    for operand, index in enumerate(layer.inputs):
        if index <= BUFFER or (index == INPUT and site.index == 0):
            continue
        count = site.source(index).channels
        yield (
            index,
            _read_addresses(
                site.unit, operand if apart else 0, slice(0, count) if apart else slice(begin, begin + count)
            ),
        )
        begin += 0 if apart else count


def _list_same_data(site: LayerContext, index: int) -> Iterator[int]:
    """A layer, and those that hold the same data: what it only copied."""
    yield index
    while index >= 0:
        layer, place = site.network.layers[index], site.network.places[index]
        copied = (
            layer.operation is Operation.PASSTHROUGH
            and layer.pool is None
            and layer.stride == 1
            and len(layer.inputs) == 1
        )
        if not copied or layer.eltwise is not None or place.in_crop != (0, 0) or layer.inputs[0] <= BUFFER:
            return
        index = layer.inputs[0]
        yield index


def _find_written(site: LayerContext, index: int) -> ChannelAddresses | None:
    """Where a layer's data, or the network's input, lie as this layer reads them.

    None where nothing lies in memory.
    """
    network, rows = site.network, site.place.in_crop[0]
    if index >= 0:
        return _written_addresses(Unit(network.layers[index], network.places[index], index), rows)
    first = LayerContext(network, site.device, site.options, 0)
    if first.fifo or first.place.chw or first.layer.operands > 1 or first.layer.inputs != (INPUT,):
        return None
    found = _read_addresses(first.unit, 0, slice(0, first.layer.channels))
    return replace(found, offsets=found.offsets + rows * first.layer.dim[1] * found.pitch)


def _written_addresses(unit: Unit, rows_left_out: int) -> ChannelAddresses:
    """A layer's output, from the first row that is read on."""
    layer, place = unit.layer, unit.place
    width = layer.width // 8
    channels = np.arange(layer.out_channels)
    passes, slots = unit.out_passes, np.array(unit.slots)
    pitch = passes * width * unit.write_step * WORD
    start = place.out_offset + rows_left_out * layer.out_dim[1] * pitch
    return ChannelAddresses(
        slots[channels % len(slots)], start + channels // len(slots) * width * unit.write_step * WORD, pitch
    )


def _read_addresses(unit: Unit, operand: int, channels: slice) -> ChannelAddresses:
    """What a layer takes for some of its channels; operands of one source are positions in turn."""
    layer, place = unit.layer, unit.place
    number = np.arange(channels.start, channels.stop)
    processors, step = np.array(unit.processors), place.read_gap + 1
    single = layer.operands if len(layer.inputs) > 1 else 1
    offsets = place.in_offset + (number // len(processors) * single + operand) * step * WORD
    return ChannelAddresses(
        processors[number % len(processors)], offsets, unit.in_passes * single * step * WORD
    )


def _describe_difference(
    site: LayerContext, index: int, made: ChannelAddresses, wanted: ChannelAddresses
) -> Fault:
    """The first thing that does not match, as what to change."""
    name = site.source(index).name
    if not np.array_equal(made.processors, wanted.processors):
        at = int(np.flatnonzero(made.processors != wanted.processors)[0])
        found = f"{format_mask(site.place.processors)}, which reads channel {at} of {name} by processor {wanted.processors[at]}"
        expected = f"processors that read what {name} writes, its channel {at} lies at processor {made.processors[at]}"
        return site.fault(
            "processors", expected, found, f"make the output_processors of {name} and these processors agree"
        )
    if made.pitch != wanted.pitch:
        factor, rest = divmod(wanted.pitch, made.pitch)
        gap = site.network.places[index].write_gap if index >= 0 else 0
        remedy = (
            f"write write_gap: {(gap + 1) * factor - 1} in {name}"
            if not rest
            else f"read {name} by a passthrough layer first"
        )
        return site.fault(
            "in_sequences",
            f"positions {wanted.pitch} bytes apart",
            f"{name}'s {made.pitch} bytes apart",
            remedy,
        )
    at = int(np.flatnonzero(made.offsets != wanted.offsets)[0])
    if len(site.layer.inputs) == 1:
        expected = f"{made.offsets[0]:#06x}, where {name} is read from"
        return site.fault(
            "in_offset", expected, f"{site.place.in_offset:#06x}", f"write in_offset: {made.offsets[0]:#06x}"
        )
    expected = (
        f"channel {at} of {name} at {wanted.offsets[at]:#06x}, as the order of in_sequences and in_offset say"
    )
    needed = int(wanted.offsets[0] - made.offsets[0]) + (
        site.network.places[index].out_offset if index >= 0 else 0
    )
    remedy = f"write out_offset: {needed:#06x} in {name}, or correct in_offset"
    return site.fault("in_sequences", expected, f"it at {made.offsets[at]:#06x}", remedy)


def _check_buffers(site: LayerContext) -> Iterator[Fault]:
    """Buffers: read by their processors, inside them."""
    for index in (i for i in site.layer.inputs if i <= BUFFER):
        buffer = site.network.buffers[BUFFER - index]
        if site.place.processors != buffer.processors:
            expected = f"{format_mask(buffer.processors)}, as the buffer {buffer.name} has"
            yield site.fault(
                "processors", expected, format_mask(site.place.processors), "make the processors agree"
            )
        begin, end = buffer.offset, buffer.end
        rows, columns = site.layer.dim
        last = site.place.in_offset + rows * columns * buffer.pitch
        if site.place.in_offset < begin or last > end or (site.place.in_offset - begin) % buffer.pitch:
            expected = f"positions of the buffer {buffer.name}, {begin:#06x} to {end:#06x}"
            found = f"{site.place.in_offset:#06x} to {last:#06x}"
            yield site.fault("in_offset", expected, found, "correct in_offset or in_dim")


def list_read_words(site: LayerContext) -> Array:
    """Numbers of the words that a layer reads in each of its memories."""
    place, (rows, columns) = site.place, site.layer.dim
    first = place.in_offset // WORD
    if place.chw:
        return first + np.arange(-(-rows * columns // WORD))
    return first + np.arange(rows * columns * site.unit.in_passes * site.layer.operands) * (
        place.read_gap + 1
    )


def list_written_words(site: LayerContext) -> Array:
    """Numbers of the words that a layer writes in each of its memories."""
    place, (rows, columns) = site.place, site.layer.out_dim
    width = site.layer.width // 8
    words = np.arange(rows * columns * site.unit.out_passes)[:, None] * (
        place.write_gap + 1
    ) * width + np.arange(width)
    return place.out_offset // WORD + words.ravel()


def list_memories(mask: int) -> Array:
    """Numbers of the memories that processors or slots belong to."""
    return np.array(sorted({p // PER_MEMORY for p in bits_of(mask)}), int)
