"""Buffers of streaming layers: parts of data memory that begin anew when they are full, all of them in use at the same time.

The rules are those of the vendor's generator, which counts a buffer's end as a part of it: buffers may not
even touch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mace_target_max78000.legal.features import MEMORY_PARTS
from mace_target_max78000.legal.flow import WORD, memories_of
from mace_target_max78000.legal.site import Fault, Site
from mace_target_max78000.synthesis.streaming import streams
from mace_target_max78000.unit import Unit, units

APART = "move the data of one of them, or use other processors"


class _Part(NamedTuple):
    """A part of some data memories, in bytes."""

    name: str
    memories: frozenset[int]
    begin: int
    end: int

    def meets(self, other: _Part) -> bool:
        """Whether two parts share a byte, or touch."""
        return (
            not self.memories.isdisjoint(other.memories)
            and self.begin <= other.end
            and other.begin <= self.end
        )

    def __str__(self) -> str:
        return f"{self.begin:#06x} to {self.end:#06x}"


def buffer_faults(sites: Sequence[Site]) -> Iterator[Fault]:
    """Buffers that overlap others, the results of their layer, or the end of the memory.

    For a network without other faults.
    """
    device, options = sites[0].device, sites[0].options
    if not (options.fifo or options.fast_fifo):
        return
    lowered = units(sites[0].network, device.pipelined)
    waits = streams(lowered, options, device.pipelined)
    before: list[_Part] = []
    for site, unit in zip(sites, lowered, strict=True):
        if not site.place.streaming:
            return
        length = waits[site.index].rollover * WORD
        own = _Part(
            site.layer.name,
            _memories(site.place.processors),
            site.place.in_offset,
            site.place.in_offset + length,
        )
        if own.end >= device.data_bytes:
            expected = f"a buffer that ends before {device.data_bytes:#06x}"
            yield site.fault(
                "in_offset", expected, str(own), "read from a lower offset, or make the rows shorter"
            )
        yield from _against_output(site, unit, own)
        yield from _against_others(site, own, before)
        before.append(own)
        last = site.index + 1 == len(sites) or not sites[site.index + 1].place.streaming
        if last and not options.overlap_data:
            yield from _results(site, unit, before)


def _memories(mask: int) -> frozenset[int]:
    return frozenset(memories_of(mask).tolist())


def _against_output(site: Site, unit: Unit, own: _Part) -> Iterator[Fault]:
    """A layer that reads and writes the same memories must do so a buffer's length apart."""
    place = site.place
    if not place.processors & place.output_processors:
        return
    length, output = own.end - own.begin, place.out_offset - WORD * unit.ignored
    collides = own.end >= output if own.begin < output else place.out_offset + length >= own.begin
    if collides:
        expected = f"an output more than {length:#06x} bytes away from the buffer at {own}"
        yield site.fault(
            "out_offset", expected, f"{place.out_offset:#06x}", "move it, or use other output_processors"
        )


def _against_others(site: Site, own: _Part, before: Sequence[_Part]) -> Iterator[Fault]:
    for other in before:
        if not site.options.overlap_data and own.meets(other):
            expected = f"memory apart from the buffer of {other.name}, which lies from {other}"
            yield site.fault("in_offset", expected, f"its own from {own}", APART)
        size = site.device.data_bytes // MEMORY_PARTS
        if site.place.read_ahead and own.begin // size == other.begin // size:
            expected = f"a buffer in another part of {size:#06x} bytes than that of {other.name}"
            yield site.fault("readahead", expected, f"{own.begin:#06x} and {other.begin:#06x}", APART)


def _results(site: Site, unit: Unit, buffers: Sequence[_Part]) -> Iterator[Fault]:
    """What the last streaming layer writes lies apart from all buffers."""
    rows, columns = unit.layer.out_dim
    length = rows * columns * WORD * site.layer.width // 8
    place = site.place
    output = _Part(
        site.layer.name, _memories(place.output_processors), place.out_offset, place.out_offset + length
    )
    for buffer in buffers:
        if output.meets(buffer):
            expected = f"memory apart from the buffer of {buffer.name}, which lies from {buffer}"
            yield site.fault("out_offset", expected, f"its output from {output}", APART)
