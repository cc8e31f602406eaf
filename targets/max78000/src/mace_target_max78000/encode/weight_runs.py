"""Where weights lie in weight memory: which words each layer fills, and from which word on.

All processors of a layer have its weights in the same words.  The rules are those of the vendor's loader:
programs are compared with its programs word by word, so that even its detours (a search from the top that
leaves words unused) are followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.network import Operation
from mace_target_max78000.device import KERNEL_BYTES, PER_QUADRANT, PROCESSORS, Chip
from mace_target_max78000.encode.hardware_layers import HardwareLayer

ALIGNMENT = 4
"""Words: a layer's run starts at a multiple of this in every processor's memory."""
INSTANCE, UPPER_INSTANCE = 1024, 256
"""Words of the physical memories that a weight memory consists of: in its main part, and in the upper part of
larger ones."""
LANES = 4
"""Memories that hold a fourth each of the output channels of a layer that computes four of them at once."""


@dataclass(frozen=True)
class WeightRun:
    """A layer's words in the memories of its processors: `count` from `column` on."""

    column: int
    count: int


@dataclass(frozen=True, eq=False)
class RunLayout:
    """How a layer fills its words.

    bytes: for each byte of the weights, in the order in which they are read, its number from the beginning of
    the run.
    used: bool for each word, whether it holds anything.  minimum: words that must be free where the run
    begins.
    """

    bytes: Array
    used: Array
    minimum: int


