"""Weight memory: the order in which each processor reads its weights, and where each layer's run of words lies.

A word is 72 bits.  A processor reads kernels one after another, for every pass of the output all output slots; bytes of a kernel
are stored last element first, and fill a word from its least significant byte on.  Layouts are those of the maker's loader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_target_max78000.device import KERNEL_BYTES, PER_QUADRANT, PROCESSORS, Device
from mace_target_max78000.image import Chunk
from mace_target_max78000.network import Operation
from mace_target_max78000.unit import Unit

ALIGNMENT = 4
"""Words: a layer's run starts at a multiple of this in every processor's memory."""


@dataclass(frozen=True, eq=False)
class Stream:
    """What one layer puts into weight memory.

    data: uint8 [processors, words, 9], bytes of a word from the most significant on.
    used: which words hold anything; one-dimensional, the same for all processors.
    """

    data: Array
    used: Array


@dataclass(frozen=True)
class Run:
    """A layer's words in the memories of its processors: `count` from `column` on."""

    column: int
    count: int


def stream(unit: Unit) -> Stream:
    """The bytes of a layer's weights, processor by processor."""
    kernels = _flattened(unit) if unit.layer.flatten else _depthwise(unit) if unit.depthwise else _full(unit)
    data, skipped = _spread(unit, kernels)
    words = words_of(unit)
    padded = np.zeros((data.shape[0], words * KERNEL_BYTES), np.uint8)
    padded[:, : data.shape[1]] = data
    used = np.ones(words, bool)
    used[list(skipped)] = False
    return Stream(padded.reshape(len(unit.processors), words, KERNEL_BYTES)[:, :, ::-1], used)


