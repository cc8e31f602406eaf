"""Kernels as a layer's processors read them from weight memory."""

from __future__ import annotations

import numpy as np

from mace_target_max78000.device import KERNEL_BYTES
from mace_target_max78000.simulator.memory import Array
from mace_target_max78000.simulator.setting import Setting


def kernels(setting: Setting, memory: Array, capacities: list[int], binary: bool) -> Array:
    """Weights int8 [processors, kernels, rows * columns] of uint8 words [processors, words, 9].

    A processor's words make one stream of bytes, from the least significant byte of each word on; a kernel is stored last value first,
    and weights of fewer bits share a byte with those of the next kernels.  capacities: words of each reading processor.
    Raises SimulationError where kernels lie beyond the memory.
    """
    kernel = setting.kernel
    taps, bits = kernel.rows * kernel.columns, kernel.bits
    groups = -(-kernel.count * bits // 8)
    end = kernel.byte + groups * taps
    for processor, words in zip(setting.processors, capacities, strict=True):
        if end > words * KERNEL_BYTES:
            raise setting.fault("MCNT", f"kernels end at word {-(-end // KERNEL_BYTES)} of processor {processor}, which has {words}")
    first, last = kernel.byte // KERNEL_BYTES, -(-end // KERNEL_BYTES)
    streams = memory[list(setting.processors), first:last, ::-1].reshape(len(setting.processors), -1)
    begin = kernel.byte - first * KERNEL_BYTES
    stored = streams[:, begin : begin + groups * taps].reshape(len(streams), groups, taps)[:, :, ::-1]
    return _values(stored, bits, binary)[:, : kernel.count]


def _values(stored: Array, bits: int, binary: bool) -> Array:
    """Bytes [processors, groups, taps] as weights [processors, groups * 8 / bits, taps]; one bit is 0 or -1, if binary +1 or -1."""
    if bits == 8:
        return stored.view(np.int8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = (stored[:, :, None, :] >> shifts[:, None] & ((1 << bits) - 1)).astype(np.int8)
    signed = 1 - 2 * fields if binary and bits == 1 else fields - (fields >> bits - 1 << bits)
    return signed.reshape(len(stored), -1, stored.shape[2])
