"""Checks data memory: everything fits, and nothing is overwritten that is still needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mace_core.ir import Array
from mace_frontend_ai8x.network import BUFFER, INPUT, STOP
from mace_target_max78000.check.context import Fault, LayerContext
from mace_target_max78000.check.data_flow import (
    find_origins,
    list_memories,
    list_read_words,
    list_written_words,
)
from mace_target_max78000.device import PER_MEMORY, PROCESSORS, WORD_BYTES

NO_OWNER = -1000
MEMORIES = PROCESSORS // PER_MEMORY


def find_alignment_faults(site: LayerContext) -> Iterator[Fault]:
    """Offsets that are not whole words; one that comes from the layer before is reported there."""
    before = site.network.places[site.index - 1].out_offset if site.index else None
    for key, offset in (("in_offset", site.place.in_offset), ("out_offset", site.place.out_offset)):
        # A layer reads at the offset that the layer before it writes to: one fault, not two.
        if offset % WORD_BYTES and not (key == "in_offset" and offset == before):
            down = offset // WORD_BYTES * WORD_BYTES
            remedy = f"write {key}: {down:#06x} or {down + WORD_BYTES:#06x}"
            yield site.fault(key, f"a multiple of {WORD_BYTES}", f"{offset:#06x}", remedy)


def find_extent_faults(site: LayerContext) -> Iterator[Fault]:
    """Input and output inside the memories."""
    place = site.place
    if not site.fifo and not (site.index and place.streaming):
        yield from _check_extent(site, "in_offset", place.in_offset, list_read_words(site))
    if not place.streaming:
        yield from _check_extent(site, "out_offset", place.out_offset, list_written_words(site))


def _check_extent(site: LayerContext, key: str, offset: int, words: Array) -> Iterator[Fault]:
    size = site.device.data_bytes
    end = (int(words[-1]) + 1) * WORD_BYTES if words.size else offset
    if end <= size:
        return
    role = "input" if key == "in_offset" else "output"
    length = end - offset
    expected = f"an end at {size:#06x} or before"
    if length <= size:
        remedy = f"write {key}: {size - length:#06x} or less"
    elif key == "in_offset" and site.index == 0:
        # A FIFO needs memory for the rows of a window only.
        remedy = "use a FIFO with streaming, or fold the data into more channels"
    else:
        remedy = (
            f"its {length} bytes in each memory are too many: pool before, use more processors, or streaming"
        )
    yield site.fault(key, expected, f"{role} from {offset:#06x} to {end:#06x}", remedy)


def find_overlap_faults(sites: Sequence[LayerContext]) -> list[Fault]:
    """Layers that write over data that they or later layers still read, over results, or over buffers.

    Data of streaming layers pass by, and layers that jump have no order: nothing can be said of those.
    """
    # In a network that jumps, which data is needed depends on the way that is taken.
    if any(site.place.next not in (None, STOP) for site in sites):
        return []
    memories = _MemoryOwners(sites)
    faults: list[Fault] = []
    for site in sites:
        # Data of a streaming layer passes by: `find_buffer_faults` checks its buffer.
        if not site.place.streaming:
            faults += memories.written_over(site)
        if not memories.passes_by(site):
            memories.mark(list_memories(site.place.output_processors), list_written_words(site), site.index)
    return faults


class _MemoryOwners:
    """The data memories while layer after layer runs: whose data each word holds."""

    def __init__(self, sites: Sequence[LayerContext]) -> None:
        network = sites[0].network
        self._sites = sites
        self._results = [layer.output for layer in network.layers]
        self._readers: dict[int, list[int]] = {i: [] for i in range(INPUT, len(sites))}
        for site in sites:
            for origin in find_origins(site):
                self._readers[origin].append(site.index)
        self._owners = np.full((MEMORIES, sites[0].device.data_bytes // WORD_BYTES), NO_OWNER, np.int16)
        self._reported: set[int] = set()
        for number, buffer in enumerate(network.buffers):
            words = np.arange(buffer.offset // WORD_BYTES, buffer.end // WORD_BYTES)
            self.mark(list_memories(buffer.processors), words, BUFFER - number)
        if not sites[0].fifo and INPUT in network.layers[0].inputs:
            self.mark(list_memories(sites[0].place.processors), list_read_words(sites[0]), INPUT)

    def passes_by(self, site: LayerContext) -> bool:
        """Whether the next layer takes the output while it is made."""
        return site.index + 1 < len(self._sites) and self._sites[site.index + 1].place.streaming

    def mark(self, instances: Array, words: Array, owner: int) -> None:
        """Words of some memories hold somebody's data now."""
        self._owners[np.ix_(instances, words[words < self._owners.shape[1]])] = owner

    def written_over(self, site: LayerContext) -> Iterator[Fault]:
        """Yield what a layer writes over, one fault for each layer whose data it is."""
        instances, words = list_memories(site.place.output_processors), list_written_words(site)
        # Owners are INPUT and below, or numbers of layers; moved up, they are indices to count by.
        owners = self._owners[np.ix_(instances, words)].ravel()
        victims = (np.flatnonzero(np.bincount(owners - NO_OWNER)) + NO_OWNER).tolist()
        actual = f"its output from {_format_address(words[0])} to {_format_address(words[-1] + 1)}"
        read_here = self._list_read_here(site)
        if (
            read_here[np.ix_(instances, words)].any()
            and not site.options.overlap_data
            and self._reported.isdisjoint(site.layer.inputs)
        ):
            read = list_read_words(site)
            span = f"{_format_address(read[0])} to {_format_address(read[-1] + 1)}"
            expected = f"memory outside its own input, which lies from {span}"
            self._reported.add(site.index)
            yield site.fault("out_offset", expected, actual, self._remedy(site, read_here))
        for victim in victims:
            if victim not in self._reported and (why := self._describe_need(site, victim)):
                self._reported.add(site.index)
                yield site.fault("out_offset", f"memory without {why}", actual, self._remedy(site, read_here))

    def _list_read_here(self, site: LayerContext) -> Array:
        """Return the words that the layer itself reads, where writing over them is a fault.

        What a streaming layer made may be written over by the layer that reads it: it was written while other
        layers ran, and the vendor's tool keeps no account of it.  Whether reading keeps ahead of writing is
        for the simulation of the program to tell.
        """
        read_here = np.zeros(self._owners.shape, bool)
        streamed = any(i >= 0 and self._sites[i].place.streaming for i in site.layer.inputs)
        if not site.fifo and not streamed and all(i > BUFFER for i in site.layer.inputs):
            read_here[np.ix_(list_memories(site.place.processors), list_read_words(site))] = True
        return read_here

    def _describe_need(self, site: LayerContext, victim: int) -> str:
        """Whose data these are and who needs them; empty where nobody does."""
        if victim == NO_OWNER:
            return ""
        if victim <= BUFFER:
            buffer = site.network.buffers[BUFFER - victim]
            return "" if site.place.output_processors == buffer.processors else f"the buffer {buffer.name}"
        name = site.network.layers[victim].name if victim >= 0 else "the network's input"
        if later := [reader for reader in self._readers[victim] if reader > site.index]:
            return f"data of {name}, which {site.network.layers[later[-1]].name} reads later"
        results = victim >= 0 and self._results[victim] and not site.options.overlap_data
        return f"data of {name}, which are results" if results else ""

    def _remedy(self, site: LayerContext, read_here: Array) -> str:
        """Return the first offset where the output would overlap nothing."""
        instances = list_memories(site.place.output_processors)
        holders = [*self._readers, *(BUFFER - k for k in range(len(site.network.buffers)))]
        needed_by = [holder for holder in holders if self._describe_need(site, holder)]
        busy = (np.isin(self._owners[instances], needed_by) | read_here[instances]).any(axis=0)
        words = list_written_words(site)
        length = int(words[-1] - words[0]) + 1
        # A run of free words shows as two equal sums, its length apart.
        sums = np.concatenate(([0], np.cumsum(busy)))
        free = np.flatnonzero(sums[length:] == sums[:-length])
        if free.size:
            return f"write out_offset: {_format_address(free[0])}, which is free"
        allow = "allow it with overlap-data where reading is ahead of writing"
        return f"move other layers' data, use other output_processors, or {allow}"


def _format_address(word: int) -> str:
    return f"{int(word) * WORD_BYTES:#06x}"


def find_unload_faults(sites: Sequence[LayerContext]) -> Iterator[Fault]:
    """Blocks of results to unload lie inside the memories."""
    device = sites[0].device
    # Blocks that a description names itself; those of output layers have been checked with them.
    for number, unload in enumerate(sites[0].network.unloads):
        passes = -(-unload.channels // PROCESSORS)
        words = unload.dim[0] * unload.dim[1] * passes * (unload.write_gap + 1) * unload.width // 8
        end = unload.offset + words * WORD_BYTES
        if unload.offset % WORD_BYTES or end > device.data_bytes:
            expected = f"a multiple of {WORD_BYTES} with an end at {device.data_bytes:#06x} or before"
            actual = f"{unload.offset:#06x} to {end:#06x}"
            yield Fault("", f"unload {number}", expected, actual, "correct offset, channels or dim")
