"""Checks that layers read what was written: each channel by its processor, at its offset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from mace_core.ir import Array
from mace_frontend_ai8x.network import BUFFER, INPUT, Operation
from mace_target_max78000.check.context import Fault, LayerContext
from mace_target_max78000.check.processors import format_mask
from mace_target_max78000.device import PER_MEMORY, WORD_BYTES
from mace_target_max78000.encode.hardware_layers import HardwareLayer, bits_of


@dataclass(frozen=True)
class ChannelAddresses:
    """Where data lie: each channel's processor (or slot), and its byte offset at the first position.

    pitch: bytes between two positions.
    """

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
    for source, expected_read in _list_read_addresses(site):
        written = _find_written(site, source)
        # What came through a FIFO went to the first layer and is in no memory.
        if written is None and (site.options.fifo or site.options.fast_fifo):
            yield site.fault(
                "in_sequences",
                "data in memory",
                "the network's input, which goes through a FIFO",
                "do not use FIFOs",
            )
        if written is not None and not any(
            expected_read.finds(_find_written(site, i)) for i in _list_same_data(site, source)
        ):
            yield _describe_difference(site, source, written, expected_read)


def find_origins(site: LayerContext) -> list[int]:
    """Return the layers, or INPUT, whose memory is read.

    These are not always the inputs: a passthrough layer may have put the same data elsewhere.
    """
    owners = []
    for source, expected_read in _list_read_addresses(site):
        holders = _list_same_data(site, source)
        owners.append(next((i for i in holders if expected_read.finds(_find_written(site, i))), source))
    return owners


def _list_read_addresses(site: LayerContext) -> Iterator[tuple[int, ChannelAddresses]]:
    """For each input that lies in memory, what the layer takes of it."""
    layer, begin = site.layer, 0
    # Operands are read one after another at the same processors, joined inputs by processors in a row.
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
    """Yield a layer, and those that hold the same data: what it only copied."""
    yield index
    while index >= 0:
        layer, place = site.network.layers[index], site.network.places[index]
        # A passthrough layer without a pool, an operation or a crop writes what it reads.
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
    """Return where a layer's data, or the network's input, lie as this layer reads them.

    None where nothing lies in memory.
    """
    network, rows = site.network, site.place.in_crop[0]
    if index >= 0:
        return _written_addresses(HardwareLayer(network.layers[index], network.places[index], index), rows)
    first = LayerContext(network, site.device, site.options, 0)
    # In these forms the input does not lie as a layer's output does, so only the first layer can read it.
    if first.fifo or first.place.chw or first.layer.operands > 1 or first.layer.inputs != (INPUT,):
        return None
    actual = _read_addresses(first.unit, 0, slice(0, first.layer.channels))
    return replace(actual, offsets=actual.offsets + rows * first.layer.dim[1] * actual.pitch)


def _written_addresses(unit: HardwareLayer, rows_left_out: int) -> ChannelAddresses:
    """Return a layer's output, from the first row that is read on."""
    layer, place = unit.layer, unit.place
    width = layer.width // 8
    channels = np.arange(layer.out_channels)
    # Channel c goes to slot c modulo their number; each pass writes one word of every position.
    passes, slots = unit.out_passes, np.array(unit.slots)
    pitch = passes * width * unit.write_step * WORD_BYTES
    start = place.out_offset + rows_left_out * layer.out_dim[1] * pitch
    return ChannelAddresses(
        slots[channels % len(slots)],
        start + channels // len(slots) * width * unit.write_step * WORD_BYTES,
        pitch,
    )


