"""Conv of images of three or four channels of bytes, from quads of pixels, for AVX-512 with VNNI."""

from __future__ import annotations

import math

import numpy as np

from mace_core.candidates import Candidate
from mace_core.integer_storage import IntegerWeights
from mace_core.ir import Array, DType, Node
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.windows import Windows
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS, PANEL, X86, packing
from mace_target_cpu.lower.conv import GEOMETRY, WINDOWS, Filters, geometry
from mace_target_cpu.lower.geometry import read_axes
from mace_target_cpu.lower.igemm import INTEGER, REQUANTIZE
from mace_target_cpu.quantized.products import ColumnScales, column_weights, factor, pack_once
from mace_target_cpu.quantized.rounding import Rounding, choose_rounding
from mace_target_cpu.quantized.storage import EIGHT_BITS, RESULT, Scale

LEVELS = tuple(str(level.name) for level in X86 if level.dot == "vnni" and level.lanes == 16)

FIELDS = (
    *GEOMETRY,
    ("x_zero", "i32"),
    ("w_zero", "i32"),
    *RESULT,
    ("results", "i32"),
    ("quads", "i32"),
    ("flip", "i32"),
    ("strip_rows", "i64"),
)

QUAD = 4
"""Bytes of a pixel in the strip, and taps of which one gives its bytes to the others."""

PIXELS = 16
"""Pixels of a vector."""

MAX_TAPS = 64
MAX_STRIDE = 4

STRIP_BYTES = 1 << 14
"""Of a strip, unless one row of results needs more: half of the first-level cache."""

MAX_STRIP_BYTES = 1 << 20
"""Of a strip at maximum, as of conv_lines.c.in: hostile models have lines that lie far apart."""

STEP_LIMIT = 2.0**30
"""Steps of a result, before bounds are taken, that 32 bits hold for certain, however floats round."""


def count_quads(taps: int, channels: int) -> int:
    """Return the quads of bytes of a window."""
    return taps // QUAD * channels + taps % QUAD if channels < QUAD else taps


