"""Reads kernels and bias from the memories as a layer's processors do, and convolves.

Products are summed over processors and over the quadrants that the master adds.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from mace_frontend_ai8x.products import add_product
from mace_target_max78000.device import KERNEL_BYTES, PER_MEMORY, PER_QUADRANT, Chip
from mace_target_max78000.simulate.layer_settings import LayerKind, LayerSettings
from mace_target_max78000.simulate.memory import Array

EXACT = 1 << 24
"""Integers below this are exact in 32-bit floats."""


def convolve(setting: LayerSettings, values: Array, weights: Array, master: int) -> Array:
    """Return sums, int64 [outputs, rows, columns].

    values: [processors, passes, rows, columns].  weights: [processors, kernels, taps].
    Outputs of a depthwise layer are its processors' passes, processor by processor.  Only quadrants whose
    sums the master adds count.
    """
    padded = _pad(setting, values)
    kernel = setting.kernel
    rows, columns = padded.shape[2] - kernel.rows + 1, padded.shape[3] - kernel.columns + 1
    if min(rows, columns) < 1:
        available = f"{padded.shape[2]}x{padded.shape[3]}"
        raise setting.fault(
            "RCNT", f"a kernel of {kernel.rows}x{kernel.columns} does not fit {available} positions"
        )
    corners = list(product(range(kernel.rows), range(kernel.columns)))
    if setting.kind is LayerKind.DEPTHWISE:
        taps = [padded[:, :, r : r + rows, c : c + columns] for r, c in corners]
        sums = sum(tap.astype(np.int64) * weights[:, :, i, None, None] for i, tap in enumerate(taps))
        return np.asarray(sums).reshape(-1, rows, columns)
    is_added = np.array([p // PER_QUADRANT in setting.sources | {master} for p in setting.processors])
    passes = setting.reading.passes
    # [taps, outputs, processors * passes]
    outputs = kernel.count // passes
    matrices = weights[is_added].reshape(-1, outputs, passes, len(corners)).transpose(3, 1, 0, 2)
    matrices = matrices.reshape(len(corners), outputs, int(is_added.sum()) * passes)
    largest = int(np.abs(values).max(initial=0)) * int(
        np.abs(matrices.astype(np.int32)).sum((0, 2)).max(initial=0)
    )
    # Floats use the fast matrix product, and are exact as long as no sum exceeds their mantissa.
    number = np.float32 if largest < EXACT else np.float64
    matrices = matrices.astype(number)
    # Positions in one row after another, so that a tap is a part of each channel that begins later; what the
    # padded width adds to each row of the sums is cut off at the end
    wide = padded.shape[3]
    span = (rows - 1) * wide + columns
    channels = padded[is_added].astype(number).reshape(matrices.shape[2], -1)
    total = np.zeros((outputs, rows * wide), number)
    for matrix, (row, column) in zip(matrices, corners, strict=True):
        first = row * wide + column
        add_product(total[:, :span], matrix, channels[:, first : first + span])
    return total.reshape(-1, rows, wide)[:, :, :columns].astype(np.int64)


def sum_bypassed(setting: LayerSettings) -> Array:
    """Return the weights of a layer that bypasses its memory: ones, int8 [processors, kernels, taps]."""
    taps = setting.kernel.rows * setting.kernel.columns
    count = setting.kernel.count if setting.kind is LayerKind.CONVOLUTION else setting.reading.passes
    return np.ones((len(setting.processors), count, taps), np.int8)


def _pad(setting: LayerSettings, values: Array) -> Array:
    """Pad the input with zeros.

    In a transposed convolution they lie between its positions and after the last ones as well.
    """
    (rows, columns), reading = setting.reading.pad, setting.reading
    if reading.transposed:
        stuffed = np.zeros((*values.shape[:2], 2 * reading.rows, 2 * reading.columns), values.dtype)
        stuffed[:, :, ::2, ::2] = values
        values = stuffed
    return np.pad(values, ((0, 0), (0, 0), (rows, rows), (columns, columns)))


def read_biases(setting: LayerSettings, memory: Array, master: int, dummy: bool) -> Array:
    """Return what the bias memories add to each output: int64 [outputs], in units of the sum.

    memory: uint8 [quadrants, bytes].  dummy: the first generation reads one byte too many where it streams
    from the first layer on.
    """
    outputs = setting.kernel.count // setting.reading.passes
    if setting.kind is LayerKind.DEPTHWISE:
        return _own_biases(setting, memory)
    total = np.zeros(outputs, np.int64)
    for quadrant, first in setting.biases.items():
        if quadrant in setting.sources | {master}:
            total += _bytes(
                setting, memory[quadrant], first * setting.kernel.lanes + np.arange(outputs) + dummy
            )
    # A bias counts units of the data, the accumulator counts 128ths of them.
    return 128 * total


def _own_biases(setting: LayerSettings, memory: Array) -> Array:
    """Return the bias of a depthwise layer: in each processor's quadrant, a row of bytes for each pass.

    Where results go to the slots read from, four memories are read side by side: a row is a whole quadrant's.
    Else the row of the first quadrant in use begins with its first processor in use, and that of the last one
    ends with the last.
    """
    passes, processors = setting.reading.passes, np.array(setting.processors)
    quadrants, inside = np.divmod(processors, PER_QUADRANT)
    rows = np.full(len(processors), PER_QUADRANT)
    if setting.writing.aligned:
        places = inside % PER_MEMORY * PER_MEMORY + inside // PER_MEMORY
    else:
        places = inside - np.where(quadrants == quadrants[0], inside[0], 0)
        rows[quadrants == quadrants[-1]] = places[-1] + 1
    total = np.zeros((len(processors), passes), np.int64)
    for i, (quadrant, place, row) in enumerate(
        zip(quadrants.tolist(), places.tolist(), rows.tolist(), strict=True)
    ):
        if quadrant in setting.biases:
            first = setting.biases[quadrant] * (PER_MEMORY if setting.writing.aligned else 1)
            total[i] = _bytes(setting, memory[quadrant], first + place + row * np.arange(passes))
    return 128 * total.reshape(-1)


def _bytes(setting: LayerSettings, memory: Array, index: Array) -> Array:
    """Return signed bytes; output slots that no channel uses may lie beyond the end and get nothing."""
    if index[0] >= memory.size:
        raise setting.fault("POST", f"bias from byte {int(index[0])} on, {memory.size} exist")
    return np.where(index < memory.size, memory.view(np.int8)[np.minimum(index, memory.size - 1)], 0).astype(
        np.int64
    )


def read_kernels(setting: LayerSettings, memory: Array, device: Chip, binary: bool) -> Array:
    """Return weights int8 [processors, kernels, rows * columns] of uint8 words [processors, words, 9].

    A processor's words make one stream of bytes, from the least significant byte of each word on; a kernel is
    stored last value first, and weights of fewer bits share a byte with those of the next kernels.  Where
    four output channels are computed at once, every fourth one lies in the same of four physical memories.
    Raises SimulationError where kernels lie beyond the memory.
    """
    kernel, passes = setting.kernel, setting.reading.passes
    if kernel.lanes == 1:
        end = min(device.kernel_capacity(p) for p in setting.processors) * KERNEL_BYTES
        return _stored_values(setting, memory, (0, kernel.count, end), binary)
    size = device.kernel_words // kernel.lanes * KERNEL_BYTES
    count = kernel.count // kernel.lanes
    by_memory = [
        _stored_values(setting, memory, (lane * size, count, (lane + 1) * size), binary)
        for lane in range(kernel.lanes)
    ]
    by_output = np.stack(by_memory, 1).reshape(
        len(setting.processors), kernel.lanes, count // passes, passes, -1
    )
    return np.asarray(by_output.swapaxes(1, 2)).reshape(len(setting.processors), kernel.count, -1)


def _stored_values(setting: LayerSettings, memory: Array, part: tuple[int, int, int], binary: bool) -> Array:
    """Return kernels of one memory.  part: its first byte, how many kernels, and the byte where it ends."""
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
    kernel_bytes = streams[:, begin : begin + groups * taps].reshape(len(streams), groups, taps)[:, :, ::-1]
    return _values(kernel_bytes, bits, binary)[:, :count]


def _values(kernel_bytes: Array, bits: int, binary: bool) -> Array:
    """Return bytes [processors, groups, taps] as weights [processors, groups * 8 / bits, taps].

    One bit is 0 or -1, if binary +1 or -1.
    """
    if bits == 8:
        return kernel_bytes.view(np.int8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = (kernel_bytes[:, :, None, :] >> shifts[:, None] & ((1 << bits) - 1)).astype(np.int8)
    signed = 1 - 2 * fields if binary and bits == 1 else fields - (fields >> bits - 1 << bits)
    return signed.reshape(len(kernel_bytes), -1, kernel_bytes.shape[2])
