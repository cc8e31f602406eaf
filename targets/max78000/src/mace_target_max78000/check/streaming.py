"""Checks layers that begin before the previous one has ended: order, row memory, waits, buffers.

A buffer is a part of data memory that starts over when it is full; all buffers are in use at the same time.
The rules for buffers are those of the vendor's generator, which counts a buffer's end as a part of it:
buffers may not even touch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mace_frontend_ai8x.network import Operation
from mace_target_max78000.check.context import Fault, LayerContext, format_size
from mace_target_max78000.check.data_flow import list_memories
from mace_target_max78000.device import (
    MAX_STREAM_PASSES,
    MAX_STREAM_POSITIONS,
    MAX_STREAMING_LAYERS,
    STREAM_COLUMN_BITS,
    WORD_BYTES,
)
from mace_target_max78000.encode.hardware_layers import HardwareLayer, make_hardware_layers
from mace_target_max78000.encode.streaming import list_streams
from mace_target_max78000.wording import format_count

SHORTEN_ROWS = "make the rows shorter: pool or crop before, or fold the data into more channels"
MOVE_APART = "move the data of one of them, or use other processors"


def find_streaming_faults(sites: Sequence[LayerContext]) -> Iterator[Fault]:
    """Find all faults of the streaming layers."""
    streaming = [site for site in sites if site.place.streaming]
    if not streaming:
        return
    options = sites[0].options
    # Data that lies in memory is complete already; only a FIFO brings it while layers run.
    if not (options.fifo or options.fast_fifo):
        yield Fault("", "streaming", "a FIFO", "none", "ask for fifo, or remove streaming")
    # A layer in between would have to wait for the whole of its input, and stop those before it.
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
        if passes > MAX_STREAM_PASSES:
            yield site.fault(
                "streaming",
                f"at most {MAX_STREAM_PASSES} passes in the layers before",
                str(passes),
                "stream in fewer layers",
            )
        passes += site.unit.in_passes
    yield from _check_last(streaming[-1])


def _check_stream_layer(site: LayerContext) -> Iterator[Fault]:
    layer = site.layer
    if layer.flatten:
        yield site.fault("streaming", "no flattening", "flatten", "end streaming in the layer before")
    convolves = layer.operation not in (Operation.PASSTHROUGH, Operation.LINEAR)
    if not convolves and not site.device.features.streaming_without_convolution:
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
    # Source: the vendor's limit of rows times columns times passes, below 2 ** 21.
    positions = layer.dim[0] * layer.dim[1] * site.unit.in_passes
    if positions > MAX_STREAM_POSITIONS:
        actual = f"{format_size(layer.dim)} in {format_count(site.unit.in_passes, 'pass')}"
        yield site.fault(
            "in_dim",
            f"at most {MAX_STREAM_POSITIONS} positions in all passes",
            actual,
            "make the input smaller",
        )


def _check_last(site: LayerContext) -> Iterator[Fault]:
    """Check the padding of the last streaming layer, which the first generation needs."""
    layer = site.layer
    # A 1x1 kernel gets padding by becoming 3x3 in hardware (see `unit`).
    padded = layer.pad[0] > 0 or (layer.operation is Operation.CONV2D and layer.kernel == (1, 1))
    if not site.device.features.streaming_unpadded and not padded:
        yield site.fault(
            "pad",
            f"1 or 2 in the last streaming layer on the {site.device.name}",
            "0",
            "pad, or end streaming in another layer",
        )


def find_row_faults(sites: Sequence[LayerContext]) -> Iterator[Fault]:
    """Find rows that do not fit row memory, and waits that the registers cannot hold.

    For a network without other faults.
    """
    device, options = sites[0].device, sites[0].options
    lowered = make_hardware_layers(sites[0].network, device)
    yield from _check_row_memory(sites, lowered)
    # Fields of STREAM1 and STREAM2; a wait that they cannot hold would be cut to a shorter one.
    start_bits, row_bits = device.limits.stream_start_bits, device.limits.stream_row_bits
    for index, stream in list_streams(lowered, options, device).items():
        if not sites[index].place.streaming:
            continue
        limits = {
            "start": (stream.start, start_bits),
            "columns": (stream.columns, STREAM_COLUMN_BITS),
            "rows": (stream.rows, row_bits),
        }
        for name, (value, bits) in limits.items():
            if value >= 1 << bits:
                expected = f"a wait for {name} of fewer than {1 << bits} words"
                yield sites[index].fault("streaming", expected, str(value), SHORTEN_ROWS)


def _check_row_memory(sites: Sequence[LayerContext], lowered: Sequence[HardwareLayer]) -> Iterator[Fault]:
    """Check row memory: streaming layers have their rows beside one another, others after one another."""
    device, streaming = sites[0].device, 0
    for site, unit in zip(sites, lowered, strict=True):
        # These need no row memory: their pointer TPTR is 0.
        if not unit.convolves or unit.pointwise or unit.layer.one_dimensional:
            continue
        # Streaming layers run at the same time, so each needs rows of its own.
        words = unit.tram * unit.in_passes + (streaming if site.place.streaming else 0)
        if site.place.streaming:
            streaming = words
        if words > device.tram_words:
            expected = f"at most {device.tram_words} words of a processor's row memory"
            actual = f"{words}, {unit.tram} for each of {format_count(unit.in_passes, 'pass')}"
            if site.place.streaming:
                actual += " with the layers before"
            yield site.fault("in_dim", expected, actual, SHORTEN_ROWS)


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
    """Find buffers that overlap others, the results of their layer, or the end of the memory.

    For a network without other faults.
    """
    device, options = sites[0].device, sites[0].options
    if not (options.fifo or options.fast_fifo):
        return
    lowered = make_hardware_layers(sites[0].network, device)
    waits = list_streams(lowered, options, device)
    before: list[_RingBuffer] = []
    for site, unit in zip(sites, lowered, strict=True):
        if not site.place.streaming:
            return
        length = waits[site.index].rollover * WORD_BYTES
        own_buffer = _RingBuffer(
            site.layer.name,
            _memories_of(site.place.processors),
            site.place.in_offset,
            site.place.in_offset + length,
        )
        # The vendor's generator counts the end as a part of the buffer, hence >= here and in the other rules.
        if own_buffer.end >= device.data_bytes:
            expected = f"a buffer that ends before {device.data_bytes:#06x}"
            yield site.fault(
                "in_offset", expected, str(own_buffer), "read from a lower offset, or make the rows shorter"
            )
        yield from _check_output_distance(site, unit, own_buffer)
        yield from _check_other_buffers(site, own_buffer, before)
        before.append(own_buffer)
        # The output of an earlier streaming layer is the buffer of the next one.
        last = site.index + 1 == len(sites) or not sites[site.index + 1].place.streaming
        if last and not options.overlap_data:
            yield from _check_results(site, unit, before)


def _memories_of(mask: int) -> frozenset[int]:
    return frozenset(list_memories(mask).tolist())


def _check_output_distance(
    site: LayerContext, unit: HardwareLayer, own_buffer: _RingBuffer
) -> Iterator[Fault]:
    """Check that a layer reads and writes the same memories a buffer's length apart."""
    place = site.place
    if not place.processors & place.output_processors:
        return
    length, output = own_buffer.end - own_buffer.begin, place.out_offset - WORD_BYTES * unit.ignored
    collides = (
        own_buffer.end >= output
        if own_buffer.begin < output
        else place.out_offset + length >= own_buffer.begin
    )
    if collides:
        expected = f"an output more than {length:#06x} bytes away from the buffer at {own_buffer}"
        yield site.fault(
            "out_offset", expected, f"{place.out_offset:#06x}", "move it, or use other output_processors"
        )