def words_of(unit: Unit) -> int:
    """Words that a layer takes in each of its processors' memories.

    Narrow weights share bytes with those of other output channels; where these are missing, the bytes are there all the same.
    """
    q, n, k = 8 // unit.bits, unit.kernel_count + unit.skipped_kernels, unit.taps
    words = -(-(n * k * unit.bits + n % q * k * (q - 1)) // (8 * KERNEL_BYTES))
    if unit.depthwise or unit.layer.flatten:
        return words
    rounded = sum(_lead(unit)) + unit.out_passes * -(-unit.kernel_slots // q) * unit.in_passes * k
    return max(words, -(-rounded // KERNEL_BYTES))


def _lead(unit: Unit) -> tuple[int, int]:
    """Bytes before the first kernel, for output slots that are not in use: of words left out, and of the first word."""
    skipped = unit.skipped_slots * unit.in_passes * unit.positions
    words, rest = divmod(skipped * unit.taps, KERNEL_BYTES)
    return words * KERNEL_BYTES, rest // (8 // unit.bits)


def _fields(values: Array, unit: Unit) -> Array:
    """Weights as the bits that are stored."""
    weights = unit.layer.weights
    assert weights is not None
    return (values < 0).astype(np.uint8) if weights.bits == 1 else (values & ((1 << weights.bits) - 1)).astype(np.uint8)


def _packed(fields: Array, bits: int) -> Array:
    """Bytes that hold 8 / bits consecutive entries of the last axis each, the first in the lowest bits."""
    q = 8 // bits
    if q == 1:
        return fields
    padded = np.pad(fields, [(0, 0)] * (fields.ndim - 1) + [(0, -fields.shape[-1] % q)])
    groups = padded.reshape(*padded.shape[:-1], -1, q)
    shifted = groups.astype(np.uint16) << (np.arange(q, dtype=np.uint16) * bits)
    return np.asarray(shifted.sum(-1), np.uint8)


def _by_processor(unit: Unit, values: Array) -> Array:
    """[out, in, taps] as [processors, passes, out, taps]; channels that are missing in the last pass are 0."""
    count, passes = len(unit.processors), unit.in_passes
    padded = np.zeros((values.shape[0], passes * count, values.shape[2]), values.dtype)
    padded[:, : values.shape[1]] = values
    return padded.reshape(values.shape[0], passes, count, -1).transpose(2, 1, 0, 3)


def _full(unit: Unit) -> list[Array]:
    """For each output pass, bytes [processors, kernels, taps] in the order of output channels."""
    fields = _fields(_values(unit), unit)
    fields = fields.reshape(*fields.shape[:2], -1)[:, :, ::-1]
    by_processor = _by_processor(unit, fields)
    count, slots = len(unit.processors), len(unit.slots)
    made = []
    for first in range(0, unit.layer.out_channels, slots):
        part = by_processor[:, :, first : first + slots]
        part = np.pad(part, ((0, 0), (0, 0), (0, -part.shape[2] % (8 // unit.bits)), (0, 0)))
        pairs = part.transpose(0, 3, 2, 1).reshape(count, unit.taps, -1)
        made.append(_packed(pairs, unit.bits).transpose(0, 2, 1))
    return made


def _depthwise(unit: Unit) -> list[Array]:
    fields = _fields(_values(unit), unit)
    fields = fields.reshape(fields.shape[0], 1, -1)[:, :, ::-1].transpose(1, 0, 2)
    by_processor = _by_processor(unit, fields)[:, :, 0]
    return [_packed(by_processor.transpose(0, 2, 1), unit.bits).transpose(0, 2, 1)]


def _flattened(unit: Unit) -> list[Array]:
    """Values of one output: position by position, the passes of each."""
    fields = _fields(_values(unit), unit)
    outputs, count = fields.shape[0], len(unit.processors)
    by_channel = fields.reshape(outputs, -1, unit.positions)
    by_processor = _by_processor(unit, by_channel)
    ordered = by_processor.transpose(0, 2, 3, 1).reshape(count, -1)
    return [_packed(ordered, unit.bits)[:, :, None]]


def _values(unit: Unit) -> Array:
    """Weights [out, in, ...] with transposed convolutions turned into plain ones."""
    weights = unit.layer.weights
    assert weights is not None
    if unit.layer.operation is Operation.CONV_TRANSPOSE2D:
        return weights.values[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    return weights.values


def _spread(unit: Unit, kernels: Sequence[Array]) -> tuple[Array, range]:
    """The byte stream with room for unused output slots: bytes [processors, n], and the words left out at the beginning."""
    skipped, rest = _lead(unit)
    count = len(unit.processors)
    parts = [np.zeros((count, skipped + rest), np.uint8)]
    gaps = _gaps(unit)
    for part in kernels:
        parts.extend(_with_gaps(unit, part, gaps))
    return np.concatenate(parts, axis=1), range(skipped // KERNEL_BYTES)


def _gaps(unit: Unit) -> dict[int, int]:
    """Unused slots inside the output's map: number of the channel -> slots that are left out before it."""
    if unit.depthwise or unit.layer.flatten:
        return {}
    steps = zip(unit.slots, unit.slots[1:], strict=False)
    return {i + 1: b - a - 1 for i, (a, b) in enumerate(steps) if b - a > 1}


def _with_gaps(unit: Unit, part: Array, gaps: Mapping[int, int]) -> Iterator[Array]:
    """The kernels of one output pass with empty ones for slots that are not in use."""
    q, count, done = 8 // unit.bits, len(unit.processors), 0
    for channel, missing in sorted(gaps.items()):
        kernels = channel * unit.in_passes // q
        yield part[:, done:kernels].reshape(count, -1)
        yield np.zeros((count, missing // q * unit.in_passes * unit.taps), np.uint8)
        done = kernels
    yield part[:, done:].reshape(count, -1)


def place(units: Sequence[Unit], device: Device, deduplicate: bool = True) -> dict[int, Run]:
    """Where each layer's run lies, by the layer's number: the first free place, layers on all processors first.

    Raises MaceError that names every layer that does not fit.
    """
    free = np.ones((PROCESSORS, device.first_kernel_words), bool)
    for p in range(PROCESSORS):
        free[p, device.kernel_capacity(p) :] = False
    runs: dict[int, Run] = {}
    faults: list[tuple[Unit, int]] = []
    weighted = [u for u in units if u.layer.weights is not None and not u.place.bypass]
    owners = {u.index: _owner(u, weighted, deduplicate) for u in weighted}
    for unit in sorted(weighted, key=lambda u: len(u.processors) != PROCESSORS):
        if owners[unit.index] != unit.index:
            continue
        count, rows = words_of(unit), list(unit.processors)
        column = _column(unit, np.all(free[rows], axis=0), count, device)
        if column is None:
            faults.append((unit, count))
            continue
        free[rows, column : column + count] = False
        runs[unit.index] = Run(column, count)
    if faults:
        raise _too_large(faults, free)
    return {index: runs[owner] for index, owner in owners.items()}


def _owner(unit: Unit, weighted: Sequence[Unit], deduplicate: bool) -> int:
    """The layer whose run this one uses: its own, the one that the description names, or an earlier one with equal weights."""
    if unit.place.weight_source is not None:
        return unit.place.weight_source
    earlier = (u for u in weighted if u.index < unit.index and deduplicate)
    return next((u.index for u in earlier if _same(u, unit)), unit.index)


def _same(a: Unit, b: Unit) -> bool:
    x, y = a.layer.weights, b.layer.weights
    assert x is not None
    assert y is not None
    return x.bits == y.bits and a.place.processors == b.place.processors and np.array_equal(x.values, y.values)


def _column(unit: Unit, free: Array, count: int, device: Device) -> int | None:
    """The first column where the run is free in all of its processors; from the top where all of them have the larger memory."""
    lengths = np.zeros(free.size + 1, np.int64)
    for i in range(free.size - 1, -1, -1):
        lengths[i] = lengths[i + 1] + 1 if free[i] else 0
    starts = np.flatnonzero(lengths[:-1:ALIGNMENT] >= count) * ALIGNMENT
    if unit.depthwise:
        starts = starts[_instance(starts, device) == _instance(starts + count - 1, device)]
    if not starts.size:
        return None
    large = device.first_kernel_words > device.kernel_words and all(p % PER_QUADRANT == 0 for p in unit.processors)
    return int(starts[-1 if large else 0])


def _instance(columns: Array, device: Device) -> Array:
    """Which physical memory a column lies in: of 1024 words, and of 256 in the larger memories' upper part."""
    upper = device.kernel_words
    return np.where(columns < upper, columns // 1024, upper // 1024 + (columns - upper) // 256)


def _too_large(faults: Sequence[tuple[Unit, int]], free: Array) -> MaceError:
    lines = [
        f"layer {unit.index} ({unit.layer.name}) needs {count} words in {len(unit.processors)} processors, "
        f"{int(np.all(free[list(unit.processors)], axis=0).sum())} are free in all of them"
        for unit, count in faults
    ]
    remedy = "use fewer bits for the weights, fewer channels, or other processors for layers with few channels"
    return MaceError("weight memory", "; ".join(lines), remedy)


def chunks(units: Sequence[Unit], runs: Mapping[int, Run], device: Device) -> tuple[Chunk, ...]:
    """The words of weight memory that are in use, as maximal runs of each processor in ascending order."""
    memory = np.zeros((PROCESSORS, device.first_kernel_words, KERNEL_BYTES), np.uint8)
    used = np.zeros((PROCESSORS, device.first_kernel_words), bool)
    for unit in units:
        if unit.index not in runs:
            continue
        run, content, rows = runs[unit.index], stream(unit), list(unit.processors)
        columns = np.arange(run.column, run.column + run.count)[content.used]
        there = np.ix_(np.asarray(rows), columns)
        memory[there] = content.data[:, content.used]
        used[there] = True
    return tuple(_chunk(memory, p, span, device) for p in range(PROCESSORS) for span in _spans(used[p]))


def _spans(used: Array) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], used, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _chunk(memory: Array, processor: int, span: tuple[int, int], device: Device) -> Chunk:
    first, last = span
    data = memory[processor, first:last].tobytes()
    words = np.frombuffer(data + b"\0" * (-len(data) % 4), ">u4")
    address = device.kernel_address(processor, 0) + 4 * first
    return Chunk(address, tuple(words.tolist()), processor, first, last - first)