def pack_taps(filters: Array) -> Array:
    """Arrange filters [columns, taps, channels] as a matrix [4 * quads, columns], as windows are read.

    Every fourth tap of three channels has its weights in the fourth places of the quads of the three taps
    before it.
    """
    columns, taps, channels = filters.shape
    quads = np.zeros((columns, taps, QUAD), filters.dtype)
    quads[:, :, :channels] = filters
    if channels < QUAD:
        full = taps // QUAD * QUAD
        groups = quads[:, :full].reshape(columns, taps // QUAD, QUAD, QUAD)
        groups[:, :, :channels, channels] = groups[:, :, QUAD - 1, :channels]
        merged = groups[:, :, : QUAD - 1].reshape(columns, -1, QUAD)
        quads = np.concatenate([merged, quads[:, full:]], axis=1)
    return np.ascontiguousarray(quads.reshape(columns, -1).T)


def plan_strip(args: dict[str, Arg], quads: int) -> tuple[int, int]:
    """Return the rows of results that a strip is for, and the bytes of a worker's scratch."""
    kernel, out, stride, dilation = (
        read_axes(args[name]) for name in ("kernel", "out", "stride", "dilation")
    )
    _, reach_down, reach_across = ((size - 1) * step for size, step in zip(kernel, dilation, strict=True))
    width = (out[2] - 1) * stride[2] + reach_across + 1
    line = stride[2] * -(-width // stride[2]) * QUAD
    rows = max(1, (STRIP_BYTES // line - reach_down - 1) // stride[1] + 1)
    rows = min(rows, out[1])
    strip = ((rows - 1) * stride[1] + reach_down + 1) * line
    taps = -(-kernel[1] * kernel[2] // PIXELS) * PIXELS
    # A vector is lost to alignment, and another lies behind the strip, where the last pixels end.
    return rows, QUAD * PIXELS * (quads + 2) + 4 * taps + strip


def lower_byte_lines(node: Node, lowering: Lowering) -> None:
    """Lower a convolution of an image of eight bits with few channels, to eight bits."""
    filters = Filters.from_node(node, lowering)
    x, y = factor(node, lowering), lowering.tensors[node.outputs[0]]
    channels, kernel = x.shape[-1], lowering.shape(node.inputs[1])[1:-1]
    if filters.group != 1 or channels not in (QUAD - 1, QUAD):
        raise Refused(f"its images have {channels} channels in {filters.group} groups", code="shape")
    if x.dtype not in EIGHT_BITS or y.dtype not in EIGHT_BITS:
        raise Refused("its operands are not of eight bits", code="dtype")
    if choose_rounding(node, lowering) is not Rounding.SINGLE:
        raise Refused("its kernel rounds by factors in single precision", code="quantization")
    windows = Windows.of(kernel, node.attributes(ConvAttributes))
    place = geometry(x, y, windows)
    taps = math.prod(kernel)
    _check_windows(place, y.elements)
    weights = IntegerWeights.from_constant(node.inputs[1], lowering)
    axes = tuple(range(1, weights.values.ndim))
    columns = ColumnScales.from_node(node, lowering, weights, weights.reach(axes))
    if (columns.factor.astype(np.float64) * 2.0**31 >= STEP_LIMIT).any():
        raise Refused("its steps could leave 32 bits", code="quantization")
    result = columns.result(node, y)
    result.pop("rounding")
    columns = columns.without_zero_point(x, weights.sums(axes), packing(lowering))
    quads = count_quads(taps, channels)
    rows, scratch = plan_strip(place, quads)
    if scratch > MAX_STRIP_BYTES:
        raise Refused(f"a row of results sees {scratch} bytes", code="too-large")
    args = {
        **place,
        "x_zero": Scale.from_tensor(x).zero,
        "w_zero": weights.zero,
        **result,
        "results": y.shape[-1],
        "quads": quads,
        "flip": 128 if x.dtype is DType.I8 else 0,
        "strip_rows": rows,
    }
    matrix = pack_taps(weights.values.reshape(y.shape[-1], taps, channels))
    w = pack_once(node.inputs[1], matrix[None], lowering, "lines")
    reads = [x.name, w, *column_weights(lowering, y.name, columns, 1)]
    name, params = f"conv_byte_lines{channels}", {"channels": channels}
    convolution = Kernel(
        name, KERNELS / "conv_byte_lines.c.in", FIELDS, params, (INTEGER, REQUANTIZE, WINDOWS)
    )
    lowering.call(node, Call(convolution, args, reads, [y.name], scratch=scratch))


def _check_windows(place: dict[str, Arg], elements: int) -> None:
    """Raise Refused for windows that the kernel is not written for."""
    kernel, inside, out, stride, pad = (
        read_axes(place[name]) for name in ("kernel", "in", "out", "stride", "pad")
    )
    if kernel[0] != 1 or stride[0] != 1 or pad[0] != 0 or inside[0] != out[0] or not elements:
        raise Refused("its windows do not lie in a plane, or it has no results", code="shape")
    taps = kernel[1] * kernel[2]
    if not 1 < taps <= MAX_TAPS or stride[2] > MAX_STRIDE:
        raise Refused(f"its windows have {taps} taps and move by {stride[2]}", code="shape")


def _cost(node: Node, lowering: Lowering, level: Level) -> float:
    """Return an instruction for each product, as of the product of matrices, times what both compute."""
    y, filters = lowering.tensors[node.outputs[0]], Filters.from_node(node, lowering)
    channels, kernel = lowering.shape(node.inputs[0])[-1], lowering.shape(node.inputs[1])[1:-1]
    ratio = _estimate(y.shape[-2], filters.columns, kernel, channels)
    return y.elements * lowering.tensors[node.inputs[1]].elements * ratio


def _estimate(wide: int, filters: int, kernel: tuple[int, ...], channels: int) -> float:
    """Return the products of a line of results, as a multiple of those of the product of matrices.

    Both fill vectors in part: here lines of few pixels, there few filters and windows of odd lengths.
    """
    here = -(-wide // PIXELS) * PIXELS * -(-filters // 8) * 8 * count_quads(math.prod(kernel), channels)
    pieces = math.prod(kernel[:-1]) * -(-kernel[-1] * channels // QUAD)
    return here / (wide * -(-filters // PANEL) * PANEL * pieces)


BYTE_LINES = Candidate("byte-lines", lower_byte_lines, _cost, LEVELS)