def lay_out_runs(unit: HardwareLayer) -> RunLayout:
    """Return the layout of a layer's weights.

    Words that belong to output slots that are not in use stay free for other layers, those before the first
    slot as well as gaps.
    """
    skipped, zeros = leading_bytes(unit)
    position = skipped + zeros
    parts = []
    for gap, count in _segments(unit):
        if gap:
            # a gap always takes whole words: one that is filled in part is left as it is and counts as the
            # first of them
            position = (position // KERNEL_BYTES + gap) * KERNEL_BYTES
        parts.append(np.arange(position, position + count))
        position += count
    minimum = _minimum(unit)
    # Zeros follow up to the count, which does not include the words of slots before the first one
    end = max(-(-position // KERNEL_BYTES), minimum + (0 if unit.layer.flatten else unit.skipped_slots))
    positions = np.concatenate(parts)
    used = np.ones(end, bool)
    used[: skipped // KERNEL_BYTES] = False
    for before, after in pairwise(parts):
        used[-(-int(before[-1] + 1) // KERNEL_BYTES) : int(after[0]) // KERNEL_BYTES] = False
    return RunLayout(positions, used, minimum)


def words_of(unit: HardwareLayer) -> int:
    """Return words from a run's beginning to its end."""
    return len(lay_out_runs(unit).used)


def leading_bytes(unit: HardwareLayer) -> tuple[int, int]:
    """Return the bytes before the first kernel, which belong to output slots that are not in use.

    These are the bytes of words that are left out, and zeros in the first word.
    """
    skipped = unit.skipped_slots * unit.in_passes * unit.positions
    words, rest = divmod(skipped * unit.taps, KERNEL_BYTES)
    return words * KERNEL_BYTES, rest // (8 // unit.bits)


def _minimum(unit: HardwareLayer) -> int:
    """Return words that the kernels need.

    Where narrow ones leave a byte in part empty, one byte more for each weight of them.

    A flattened layer has kernels for the slots before its first one, other layers have words for them that
    are not counted here.
    """
    fraction = 8 // unit.bits
    count = unit.kernel_count + (unit.skipped_kernels if unit.layer.flatten else 0)
    bits = count * unit.taps * unit.bits + count % fraction * unit.taps * (fraction - 1)
    return -(-bits // (8 * KERNEL_BYTES))


def _segments(unit: HardwareLayer) -> Iterator[tuple[int, int]]:
    """Yield bytes that follow each other, with the unused words before them.

    Kernels of narrow weights lie packed over all output channels: those of an output pass that is no multiple
    of the kernels in a byte go on with the first ones of the next pass.
    """
    fraction, kernel = 8 // unit.bits, unit.in_passes * unit.taps
    if unit.depthwise:
        yield 0, kernel
        return
    if unit.layer.flatten:
        yield 0, -(-unit.layer.out_channels * unit.flattened // fraction)
        return
    gaps = _gaps(unit)
    groups, left = len(gaps), -(-unit.layer.out_channels // fraction)
    begun, length = 0, 0
    for number in range(unit.out_passes * groups):
        gap = gaps[number % groups]
        if gap and length:
            yield begun, length
            begun, length = gap, 0
        # a group of channels beyond the last one has a fraction of the bytes, all zeros
        length += kernel if number < left else unit.in_passes * (unit.taps // fraction)
    yield begun, length


def _gaps(unit: HardwareLayer) -> list[int]:
    """Return for each group of output slots that share their bytes the words left out before it.

    There is one for each group without a slot in use.
    """
    fraction, mask = 8 // unit.bits, unit.place.output_processors >> unit.slots[0]
    gaps = []
    for _ in range(-(-len(unit.slots) // fraction)):
        gap = 0
        while mask and not mask & (1 << fraction) - 1:
            mask >>= fraction
            gap += 1
        mask >>= fraction
        gaps.append(gap)
    return gaps


def place_runs(
    units: Sequence[HardwareLayer], device: Chip, deduplicate: bool = True
) -> dict[int, WeightRun]:
    """Place each layer's run, by the layer's number: in the first free place, layers on all processors first.

    Raises MaceError that names every layer that does not fit.
    """
    free = np.ones((PROCESSORS, device.first_kernel_words), bool)
    for p in range(PROCESSORS):
        free[p, device.kernel_capacity(p) :] = False
    runs: dict[int, WeightRun] = {}
    faults: list[tuple[HardwareLayer, int]] = []
    weighted = [u for u in units if u.layer.weights is not None and not u.place.bypass]
    owners = {u.index: _owner(u, weighted, deduplicate) for u in weighted}
    for unit in sorted(weighted, key=lambda u: len(u.processors) != PROCESSORS):
        if owners[unit.index] != unit.index:
            continue
        layout, rows = lay_out_runs(unit), list(unit.processors)
        column = _column(unit, units, free[rows], layout, device)
        if column is None:
            faults.append((unit, len(layout.used)))
            continue
        columns = column + np.flatnonzero(layout.used)
        free[np.ix_(np.asarray(rows), columns)] = False
        runs[unit.index] = WeightRun(column, len(layout.used))
    if faults:
        raise _too_large(faults, free)
    return {index: runs[owner] for index, owner in owners.items()}


def _owner(unit: HardwareLayer, weighted: Sequence[HardwareLayer], deduplicate: bool) -> int:
    """Return the layer whose run this one uses.

    It is the one that the description names, an earlier one with equal weights, or the layer itself.
    """
    if unit.place.weight_source is not None:
        return unit.place.weight_source
    earlier = (u for u in weighted if u.index < unit.index and deduplicate)
    return next((u.index for u in earlier if _same(u, unit)), unit.index)


def _same(a: HardwareLayer, b: HardwareLayer) -> bool:
    """Whether two layers store the same words in the same processors."""
    return (
        a.bits == b.bits
        and a.place.processors == b.place.processors
        and np.array_equal(plain_values(a), plain_values(b))
    )


def plain_values(unit: HardwareLayer) -> Array:
    """Return weights [out, in, ...].

    Those of a transposed convolution as the plain one that is stored, with flipped kernels.
    """
    weights = unit.layer.weights
    assert weights is not None
    if unit.layer.operation is Operation.CONV_TRANSPOSE2D:
        return weights.values[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    return weights.values


def _column(
    unit: HardwareLayer, units: Sequence[HardwareLayer], free: Array, layout: RunLayout, device: Chip
) -> int | None:
    """Return the column where a run begins, None where it does not fit.

    free: bool [processors of the layer, words].

    Runs of processors that all have the larger memory go to its top as long as there is room.
    """
    # the words of a layer that computes four channels at once lie in four memories, each a fourth of its
    # place in the run: behind a layer that does not, the first free word of one of them is the fourth part of
    # the column
    mixed = unit.place.calcx4 and unit.index > 0 and not units[unit.index - 1].place.calcx4
    large = device.first_kernel_words > device.kernel_words and all(
        p % PER_QUADRANT == 0 for p in unit.processors
    )
    if large and not mixed and not (unit.depthwise and layout.minimum > UPPER_INSTANCE):
        column = _from_top(unit, free, layout.minimum)
        if column is not None and _fits(free, column, layout):
            return column
    column = _from_bottom(unit, free, layout, device)
    return column * LANES if column is not None and mixed else column


def _fits(free: Array, column: int, layout: RunLayout) -> bool:
    """Whether all words that are filled exist and are free."""
    columns = column + np.flatnonzero(layout.used)
    return bool(columns[-1] < free.shape[1] and free[:, columns].all())


def _from_top(unit: HardwareLayer, free: Array, count: int) -> int | None:
    """Return the column of the highest run of `count` words, by steps that are those of the vendor's search.

    It goes down by four words as long as the first processor's word is taken; then from below a word in the
    way, but at a multiple of four.  The run is moved down to a multiple of four at the end.
    """
    last = int(free.shape[1]) - 1
    while last >= 0 and not free[0, last]:
        last -= ALIGNMENT
    everywhere = np.asarray(free.all(axis=0))
    while last >= 0:
        if unit.depthwise and (last - 1) // UPPER_INSTANCE != (last - count) // UPPER_INSTANCE:
            last = last // UPPER_INSTANCE * UPPER_INSTANCE
        first = last - count + 1
        if first < 0:
            return None
        taken = np.flatnonzero(~everywhere[first : last + 1])
        if not taken.size:
            return first // ALIGNMENT * ALIGNMENT
        last = (first + int(taken[-1]) - 1) // ALIGNMENT * ALIGNMENT
    return None


def _from_bottom(unit: HardwareLayer, free: Array, layout: RunLayout, device: Chip) -> int | None:
    """Return the first column from which on enough words are free, and where all that is filled fits."""
    everywhere, count = np.asarray(free.all(axis=0)), layout.minimum
    lengths = np.zeros(everywhere.size + 1, np.int64)
    for i in range(everywhere.size - 1, -1, -1):
        lengths[i] = lengths[i + 1] + 1 if everywhere[i] else 0
    starts = np.flatnonzero(lengths[:-1:ALIGNMENT] >= count) * ALIGNMENT
    if unit.depthwise:
        starts = starts[_in_one_instance(starts, count, device)]
    return next((int(start) for start in starts if _fits(free, int(start), layout)), None)


def _in_one_instance(columns: Array, count: int, device: Chip) -> Array:
    """Whether runs lie in one physical memory each.

    One that does not begin there must not reach a memory's last word.
    """
    size = np.where(columns < device.kernel_words, INSTANCE, UPPER_INSTANCE)
    within = (columns - np.where(columns < device.kernel_words, 0, device.kernel_words)) % size
    return np.asarray(within + count + (within > 0) <= size)


def _too_large(faults: Sequence[tuple[HardwareLayer, int]], free: Array) -> MaceError:
    lines = [
        f"layer {unit.index} ({unit.layer.name}) needs {count} words in {len(unit.processors)} processors, "
        f"{int(np.all(free[list(unit.processors)], axis=0).sum())} are free in all of them"
        for unit, count in faults
    ]
    remedy = (
        "use fewer bits for the weights, fewer channels, or other processors for layers with few channels"
    )
    return MaceError("weight memory", "; ".join(lines), remedy)


def physical_columns(unit: HardwareLayer, run: WeightRun, used: Array, device: Chip) -> Array:
    """Return the words of memory that a layer's words are written to: int [words in use].

    A layer that computes four channels at once has a fourth of its words in each of four memories, from the
    same word of each on.
    """
    columns = run.column + np.flatnonzero(used)
    if not unit.place.calcx4:
        return columns
    words = unit.in_passes * unit.layer.out_channels * KERNEL_BYTES * unit.bits // (unit.taps * 8)
    lane, rest = np.divmod(columns - run.column, -(-words // LANES))
    upper = columns >= device.kernel_words
    sizes = np.where(upper, device.first_kernel_words - device.kernel_words, device.kernel_words) // LANES
    return np.asarray(lane * sizes + rest + run.column // LANES + np.where(upper, device.kernel_words, 0))


def numbered_kernel(kernel: int, unit: HardwareLayer, device: Chip) -> int:
    """Return the number of a kernel as registers have it.

    In four memories every fourth one lies in the same.
    """
    if not unit.place.calcx4:
        return kernel
    base, size = (
        (0, device.kernel_words)
        if kernel < device.kernel_words
        else (device.kernel_words, device.first_kernel_words)
    )
    number, lane = divmod(kernel - base, LANES)
    return base + lane * ((size - base) // LANES) + number