def _check_other_buffers(
    site: LayerContext, own_buffer: _RingBuffer, before: Sequence[_RingBuffer]
) -> Iterator[Fault]:
    for other in before:
        if not site.options.overlap_data and own_buffer.meets(other):
            expected = f"memory apart from the buffer of {other.name}, which lies from {other}"
            yield site.fault("in_offset", expected, f"its own from {own_buffer}", MOVE_APART)
        # What is read ahead must come from another physical memory than what is written.
        size = site.device.data_bytes // site.device.limits.memory_parts
        if site.place.read_ahead and own_buffer.begin // size == other.begin // size:
            expected = f"a buffer in another part of {size:#06x} bytes than that of {other.name}"
            yield site.fault(
                "readahead", expected, f"{own_buffer.begin:#06x} and {other.begin:#06x}", MOVE_APART
            )


def _check_results(
    site: LayerContext, unit: HardwareLayer, buffers: Sequence[_RingBuffer]
) -> Iterator[Fault]:
    """Check that what the last streaming layer writes lies apart from all buffers."""
    rows, columns = unit.layer.out_dim
    length = rows * columns * WORD_BYTES * site.layer.width // 8
    place = site.place
    output = _RingBuffer(
        site.layer.name, _memories_of(place.output_processors), place.out_offset, place.out_offset + length
    )
    for buffer in buffers:
        if output.meets(buffer):
            expected = f"memory apart from the buffer of {buffer.name}, which lies from {buffer}"
            yield site.fault("out_offset", expected, f"its output from {output}", MOVE_APART)
