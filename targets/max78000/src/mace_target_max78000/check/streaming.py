"""Checks layers that begin before the previous one has ended: order, row memory, waits, buffers.

A buffer is a part of data memory that begins anew when it is full; all buffers are in use at the same time.
The rules for buffers are those of the vendor's generator, which counts a buffer's end as a part of it:
buffers may not even touch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mace_frontend_ai8x.network import Operation
from mace_target_max78000.check.context import Fault, LayerContext, format_size
from mace_target_max78000.check.data_flow import WORD, list_memories
from mace_target_max78000.check.features import MEMORY_PARTS
from mace_target_max78000.device import MAX_STREAMING_LAYERS
from mace_target_max78000.encode.hardware_layers import Unit, units
from mace_target_max78000.encode.streaming import streams

MAX_STREAM_PASSES = 16
MAX_STREAM_POSITIONS = 1 << 21


def find_streaming_faults(sites: Sequence[LayerContext]) -> Iterator[Fault]:
    """All faults of the streaming layers."""
    streaming = [site for site in sites if site.place.streaming]
    if not streaming:
        return
    options = sites[0].options
    if not (options.fifo or options.fast_fifo):
        yield Fault("", "streaming", "a FIFO", "none", "ask for fifo, or remove streaming")
    for expected, site in enumerate(streaming):
        if site.index != expected:
            remedy = f"stream in {sites[expected].layer.name} as well, or not here"
            yield site.fault(
                "streaming", "streaming in all layers before", f"none in {sites[expected].layer.name}", remedy
            )
            break
    if len(streaming) > MAX_STREAMING_LAYERS:
        remedy = f"remove it from {streaming[MAX_STREAMING_LAYERS].layer.name} on"
        yield streaming[MAX_STREAMING_LAYERS].fault(
            "streaming", f"at most {MAX_STREAMING_LAYERS} layers", f"{len(streaming)}", remedy
        )
    passes = 0
    for site in streaming:
        yield from _check_stream_layer(site)
        if passes >= MAX_STREAM_PASSES:
            yield site.fault(
                "streaming",
                f"at most {MAX_STREAM_PASSES - 1} passes in the layers before",
                str(passes),
                "stream in fewer layers",
            )
        passes += site.unit.in_passes
    yield from _check_last(streaming[-1])


def _check_stream_layer(site: LayerContext) -> Iterator[Fault]:
    layer = site.layer
    if layer.flatten:
        yield site.fault("streaming", "no flattening", "flatten", "end streaming in the layer before")
    if site.device.pipelined and (layer.operation in (Operation.PASSTHROUGH, Operation.LINEAR)):
        yield site.fault(
            "streaming",
            f"a convolution on the {site.device.name}",
            layer.operation.value,
            "use conv2d, or end streaming before",
        )
    if site.index and layer.inputs != (site.index - 1,):
        yield site.fault(
            "in_sequences",
            "the layer before, where it streams",
            "another",
            "stream only where each layer reads the one before",
        )
    positions = layer.dim[0] * layer.dim[1] * site.unit.in_passes
    if positions >= MAX_STREAM_POSITIONS:
        found = f"{format_size(layer.dim)} in {site.unit.in_passes} passes"
        yield site.fault(
            "in_dim",
            f"fewer than {MAX_STREAM_POSITIONS} positions in all passes",
            found,
            "make the input smaller",
        )


def _check_last(site: LayerContext) -> Iterator[Fault]:
    """On the first generation the last streaming layer must have padding.

    A 1x1 kernel gets it by becoming 3x3.
    """
    layer = site.layer
    padded = layer.pad[0] > 0 or (layer.operation is Operation.CONV2D and layer.kernel == (1, 1))
    if not site.device.pipelined and not padded:
        yield site.fault(
            "pad",
            f"1 or 2 in the last streaming layer on the {site.device.name}",
            "0",
            "pad, or end streaming in another layer",
        )


COLUMN_WAIT_BITS = 5
SHORTEN_ROWS = "make the rows shorter: pool or crop before, or fold the data into more channels"


def find_row_faults(sites: Sequence[LayerContext]) -> Iterator[Fault]:
    """Rows that do not fit into the processors' row memory, streaming that the registers cannot say.

    For a network without other faults.
    """
    device, options = sites[0].device, sites[0].options
    lowered = units(sites[0].network, device)
    yield from _check_row_memory(sites, lowered)
    start_bits, row_bits = (15, 14) if device.pipelined else (14, 12)
    for index, stream in streams(lowered, options, device).items():
        if not sites[index].place.streaming:
            continue
        limits = {
            "start": (stream.start, start_bits),
            "columns": (stream.columns, COLUMN_WAIT_BITS),
            "rows": (stream.rows, row_bits),
        }
        for name, (value, bits) in limits.items():
            if value >= 1 << bits:
                expected = f"a wait for {name} of fewer than {1 << bits} words"
                yield sites[index].fault("streaming", expected, str(value), SHORTEN_ROWS)


def _check_row_memory(sites: Sequence[LayerContext], lowered: Sequence[Unit]) -> Iterator[Fault]:
    """Streaming layers have their rows beside one another, others after one another."""
    device, streaming = sites[0].device, 0
    for site, unit in zip(sites, lowered, strict=True):
        if not unit.convolves or unit.pointwise or unit.layer.one_dimensional:
            continue
        words = unit.tram * unit.in_passes + (streaming if site.place.streaming else 0)
        if site.place.streaming:
            streaming = words
        if words > device.tram_words:
            expected = f"at most {device.tram_words} words of a processor's row memory"
            found = f"{words}, {unit.tram} for each of {unit.in_passes} passes" + (
                " with the layers before" if site.place.streaming else ""
            )
            yield site.fault("in_dim", expected, found, SHORTEN_ROWS)


MOVE_APART = "move the data of one of them, or use other processors"


class _RingBuffer(NamedTuple):
    """A part of some data memories, in bytes."""

    name: str
    memories: frozenset[int]
    begin: int
    end: int

    def meets(self, other: _RingBuffer) -> bool:
        """Whether two parts share a byte, or touch."""
        return (
            not self.memories.isdisjoint(other.memories)
            and self.begin <= other.end
            and other.begin <= self.end
        )

    def __str__(self) -> str:
        return f"{self.begin:#06x} to {self.end:#06x}"


def find_buffer_faults(sites: Sequence[LayerContext]) -> Iterator[Fault]:
    """Buffers that overlap others, the results of their layer, or the end of the memory.

    For a network without other faults.
    """
    device, options = sites[0].device, sites[0].options
    if not (options.fifo or options.fast_fifo):
        return
    lowered = units(sites[0].network, device)
    waits = streams(lowered, options, device)
    before: list[_RingBuffer] = []
    for site, unit in zip(sites, lowered, strict=True):
        if not site.place.streaming:
            return
        length = waits[site.index].rollover * WORD
        own = _RingBuffer(
            site.layer.name,
            _memories_of(site.place.processors),
            site.place.in_offset,
            site.place.in_offset + length,
        )
        if own.end >= device.data_bytes:
            expected = f"a buffer that ends before {device.data_bytes:#06x}"
            yield site.fault(
                "in_offset", expected, str(own), "read from a lower offset, or make the rows shorter"
            )
        yield from _check_output_distance(site, unit, own)
        yield from _check_other_buffers(site, own, before)
        before.append(own)
        last = site.index + 1 == len(sites) or not sites[site.index + 1].place.streaming
        if last and not options.overlap_data:
            yield from _check_results(site, unit, before)


def _memories_of(mask: int) -> frozenset[int]:
    return frozenset(list_memories(mask).tolist())


def _check_output_distance(site: LayerContext, unit: Unit, own: _RingBuffer) -> Iterator[Fault]:
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


def _check_other_buffers(
    site: LayerContext, own: _RingBuffer, before: Sequence[_RingBuffer]
) -> Iterator[Fault]:
    for other in before:
        if not site.options.overlap_data and own.meets(other):
            expected = f"memory apart from the buffer of {other.name}, which lies from {other}"
            yield site.fault("in_offset", expected, f"its own from {own}", MOVE_APART)
        size = site.device.data_bytes // MEMORY_PARTS
        if site.place.read_ahead and own.begin // size == other.begin // size:
            expected = f"a buffer in another part of {size:#06x} bytes than that of {other.name}"
            yield site.fault("readahead", expected, f"{own.begin:#06x} and {other.begin:#06x}", MOVE_APART)


def _check_results(site: LayerContext, unit: Unit, buffers: Sequence[_RingBuffer]) -> Iterator[Fault]:
    """What the last streaming layer writes lies apart from all buffers."""
    rows, columns = unit.layer.out_dim
    length = rows * columns * WORD * site.layer.width // 8
    place = site.place
    output = _RingBuffer(
        site.layer.name, _memories_of(place.output_processors), place.out_offset, place.out_offset + length
    )
    for buffer in buffers:
        if output.meets(buffer):
            expected = f"memory apart from the buffer of {buffer.name}, which lies from {buffer}"
            yield site.fault("out_offset", expected, f"its output from {output}", MOVE_APART)
