"""Layers that write over their own input: what they read after a result has reached it is the result.

A layer reads positions row by row, keeps in its row memory what a kernel needs of earlier ones, and writes a
result as soon as the kernel's last position is there.
"""

from __future__ import annotations

import numpy as np

from mace_target_max78000.device import PER_MEMORY
from mace_target_max78000.simulator.memory import Array
from mace_target_max78000.simulator.setting import Kind, Setting
from mace_target_max78000.simulator.writer import Places


def overwritten(setting: Setting, places: Places, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Memories and words of input that is read after a result was written there.

    shape: rows and columns of the output.
    """
    reading = {p // PER_MEMORY for p in setting.processors}
    keys = np.unique(places.memory.astype(np.int64) << 32 | places.word)
    memories, first = keys >> 32, keys & 0xFFFFFFFF
    shared = np.isin(memories, list(reading))
    words = first[shared][:, None] + np.arange(shape[0] * shape[1]) * places.pixel
    index, times = _read(setting)
    if not shared.any() or index.max() < words.min() or index.min() > words.max():
        return memories[:0], first[:0]
    last = np.full(int(max(index.max(), words.max())) + 1, -1)
    np.maximum.at(last, index, times)
    early = last[words] > _written(setting, shape)
    return np.broadcast_to(memories[shared][:, None], words.shape)[early], words[early]


def _read(setting: Setting) -> tuple[Array, Array]:
    """Numbers of all words that are read, and the position, in order, that each is read for."""
    reading = setting.reading
    positions = np.arange(reading.rows * reading.columns)
    rows, columns = np.divmod(positions, reading.columns)
    inner = [
        r * reading.inner_row + c * reading.inner_column
        for r in range(reading.size[0])
        for c in range(reading.size[1])
    ]
    words = np.arange(1 if reading.planar else reading.passes * reading.operands)
    index = (
        (rows * reading.row_step + columns * reading.column_step)[:, None, None]
        + np.array(inner)[:, None]
        + words
    )
    return reading.base + (index // 4 if reading.planar else index), np.broadcast_to(
        positions[:, None, None], index.shape
    )


def _written(setting: Setting, shape: tuple[int, int]) -> Array:
    """The position that was read last when each result is written, in the order of results."""
    reading, kernel = setting.reading, setting.kernel
    if setting.kind is Kind.PASSTHROUGH:
        return np.arange(shape[0] * shape[1])
    scale = 2 if reading.transposed else 1
    rows = np.clip((np.arange(shape[0]) + kernel.rows - 1 - reading.pad[0]) // scale, 0, reading.rows - 1)
    columns = np.clip(
        (np.arange(shape[1]) + kernel.columns - 1 - reading.pad[1]) // scale, 0, reading.columns - 1
    )
    return np.asarray(rows[:, None] * reading.columns + columns).ravel()
