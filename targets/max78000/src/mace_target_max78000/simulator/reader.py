"""From data memory to what is multiplied: gathering, pooling, element-wise operations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_target_max78000.device import PER_MEMORY
from mace_target_max78000.simulator.memory import Array
from mace_target_max78000.simulator.setting import Reading, Setting

SUBTRACT, ADD, OR = 0, 1, 2
"""Codes of element-wise operations; 3 is the exclusive or."""


@dataclass(frozen=True)
class Averaging:
    """How averages become whole numbers.

    rounding: to the nearest.  documented: down, halves up; else towards zero, halves away from it, and no
    rounding along one axis.
    """

    rounding: bool
    documented: bool

    def divide(self, total: Array, count: int, one_dimensional: bool) -> Array:
        """Sums of `count` values as averages."""
        if self.documented:
            return (total + (count // 2 if self.rounding else 0)) // count
        half = count // 2 if self.rounding and not one_dimensional else 0
        return np.asarray(np.sign(total) * ((np.abs(total) + half) // count))


def read(setting: Setting, data: Array, averaging: Averaging) -> Array:
    """What each processor reads, pooled and combined: int32 [processors, passes, rows, columns].

    data: uint8 [memories, bytes].
    Raises SimulationError where a position lies beyond the memory.
    """
    reading = setting.reading
    rows, columns = reading.size
    windows = (
        _gather(setting, data, r * reading.inner_row + c * reading.inner_column)
        for r in range(rows)
        for c in range(columns)
    )
    first = reading.eltwise is not None and not reading.pool_first
    pooled: Array | None = None
    for window in windows:
        values = _combined(reading, window) if first else window
        if pooled is None:
            pooled = values.astype(np.int32)
        elif reading.average:
            pooled += values
        else:
            np.maximum(pooled, values, out=pooled)
    assert pooled is not None
    if reading.average:
        pooled = averaging.divide(pooled, rows * columns, setting.kernel.one_dimensional)
    return (pooled if first else _combined(reading, pooled)).transpose(0, 3, 1, 2)


def _gather(setting: Setting, data: Array, inner: int) -> Array:
    """One position of every window: int8 [processors, rows, columns, passes, operands]."""
    reading, processors = setting.reading, np.array(setting.processors)
    memories, where = np.unique(processors // PER_MEMORY, return_inverse=True)
    words = 1 if reading.planar else reading.passes * reading.operands
    rows = np.arange(reading.rows) * reading.row_step
    columns = np.arange(reading.columns) * reading.column_step
    index = rows[:, None, None] + columns[:, None] + np.arange(words) + inner
    if reading.planar:
        found = data[memories][
            :, 4 * reading.base + _inside(setting, index, data.shape[1] - 4 * reading.base)
        ][where]
    else:
        index = _inside(setting, index + reading.base, data.shape[1] // 4)
        found = data.reshape(len(data), -1, PER_MEMORY)[memories][:, index][
            where, ..., processors % PER_MEMORY
        ]
    shape = len(processors), reading.rows, reading.columns, words // reading.operands, reading.operands
    return np.asarray(found.view(np.int8)).reshape(shape)


def _inside(setting: Setting, index: Array, size: int) -> Array:
    last = int(index.max())
    if last >= size:
        raise setting.fault("RPTR_BASE", f"position {last} is read where a data memory ends at {size}")
    return index


def _combined(reading: Reading, values: Array) -> Array:
    """The element-wise operation on the last axis, clamped to 8 bits once."""
    if reading.eltwise is None:
        return np.asarray(values[..., 0])
    if reading.eltwise in (SUBTRACT, ADD):
        wide = values.astype(np.int32)
        rest = wide[..., 1:].sum(-1)
        return np.asarray(np.clip(wide[..., 0] + (rest if reading.eltwise == ADD else -rest), -128, 127))
    operation = np.bitwise_or if reading.eltwise == OR else np.bitwise_xor
    return np.asarray(operation.reduce(values, axis=-1))
