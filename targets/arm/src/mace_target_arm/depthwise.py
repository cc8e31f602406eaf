"""Depthwise convolutions of bytes: by pairs of products in 16 bits, or by sdot over four columns of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.candidates import Candidate
from mace_core.integer_storage import IntegerWeights
from mace_core.ir import Array, DType, Node
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.windows import Windows
from mace_core.program import Call, Kernel
from mace_target_arm.isa import AARCH32, AARCH64, KERNELS
from mace_target_cpu.isa import packing
from mace_target_cpu.lower.conv import GEOMETRY, Filters, geometry, spatial
from mace_target_cpu.lower.igemm import INTEGER, REQUANTIZE
from mace_target_cpu.quantized.products import PRODUCT_RESULT, ColumnScales, column_weights, factor
from mace_target_cpu.quantized.storage import EIGHT_BITS, Scale

BLOCK = 16
"""Channels whose weights and copied rows lie together."""

SLAB = 4
"""Blocks whose rows are copied together."""

QUAD = 4
MAX_TAPS = 128
MAX_SCRATCH = 1 << 18
"""Bytes of copied rows; as many as second-level caches hold."""

LIMIT = 127
"""Of two products of summands within it with bytes, the sum fits 16 bits: 2 * 127 * 128 < 2^15."""

FIELDS = (
    *GEOMETRY,
    ("x_zero", "i32"),
    *PRODUCT_RESULT,
    *((name, "i32") for name in ("flip", "multiplier", "taps", "columns", "is_unrolled")),
)


@dataclass(frozen=True)
class RowTaps:
    """The taps of a window as a kernel reads them.

    places: of each tap its row and its column in the copied rows, int32 [taps, 2].
    weights: int8, as the kernel reads them.
    columns: of a copied row.  column_bytes: of each, for a block of channels.
    is_unrolled: whether the first taps are those that the kernel keeps in registers.
    """

    places: Array
    weights: Array
    columns: int
    column_bytes: int
    is_unrolled: bool


@dataclass(frozen=True)
class RowWindows:
    """The two last axes of windows: kernel, stride and dilation, and the results of a row."""

    kernel: tuple[int, int]
    stride: int
    dilation: int
    results: int


def split_weights(weights: Array) -> list[Array]:
    """Split weights of 9 bits into summands of at most LIMIT that add up to them."""
    parts: list[Array] = []
    rest = weights.astype(np.int16)
    # The first one is there for weights that are all 0 too.
    while not parts or rest.any():
        parts.append(np.clip(rest, -LIMIT, LIMIT).astype(np.int8))
        rest = rest - parts[-1]
    return parts


def arrange_pairs(weights: Array, windows: RowWindows) -> RowTaps:
    """Arrange weights [channels, rows, columns] as taps of one column each."""
    rows, width = windows.kernel
    is_unrolled = windows.kernel == (3, 3) and windows.dilation == 1
    first, *others = split_weights(weights)
    places = [(tap // width, tap % width * windows.dilation) for tap in range(rows * width)]
    values = list(first.reshape(len(first), rows * width).T)
    for part in others:
        for row, column in zip(*np.nonzero(part.any(axis=0)), strict=True):
            places.append((int(row), int(column) * windows.dilation))
            values.append(part[:, row, column])
    if (len(values) - (rows * width if is_unrolled else 0)) % 2:
        places.append((0, 0))
        values.append(np.zeros_like(values[0]))
    blocks = _split_blocks(np.stack(values, axis=1))
    columns = (windows.results - 1) * windows.stride + max(column for _, column in places) + 1
    packed = np.ascontiguousarray(blocks.transpose(0, 2, 1))
    return RowTaps(np.array(places, np.int32), packed, columns, BLOCK, is_unrolled)


def arrange_quads(weights: Array, windows: RowWindows) -> RowTaps:
    """Arrange weights [channels, rows, columns] as taps of four columns each, which begin at even ones."""
    channels, (rows, width), stride = len(weights), windows.kernel, windows.stride
    # Where windows begin at odd columns too, their weights lie one byte later.
    is_odd = stride % 2
    reach = (width - 1) * windows.dilation + 1 + is_odd
    quads = -(-reach // QUAD)
    places, values = [], []
    for number, part in enumerate(split_weights(weights)):
        full = np.zeros((channels, rows, 2, quads * QUAD), np.int8)
        for odd in range(1 + is_odd):
            full[:, :, odd, odd : odd + (width - 1) * windows.dilation + 1 : windows.dilation] = part
        cut = full.reshape(channels, rows, 2, quads, QUAD)
        for row in range(rows):
            for quad in range(quads):
                if number == 0 or cut[:, row, :, quad].any():
                    places.append((row, quad * QUAD))
                    values.append(cut[:, row, :, quad])
    #                                    channels, taps, even or odd, column
    blocks = _split_blocks(np.stack(values, axis=1))
    halves = blocks.reshape(len(blocks), 2, BLOCK // 2, *blocks.shape[2:])
    # An unrolled line computes two results at a time.
    last = (windows.results + windows.results % 2 - 1) * stride // 2
    columns = 2 * (last + max(column for _, column in places) // 2 + 1)
    is_unrolled = rows == 3 and quads == 1 and stride in (1, 2)
    packed = np.ascontiguousarray(halves.transpose(0, 1, 3, 4, 2, 5))
    return RowTaps(np.array(places, np.int32), packed, columns, 2 * BLOCK, is_unrolled)


def _split_blocks(values: Array) -> Array:
    """Return values of channels [channels, ...] as [blocks, BLOCK, ...], padded by zeros."""
    channels, *rest = values.shape
    full = np.zeros((-(-channels // BLOCK) * BLOCK, *rest), values.dtype)
    full[:channels] = values
    return full.reshape(-1, BLOCK, *rest)


def lower_pairs(node: Node, lowering: Lowering) -> None:
    """Lower to products of two taps that are added in 16 bits."""
    _lower_lines(node, lowering, "pairs")


def lower_quads(node: Node, lowering: Lowering) -> None:
    """Lower to sums of four products in a lane, of neighboring columns."""
    _lower_lines(node, lowering, "quads")


def _lower_lines(node: Node, lowering: Lowering, form: str) -> None:
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    windows = _read_windows(node, lowering)
    weights = IntegerWeights.from_constant(node.inputs[1], lowering)
    axes = tuple(range(1, weights.values.ndim))
    columns = ColumnScales.from_node(node, lowering, weights, weights.reach(axes))
    rounding = columns.result(node, y)
    columns = columns.without_zero_point(x, weights.sums(axes), packing(lowering))
    taps = _arrange(weights, windows, spatial(y.shape[1:-1])[-1], form)
    rows = (spatial(windows.kernel)[1] - 1) * spatial(windows.dilations)[1] + 1
    scratch = rows * SLAB * taps.columns * taps.column_bytes
    if len(taps.places) > MAX_TAPS or scratch > MAX_SCRATCH:
        raise Refused("its windows are too large for copied rows", code="too-large")
    args = {
        **geometry(x, y, windows),
        "x_zero": Scale.from_tensor(x).zero,
        **rounding,
        "flip": packing(lowering).shift(x.dtype is DType.I8) & 0xFF,
        "multiplier": Filters.from_node(node, lowering).columns,
        "taps": len(taps.places),
        "columns": taps.columns,
        "is_unrolled": taps.is_unrolled,
    }
    reads = [
        x.name,
        _add_weight(lowering, f"{node.inputs[1]}_{form}", taps.weights),
        *column_weights(lowering, y.name, columns, 1),
        _add_weight(lowering, f"{y.name}.taps_{form}", taps.places),
    ]
    params = {"form": form, "max_taps": MAX_TAPS}
    template = KERNELS / "conv_depthwise_lines.c.in"
    kernel = Kernel(f"conv_depthwise_{form}", template, FIELDS, params, (INTEGER, REQUANTIZE))
    lowering.call(node, Call(kernel, args, reads, [y.name], scratch=scratch))


def _read_windows(node: Node, lowering: Lowering) -> Windows:
    """Return the windows of a depthwise convolution of bytes; Refused for any other convolution."""
    filters, y = Filters.from_node(node, lowering), lowering.tensors[node.outputs[0]]
    x = factor(node, lowering)
    if filters.group != x.shape[-1] or filters.group == 1:
        raise Refused("it is not depthwise", code="shape")
    if x.dtype not in EIGHT_BITS or y.dtype not in EIGHT_BITS:
        raise Refused("its operands are not of eight bits", code="dtype")
    windows = Windows.of(lowering.shape(node.inputs[1])[1:-1], node.attributes(ConvAttributes))
    if len(windows.kernel) > 2:
        raise Refused("its windows have three axes; the kernel copies rows of pictures", code="shape")
    return windows


def _arrange(weights: IntegerWeights, windows: Windows, results: int, form: str) -> RowTaps:
    _, height, width = spatial(windows.kernel)
    row_windows = RowWindows((height, width), windows.strides[-1], windows.dilations[-1], results)
    differences = weights.values.astype(np.int16) - weights.zero
    arrange = arrange_pairs if form == "pairs" else arrange_quads
    return arrange(differences.reshape(len(differences), height, width), row_windows)


def _add_weight(lowering: Lowering, name: str, values: Array) -> str:
    return lowering.weight(name, values.shape, str(values.dtype), lambda: values)


def _cost(node: Node, lowering: Lowering, level: Level) -> float:
    """Return that a quarter of an instruction is needed for each product."""
    return lowering.tensors[node.outputs[0]].elements * lowering.tensors[node.inputs[1]].elements / 4


def _levels_with(*dots: str) -> tuple[str, ...]:
    """Return the names of the levels of both families that sum products of bytes in one of these ways."""
    known = (*AARCH64.known, *AARCH32.known)
    return tuple(dict.fromkeys(str(level.name) for level in known if level.dot in dots))


DEPTHWISE: Sequence[Candidate] = (
    Candidate("depthwise-quads", lower_quads, _cost, _levels_with("sdot", "smmla")),
    Candidate("depthwise-pairs", lower_pairs, _cost, _levels_with("smull")),
)
"""The ways of each level; what they refuse, the CPU's candidates take."""
