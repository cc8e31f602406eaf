"""Fills weight memory: the order in which each processor reads its weights, and where each layer's words lie.

A word is 72 bits.  A processor reads kernels one after another, for every pass of the output all output
slots; bytes of a kernel are stored last element first, and fill a word from its least significant byte on.
Layouts are those of the vendor's loader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array
from mace_target_max78000.device import KERNEL_BYTES, PROCESSORS, Chip
from mace_target_max78000.encode.hardware_layers import HardwareLayer
from mace_target_max78000.encode.weight_runs import (
    ALIGNMENT,
    LANES,
    WeightRun,
    lay_out_runs,
    physical_columns,
    place_runs,
    plain_values,
    words_of,
)
from mace_target_max78000.image import Chunk

__all__ = ["ALIGNMENT", "WeightRun", "WeightStream", "make_chunks", "place_runs", "stream", "words_of"]


@dataclass(frozen=True, eq=False)
class WeightStream:
    """What one layer puts into weight memory.

    data: uint8 [processors, words, 9], bytes of a word from the most significant on.
    used: which words hold anything; one-dimensional, the same for all processors.
    """

    data: Array
    used: Array


def stream(unit: HardwareLayer) -> WeightStream:
    """Return the bytes of a layer's weights, processor by processor."""
    layout = lay_out_runs(unit)
    kernels = _kernel_bytes(unit)
    # what the layout has room for beyond the kernels is zeros: channels that are missing in the last group of
    # narrow weights
    content = kernels[:, : len(layout.bytes)]
    data = np.zeros((len(unit.processors), len(layout.used) * KERNEL_BYTES), np.uint8)
    data[:, layout.bytes[: content.shape[1]]] = content
    return WeightStream(data.reshape(len(unit.processors), -1, KERNEL_BYTES)[:, :, ::-1], layout.used)


def _kernel_bytes(unit: HardwareLayer) -> Array:
    """Return the bytes of all kernels in the order in which a layer of this kind reads them."""
    if unit.layer.flatten:
        return _flatten(unit)
    if unit.depthwise:
        return _depthwise(unit)
    return _full(unit)


def _fields(values: Array, unit: HardwareLayer) -> Array:
    """Return weights as the bits that are stored."""
    weights = unit.layer.weights
    assert weights is not None
    return (
        (values < 0).astype(np.uint8)
        if weights.bits == 1
        else (values & ((1 << weights.bits) - 1)).astype(np.uint8)
    )


def _pack(fields: Array, bits: int) -> Array:
    """Return bytes that hold 8 / bits entries of the last axis each, the first in the lowest bits."""
    q = 8 // bits
    if q == 1:
        return fields
    padded = np.pad(fields, [(0, 0)] * (fields.ndim - 1) + [(0, -fields.shape[-1] % q)])
    groups = padded.reshape(*padded.shape[:-1], -1, q)
    shifted = groups.astype(np.uint16) << (np.arange(q, dtype=np.uint16) * bits)
    return np.asarray(shifted.sum(-1), np.uint8)


def _by_processor(unit: HardwareLayer, values: Array) -> Array:
    """[out, in, taps] as [processors, passes, out, taps].

    Channels that are missing in the last pass are 0.
    """
    count, passes = len(unit.processors), unit.in_passes
    padded = np.zeros((values.shape[0], passes * count, values.shape[2]), values.dtype)
    padded[:, : values.shape[1]] = values
    return padded.reshape(values.shape[0], passes, count, -1).transpose(2, 1, 0, 3)


def _full(unit: HardwareLayer) -> Array:
    """Return bytes [processors, n]: kernel after kernel in the order of output channels.

    Each output channel has the kernels of all passes of the input.
    """
    fields = _fields(plain_values(unit), unit)
    fields = fields.reshape(*fields.shape[:2], -1)[:, :, ::-1]
    if unit.place.calcx4:
        # four channels are computed at once, each from a memory of its own: every fourth channel lies in the
        # same
        fields = fields.reshape(-1, LANES, *fields.shape[1:]).swapaxes(0, 1).reshape(fields.shape)
    by_processor = _by_processor(unit, fields)
    count = len(unit.processors)
    missing = -by_processor.shape[2] % (8 // unit.bits)
    by_processor = np.pad(by_processor, ((0, 0), (0, 0), (0, missing), (0, 0)))
    pairs = by_processor.transpose(0, 3, 2, 1).reshape(count, unit.taps, -1)
    return _pack(pairs, unit.bits).transpose(0, 2, 1).reshape(count, -1)


def _depthwise(unit: HardwareLayer) -> Array:
    """Return bytes [processors, n]: a kernel for each pass."""
    fields = _fields(plain_values(unit), unit)
    fields = fields.reshape(fields.shape[0], 1, -1)[:, :, ::-1].transpose(1, 0, 2)
    by_processor = _by_processor(unit, fields)[:, :, 0]
    return (
        _pack(by_processor.transpose(0, 2, 1), unit.bits).transpose(0, 2, 1).reshape(len(unit.processors), -1)
    )


def _flatten(unit: HardwareLayer) -> Array:
    """Return bytes [processors, n]: one output after another, position by position, the passes of each."""
    fields = _fields(plain_values(unit), unit)
    outputs, count = fields.shape[0], len(unit.processors)
    by_channel = fields.reshape(outputs, -1, unit.positions)
    by_processor = _by_processor(unit, by_channel)
    return _pack(by_processor.transpose(0, 2, 3, 1).reshape(count, -1), unit.bits)


def make_chunks(
    units: Sequence[HardwareLayer], runs: Mapping[int, WeightRun], device: Chip, cleared: bool = False
) -> tuple[Chunk, ...]:
    """Return the words of weight memory in use, as maximal runs of each processor in ascending order.

    cleared: memories hold zeros, and words of zeros are not written.
    """
    memory = np.zeros((PROCESSORS, device.first_kernel_words, KERNEL_BYTES), np.uint8)
    used = np.zeros((PROCESSORS, device.first_kernel_words), bool)
    for unit in units:
        if unit.index not in runs:
            continue
        run, content, rows = runs[unit.index], stream(unit), list(unit.processors)
        columns = physical_columns(unit, run, content.used, device)
        there = np.ix_(np.asarray(rows), columns)
        memory[there] = content.data[:, content.used]
        used[there] = True
    if cleared:
        used &= memory.any(axis=2)
    chunks: list[Chunk] = []
    for processor in range(PROCESSORS):
        chunks += (_chunk(memory, processor, span, device) for span in _spans(used[processor]))
    return tuple(chunks)


def _spans(used: Array) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], used, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _chunk(memory: Array, processor: int, span: tuple[int, int], device: Chip) -> Chunk:
    first, last = span
    data = memory[processor, first:last].tobytes()
    words = np.frombuffer(data + b"\0" * (-len(data) % 4), ">u4")
    address = device.kernel_address(processor, 0) + 4 * first
    return Chunk(address, tuple(words.tolist()), processor, first, last - first)
