"""Kernels as a layer's processors read them from weight memory."""

from __future__ import annotations

import numpy as np

from mace_target_max78000.device import KERNEL_BYTES, Device
from mace_target_max78000.simulator.memory import Array
from mace_target_max78000.simulator.setting import Setting


def kernels(setting: Setting, memory: Array, device: Device, binary: bool) -> Array:
    """Weights int8 [processors, kernels, rows * columns] of uint8 words [processors, words, 9].

    A processor's words make one stream of bytes, from the least significant byte of each word on; a kernel is
    stored last value first, and weights of fewer bits share a byte with those of the next kernels.  Where
    four output channels are computed at once, every fourth one lies in the same of four physical memories.
    Raises SimulationError where kernels lie beyond the memory.
    """
    kernel, passes = setting.kernel, setting.reading.passes
    if kernel.lanes == 1:
        end = min(device.kernel_capacity(p) for p in setting.processors) * KERNEL_BYTES
        return _stored(setting, memory, (0, kernel.count, end), binary)
    size = device.kernel_words // kernel.lanes * KERNEL_BYTES
    count = kernel.count // kernel.lanes
    found = [
        _stored(setting, memory, (lane * size, count, (lane + 1) * size), binary)
        for lane in range(kernel.lanes)
    ]
    by_output = np.stack(found, 1).reshape(len(setting.processors), kernel.lanes, count // passes, passes, -1)
    return np.asarray(by_output.swapaxes(1, 2)).reshape(len(setting.processors), kernel.count, -1)


def _stored(setting: Setting, memory: Array, part: tuple[int, int, int], binary: bool) -> Array:
    """Kernels of one memory.  part: its first byte, how many kernels, and the byte where it ends."""
    base, count, limit = part
    taps, bits = setting.kernel.rows * setting.kernel.columns, setting.kernel.bits
    groups = -(-count * bits // 8)
    begin = base + setting.kernel.byte
    end = begin + groups * taps
    if end > limit:
        raise setting.fault(
            "MCNT",
            f"kernels end at word {-(-end // KERNEL_BYTES)} of a memory that ends at {limit // KERNEL_BYTES}",
        )
    first, last = begin // KERNEL_BYTES, -(-end // KERNEL_BYTES)
    streams = memory[list(setting.processors), first:last, ::-1].reshape(len(setting.processors), -1)
    begin -= first * KERNEL_BYTES
    stored = streams[:, begin : begin + groups * taps].reshape(len(streams), groups, taps)[:, :, ::-1]
    return _values(stored, bits, binary)[:, :count]


def _values(stored: Array, bits: int, binary: bool) -> Array:
    """Bytes [processors, groups, taps] as weights [processors, groups * 8 / bits, taps].

    One bit is 0 or -1, if binary +1 or -1.
    """
    if bits == 8:
        return stored.view(np.int8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = (stored[:, :, None, :] >> shifts[:, None] & ((1 << bits) - 1)).astype(np.int8)
    signed = 1 - 2 * fields if binary and bits == 1 else fields - (fields >> bits - 1 << bits)
    return signed.reshape(len(stored), -1, stored.shape[2])
