"""Whether layers read what was written: each channel by the processor that finds it in its memory, at the offset where it lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array
from mace_target_max78000.device import PER_MEMORY
from mace_target_max78000.legal.processors import written
from mace_target_max78000.legal.site import Fault, Site
from mace_target_max78000.network import BUFFER, INPUT
from mace_target_max78000.unit import Unit, bits_of

WORD = 4


@dataclass(frozen=True)
class Layout:
    """Where some data lie: each channel's processor (or slot) and byte offset at the first position, and bytes between positions."""

    processors: Array
    offsets: Array
    pitch: int


def flow_faults(site: Site) -> Iterator[Fault]:
    """Faults of one layer's offsets and processors against those of the layers that it reads from."""
    layer = site.layer
    if layer.inputs == (INPUT,):
        return
    if INPUT in layer.inputs or any(i <= BUFFER for i in layer.inputs):
        yield from _outside(site)
        return
    begin = 0
    for operand, index in enumerate(layer.inputs):
        source = Unit(site.network.layers[index], site.network.places[index], index)
        made = _written(source, site.place.in_crop[0])
        apart = layer.operands > 1 and len(layer.inputs) > 1
        count = source.layer.out_channels
        wanted = _read(site.unit, operand if apart else 0, slice(0, count) if apart else slice(begin, begin + count))
        begin += 0 if apart else count
        yield from _differences(site, source, made, wanted)


def _written(unit: Unit, rows_left_out: int) -> Layout:
    """A layer's output, from the first row that is read on."""
    layer, place = unit.layer, unit.place
    width = layer.width // 8
    channels = np.arange(layer.out_channels)
    passes, slots = unit.out_passes, np.array(unit.slots)
    pitch = passes * width * unit.write_step * WORD
    start = place.out_offset + rows_left_out * layer.out_dim[1] * pitch
    return Layout(slots[channels % len(slots)], start + channels // len(slots) * width * unit.write_step * WORD, pitch)


def _read(unit: Unit, operand: int, channels: slice) -> Layout:
    """What a layer takes for some of its channels; operands of one source are positions in turn."""
    layer, place = unit.layer, unit.place
    number = np.arange(channels.start, channels.stop)
    processors, step = np.array(unit.processors), place.read_gap + 1
    single = layer.operands if len(layer.inputs) > 1 else 1
    offsets = place.in_offset + (number // len(processors) * single + operand) * step * WORD
    return Layout(processors[number % len(processors)], offsets, unit.in_passes * single * step * WORD)


def _differences(site: Site, source: Unit, made: Layout, wanted: Layout) -> Iterator[Fault]:
    """The first thing that does not match, as what to change."""
    name = source.layer.name
    if not np.array_equal(made.processors, wanted.processors):
        at = int(np.flatnonzero(made.processors != wanted.processors)[0])
        found = f"{written(site.place.processors)}, which reads channel {at} of {name} by processor {wanted.processors[at]}"
        expected = f"processors that read what {name} writes to {written(source.place.output_processors)}"
        yield site.fault("processors", expected, found, f"make the output_processors of {name} and these processors agree")
    elif made.pitch != wanted.pitch:
        expected = f"positions {wanted.pitch} bytes apart"
        gap = wanted.pitch // (source.out_passes * source.layer.width // 8 * WORD) - 1
        remedy = f"write write_gap: {gap} in {name}" if gap >= 0 else f"read {name} by a passthrough layer first"
        yield site.fault("in_sequences", expected, f"{name}'s {made.pitch} bytes apart", remedy)
    elif not np.array_equal(made.offsets, wanted.offsets):
        at = int(np.flatnonzero(made.offsets != wanted.offsets)[0])
        if len(site.layer.inputs) == 1:
            expected, found = f"{made.offsets[0]:#06x}, where {name} is read from", f"{site.place.in_offset:#06x}"
            yield site.fault("in_offset", expected, found, f"write in_offset: {made.offsets[0]:#06x}")
            return
        expected = f"channel {at} of {name} at {wanted.offsets[at]:#06x}, as the order of in_sequences and in_offset say"
        needed = source.place.out_offset + int(wanted.offsets[at] - made.offsets[at])
        yield site.fault(
            "in_sequences", expected, f"it at {made.offsets[at]:#06x}", f"write out_offset: {needed:#06x} in {name}, or correct in_offset"
        )


def _outside(site: Site) -> Iterator[Fault]:
    """Buffers: read by their processors, inside them."""
    for index in (i for i in site.layer.inputs if i <= BUFFER):
        buffer = site.network.buffers[BUFFER - index]
        if site.place.processors != buffer.processors:
            expected = f"{written(buffer.processors)}, as the buffer {buffer.name} has"
            yield site.fault("processors", expected, written(site.place.processors), "make the processors agree")
        begin, end = buffer.offset, buffer.end
        rows, columns = site.layer.dim
        last = site.place.in_offset + rows * columns * buffer.pitch
        if site.place.in_offset < begin or last > end or (site.place.in_offset - begin) % buffer.pitch:
            expected = f"positions of the buffer {buffer.name}, {begin:#06x} to {end:#06x}"
            found = f"{site.place.in_offset:#06x} to {last:#06x}"
            yield site.fault("in_offset", expected, found, "correct in_offset or in_dim")


def read_words(site: Site) -> Array:
    """Numbers of the words that a layer reads in each of its memories."""
    place, (rows, columns) = site.place, site.layer.dim
    first = place.in_offset // WORD
    if place.chw:
        return first + np.arange(-(-rows * columns // WORD))
    return first + np.arange(rows * columns * site.unit.in_passes * site.layer.operands) * (place.read_gap + 1)


def written_words(site: Site) -> Array:
    """Numbers of the words that a layer writes in each of its memories."""
    place, (rows, columns) = site.place, site.layer.out_dim
    width = site.layer.width // 8
    words = np.arange(rows * columns * site.unit.out_passes)[:, None] * (place.write_gap + 1) * width + np.arange(width)
    return place.out_offset // WORD + words.ravel()


def memories_of(mask: int) -> Array:
    """Numbers of the memories that processors or slots belong to."""
    return np.unique(np.array(bits_of(mask), int) // PER_MEMORY)
