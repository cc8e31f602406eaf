"""From sums to data memory: shift, activation, and the addresses of all results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, Device
from mace_target_max78000.simulator.memory import Array
from mace_target_max78000.simulator.setting import Kind, Setting


@dataclass(frozen=True)
class Places:
    """Where channels go: number of the memory, word and byte of each, and words between positions."""

    memory: Array
    word: Array
    lane: Array
    pixel: int


def finish(setting: Setting, sums: Array) -> Array:
    """Sums as they are written: int8, shifted with rounding, saturated and activated.

    Or the 32-bit sums themselves.
    """
    if setting.writing.wide:
        if setting.relu or setting.absolute:
            raise setting.fault("LCTL", "an activation of 32-bit results", "leave it out")
        return sums.astype(np.int32)
    right = 7 - setting.shift
    shifted = sums + (1 << right - 1) >> right if right > 0 else sums << -right
    result = np.clip(shifted, 0 if setting.relu else -128, 127)
    return np.asarray(np.minimum(np.abs(result), 127) if setting.absolute else result).astype(np.int8)


def places(setting: Setting, device: Device, outputs: int, master: int) -> Places:
    """Where each output channel goes."""
    writing = setting.writing
    if setting.kind is Kind.CONVOLUTION:
        passes, slots = np.divmod(np.arange(outputs), writing.slots)
        base, steps, slot, step = (
            np.full(outputs, writing.bases[master]),
            slots // PER_MEMORY,
            slots,
            writing.memory_step,
        )
    else:
        processors = np.repeat(np.array(setting.processors), setting.reading.passes)
        passes = np.tile(np.arange(setting.reading.passes), len(setting.processors))
        base, steps, slot, step = _by_processor(setting, processors, master)
    pointers = (base, steps * step, passes * writing.channel_step)
    memory, word = (
        sum(p)
        for p in zip(*(np.divmod(pointer, 1 << device.offset_bits) for pointer in pointers), strict=True)
    )
    # a memory's number and a word in it are counted apart: no word number carries into the next memory
    lane = slot % PER_MEMORY
    several = 4 if writing.wide else setting.reading.passes if setting.kind is Kind.PASSTHROUGH else 1
    return Places(
        np.asarray(memory), word + lane if writing.wide else np.asarray(word), lane, several * writing.pixel
    )


def _by_processor(setting: Setting, processors: Array, master: int) -> tuple[Array, Array, Array, int]:
    """Base, steps from there, slot and step of layers that do not sum over processors."""
    writing = setting.writing
    if setting.kind is Kind.DEPTHWISE and writing.aligned:
        steps = processors // PER_MEMORY - processors.min() // PER_MEMORY
        return np.full(len(processors), writing.bases[master]), steps, processors, writing.memory_step
    if setting.reading.rows and writing.wide:
        raise setting.fault(
            "LCTL", "32-bit results of a layer that does not sum over processors are not modelled"
        )
    quadrants = processors // PER_QUADRANT
    base = np.array([writing.bases[q] for q in quadrants.tolist()])
    first = {q: int(processors[quadrants == q].min()) for q in set(quadrants.tolist())}
    order = {
        p: i
        for q in first
        for i, p in enumerate(sorted({p for p in processors.tolist() if p // PER_QUADRANT == q}))
    }
    ranks = np.array([order[p] for p in processors.tolist()])
    if setting.kind is Kind.PASSTHROUGH:
        # results of a quadrant are packed: processors that are not in use leave no bytes between them
        ranks += np.array([first[q] % PER_MEMORY for q in quadrants.tolist()])
    return base, ranks // PER_MEMORY, ranks, writing.time_step


def write(setting: Setting, results: Array, places: Places, data: Array) -> None:
    """Results [channels, positions] to data, uint8 [memories, bytes].

    Channels of one word are written together, missing ones as 0.

    Raises SimulationError where a result would lie outside of all memories, or two channels in one place.
    """
    positions = np.arange(results.shape[1]) * places.pixel
    limit = data.shape[1] // 4
    if places.memory.max() >= len(data) or places.word.max() + positions[-1] >= limit:
        highest = f"memory {int(places.memory.max())}, word {int(places.word.max() + positions[-1])}"
        raise setting.fault(
            "WPTR_BASE", f"up to {highest} is written; there are {len(data)} memories of {limit} words"
        )
    words = data.view("<u4")
    if setting.writing.wide:
        words[places.memory[:, None], places.word[:, None] + positions] = results.view(np.uint32)
        return
    keys, where = np.unique(places.memory.astype(np.int64) << 32 | places.word, return_inverse=True)
    if len(np.unique(where * PER_MEMORY + places.lane)) < len(where):
        raise setting.fault(
            "WPTR_BASE",
            "two channels are written to the same place",
            "give each quadrant memories of its own",
        )
    joined = np.zeros((len(keys), results.shape[1], 4), np.uint8)
    joined[where, :, places.lane] = results.view(np.uint8)
    words[(keys >> 32)[:, None], (keys & 0xFFFFFFFF)[:, None] + positions] = joined.view("<u4")[:, :, 0]