def _read_addresses(unit: HardwareLayer, operand: int, channels: slice) -> ChannelAddresses:
    """Return what a layer takes for some of its channels; operands of one source are positions in turn."""
    layer, place = unit.layer, unit.place
    number = np.arange(channels.start, channels.stop)
    processors, step = np.array(unit.processors), place.read_gap + 1
    # The operands of one source are positions in turn, those of several lie word by word.
    single = layer.operands if len(layer.inputs) > 1 else 1
    offsets = place.in_offset + (number // len(processors) * single + operand) * step * WORD_BYTES
    return ChannelAddresses(
        processors[number % len(processors)], offsets, unit.in_passes * single * step * WORD_BYTES
    )


def _describe_difference(
    site: LayerContext, index: int, written: ChannelAddresses, expected_read: ChannelAddresses
) -> Fault:
    """Return the first thing that does not match, as what to change."""
    name = site.source(index).name
    if not np.array_equal(written.processors, expected_read.processors):
        channel = int(np.flatnonzero(written.processors != expected_read.processors)[0])
        reader, writer = expected_read.processors[channel], written.processors[channel]
        mask = format_mask(site.place.processors)
        actual = f"{mask}, which reads channel {channel} of {name} by processor {reader}"
        where = f"its channel {channel} lies at processor {writer}"
        expected = f"processors that read what {name} writes, {where}"
        return site.fault(
            "processors", expected, actual, f"make the output_processors of {name} and these processors agree"
        )
    # A gap of writing multiplies the pitch, so a whole factor can be corrected there.
    if written.pitch != expected_read.pitch:
        factor, rest = divmod(expected_read.pitch, written.pitch)
        gap = site.network.places[index].write_gap if index >= 0 else 0
        remedy = (
            f"write write_gap: {(gap + 1) * factor - 1} in {name}"
            if not rest
            else f"read {name} by a passthrough layer first"
        )
        return site.fault(
            "in_sequences",
            f"positions {expected_read.pitch} bytes apart",
            f"{name}'s {written.pitch} bytes apart",
            remedy,
        )
    channel = int(np.flatnonzero(written.offsets != expected_read.offsets)[0])
    if len(site.layer.inputs) == 1:
        remedy = f"write in_offset: {written.offsets[0]:#06x}"
        expected = f"{written.offsets[0]:#06x}, where {name} is read from"
        return site.fault("in_offset", expected, f"{site.place.in_offset:#06x}", remedy)
    expected = (
        f"channel {channel} of {name} at {expected_read.offsets[channel]:#06x}, "
        "as the order of in_sequences and in_offset say"
    )
    needed = int(expected_read.offsets[0] - written.offsets[0]) + (
        site.network.places[index].out_offset if index >= 0 else 0
    )
    remedy = f"write out_offset: {needed:#06x} in {name}, or correct in_offset"
    return site.fault("in_sequences", expected, f"it at {written.offsets[channel]:#06x}", remedy)


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
            actual = f"{site.place.in_offset:#06x} to {last:#06x}"
            yield site.fault("in_offset", expected, actual, "correct in_offset or in_dim")


def list_read_words(site: LayerContext) -> Array:
    """Return the numbers of the words that a layer reads in each of its memories."""
    place, (rows, columns) = site.place, site.layer.dim
    first = place.in_offset // WORD_BYTES
    # In planes a word holds four positions of one channel.
    if place.chw:
        return first + np.arange(-(-rows * columns // WORD_BYTES))
    return first + np.arange(rows * columns * site.unit.in_passes * site.layer.operands) * (
        place.read_gap + 1
    )


def list_written_words(site: LayerContext) -> Array:
    """Return the numbers of the words that a layer writes in each of its memories."""
    place, (rows, columns) = site.place, site.layer.out_dim
    width = site.layer.width // 8
    words = np.arange(rows * columns * site.unit.out_passes)[:, None] * (
        place.write_gap + 1
    ) * width + np.arange(width)
    return place.out_offset // WORD_BYTES + words.ravel()


def list_memories(mask: int) -> Array:
    """Return the numbers of the memories that processors or slots belong to."""
    return np.array(sorted({p // PER_MEMORY for p in bits_of(mask)}), int)
