"""Depthwise convolutions of bytes by quads of taps in strips of the image, for AVX-512 with VNNI."""

from __future__ import annotations

import numpy as np

from mace_core.candidates import Candidate
from mace_core.ir import Array, DType, Node
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.ops.conv import ConvAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS, X86
from mace_target_cpu.lower.igemm import INTEGER, REQUANTIZE
from mace_target_cpu.quantized.depthwise import (
    FIELDS,
    LANES_OF_128_BITS,
    MAX_SLOTS,
    ByteWindows,
    channel_weight,
)

TEMPLATE = KERNELS / "conv_depthwise_byte_strips.c.in"
LEVELS = tuple(str(level.name) for level in X86 if level.dot == "vnni" and level.lanes == 16)

BLOCK = 64
"""Bytes that are computed at a time."""

MIN_PITCH = 8
"""Bytes from pixel to pixel at least, so that a block has no more than eight stores."""

FEW_CHANNELS = 32
"""From so many channels on, vectors of windows that are read in place are at least half full."""

STRIP_BYTES = 1 << 15
"""Of a strip, unless one row of results needs more: as large as the first-level cache."""


def fill_blocks(values: Array) -> Array:
    """Repeat the channels of [channels, ...] that fill no block, as often as their pixels fit in one."""
    full = values.shape[0] // BLOCK * BLOCK
    rest = values[full:]
    if not rest.shape[0]:
        return values
    pixel = np.zeros((choose_pitch(rest.shape[0]), *rest.shape[1:]), values.dtype)
    pixel[: rest.shape[0]] = rest
    return np.concatenate([values[:full], *[pixel] * (BLOCK // pixel.shape[0])])


def choose_pitch(channels: int) -> int:
    """Return the bytes from pixel to pixel of a block of so many channels: a power of two."""
    return max(MIN_PITCH, 1 << (channels - 1).bit_length())


def cut_strips(windows: ByteWindows, channels: int) -> tuple[int, int]:
    """Return the rows of results that are computed from a strip, and the strip's bytes."""
    _, reach_down, reach_across = windows.reach
    _, down, across = windows.stride
    span = -(-((windows.out[2] - 1) * across + reach_across + 1) // across)
    # A strip holds one block; the first one has the largest pixels.
    line = across * span * choose_pitch(min(channels, BLOCK))
    rows = max(1, (STRIP_BYTES // line - reach_down - 1) // down + 1)
    rows = min(rows, windows.out[1])
    # The last block of a line may be read as a whole.
    return rows, ((rows - 1) * down + reach_down + 1) * line + BLOCK


def lower_byte_strips(node: Node, lowering: Lowering) -> None:
    """Lower one filter for each channel of eight bits, to eight bits."""
    windows = ByteWindows.from_node(node, lowering)
    if windows.kernel[0] != 1 or windows.stride[0] != 1 or windows.pad[0] != 0:
        raise Refused("its windows do not lie in a plane", code="shape")
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if not y.elements:
        raise Refused("it has no results", code="shape")
    slots, summands = windows.slots, windows.summands
    # Weights of 9 bits take slots behind the first nine.
    is_square = windows.kernel == (1, 3, 3) and len(slots) == 12 and not summands[:, 9:].any()
    if is_square:
        # A row of a window is a quad, so that what is unpacked of a line serves three rows of results.
        slots = np.array([0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8])
        summands = summands[:, slots]
        summands[:, 3::4] = 0
    rows, scratch = cut_strips(windows, x.shape[-1])
    args = {
        **windows.args,
        "flip": 128 if x.dtype is DType.I8 else 0,
        "strip_rows": rows,
        "by_rows": is_square and windows.stride[1] == 1 and windows.dilation[1] == 1,
    }
    packed = LANES_OF_128_BITS.pack(fill_blocks(summands))
    places = windows.locate(slots)
    bias, scale = fill_blocks(windows.columns.bias), fill_blocks(windows.columns.factor)
    reads = [
        x.name,
        lowering.weight(f"{node.inputs[1]}_strip_quads", packed.shape, "int8", lambda: packed),
        channel_weight(lowering, f"{y.name}.bias_strips", LANES_OF_128_BITS.arrange(bias)),
        channel_weight(lowering, f"{y.name}.factor_strips", LANES_OF_128_BITS.arrange(scale)),
        lowering.weight(f"{y.name}.strip_taps", places.shape, "int32", lambda: places),
    ]
    fields = (*FIELDS, ("flip", "i32"), ("strip_rows", "i64"), ("by_rows", "i32"))
    params = {"max_slots": MAX_SLOTS}
    kernel = Kernel("conv_depthwise_byte_strips", TEMPLATE, fields, params, (INTEGER, REQUANTIZE))
    lowering.call(node, Call(kernel, args, reads, [y.name], scratch=scratch))


def _cost(node: Node, lowering: Lowering, level: Level) -> float:
    """Return an eighth of an instruction for each product, or more than windows read in place need.

    Where windows move by one, each byte of a strip is used by several results, and what is unpacked of a
    line by three rows of them. Where they move by two, copying a strip takes longer than the results: 112 x
    112 x 64 took 62 microseconds, and 41 in place. Images of few channels leave most of a vector empty in
    place, so that strips are faster either way: 48 x 48 x 16 took 4.7 and 5.6.
    """
    products = lowering.tensors[node.outputs[0]].elements * lowering.tensors[node.inputs[1]].elements
    attrs = node.attributes(ConvAttributes)
    kernel = lowering.shape(node.inputs[1])[1:-1]
    moves_by_one = all(step == 1 for step in (*attrs.strides, *attrs.dilations))
    if lowering.shape(node.inputs[0])[-1] < FEW_CHANNELS or (kernel == (3, 3) and moves_by_one):
        return products / 8
    return products / 3


BYTE_STRIPS = Candidate("depthwise-byte-strips", lower_byte_strips, _cost, LEVELS)
