"""Conv over quantized tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mace_core.candidates import Candidate
from mace_core.integer_storage import IntegerWeights
from mace_core.ir import DType, Node, Tensor
from mace_core.levels import Level
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.windows import Windows
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS, packing, panel_width
from mace_target_cpu.lower.conv import GEOMETRY, WINDOWS, Filters, geometry
from mace_target_cpu.lower.igemm import (
    IGEMM,
    INTEGER,
    REQUANTIZE,
    block_args,
    block_scratch,
    byte_rows,
    padded_depth,
    wide_scratch,
)
from mace_target_cpu.lower.ordered import ProductCall, offer, row_of
from mace_target_cpu.lower.orders import Runs
from mace_target_cpu.quantized.byte_lines import BYTE_LINES
from mace_target_cpu.quantized.depthwise import DEPTHWISE
from mace_target_cpu.quantized.depthwise_byte_strips import BYTE_STRIPS
from mace_target_cpu.quantized.depthwise_strips import offer_strips
from mace_target_cpu.quantized.products import (
    PRODUCT_RESULT,
    ColumnScales,
    column_weights,
    factor,
    pack_once,
)
from mace_target_cpu.quantized.storage import C_TYPES, CODES, Scale
from mace_target_cpu.quantized.strips import Strip
from mace_target_cpu.quantized.winograd import offer_winograd

ZEROS = (("x_zero", "i32"), ("w_zero", "i32"))
MATRIX = (
    *((name, "i32") for name in ("x_type", "results", "group", "panel", "strip")),
    ("byte_rows", "i64"),
    ("wide_rows", "i64"),
)
STRIP = KERNELS / "igemm_strip.h.in"
CONV = KERNELS / "conv_quantized.c.in"
PLAIN_DEPTHWISE = KERNELS / "conv_depthwise_quantized.c.in"


def conv_kernel(x: Tensor) -> Kernel:
    """Return the kernel that convolves a tensor of eight bits, or the one for sixteen."""
    is_wide = x.dtype is DType.I16
    fields = (*GEOMETRY, *ZEROS, *MATRIX, *PRODUCT_RESULT)
    name = "conv_quantized_i16" if is_wide else "conv_quantized"
    params = {"is_wide": is_wide, "is_ordered": False}
    return Kernel(name, CONV, fields, params, (*IGEMM, WINDOWS, STRIP))


def conv(node: Node, lowering: Lowering) -> None:
    """Any convolution of eight or sixteen bits with constant weights of eight."""
    if _is_depthwise(node, lowering):
        lowering.call(node, make_depthwise(node, lowering))
    else:
        lowering.call(node, make_product(node, lowering).call)


def _is_depthwise(node: Node, lowering: Lowering) -> bool:
    filters, y = Filters.from_node(node, lowering), lowering.tensors[node.outputs[0]]
    channels = lowering.shape(node.inputs[0])[-1]
    return filters.group == channels and filters.columns == 1 and filters.group > 1 and y.dtype in C_TYPES


def make_product(node: Node, lowering: Lowering) -> ProductCall:
    """Return the call of a convolution that is a matrix product; Refused for a depthwise one."""
    if _is_depthwise(node, lowering):
        raise Refused("it is depthwise", code="shape")
    x, y = factor(node, lowering), lowering.tensors[node.outputs[0]]
    filters, weights = (
        Filters.from_node(node, lowering),
        IntegerWeights.from_constant(node.inputs[1], lowering),
    )
    windows = Windows.of(lowering.shape(node.inputs[1])[1:-1], node.attributes(ConvAttributes))
    columns = ColumnScales.from_node(
        node, lowering, weights, weights.reach(tuple(range(1, weights.values.ndim)))
    )
    args = {**geometry(x, y, windows), "x_zero": Scale.from_tensor(x).zero, **columns.result(node, y)}
    columns = columns.without_zero_point(
        x, weights.sums(tuple(range(1, weights.values.ndim))), packing(lowering)
    )
    # Gathered windows, their 16-bit copies and their sums must fit one worker's scratch.
    rows, depth = math.prod(y.shape[:-1]), filters.depth
    strip = Strip.from_geometry(args, filters, byte_rows(rows, depth))
    # Pixels of a strip are as long as a group's channels, and scalar registers load whole quads.
    is_readable = not packing(lowering).by_scalar or lowering.shape(node.inputs[1])[-1] % 4 == 0
    matrices = weights.values.reshape(filters.group, filters.columns, filters.depth).transpose(0, 2, 1)
    w = pack_once(node.inputs[1], matrices, lowering)
    args |= {
        "w_zero": weights.zero + packing(lowering).offset,
        "x_type": CODES[x.dtype],
        "results": y.shape[-1],
        "group": filters.group,
        "panel": panel_width(lowering),
        **block_args(rows, depth),
        "strip": strip.pays and x.dtype is not DType.I16 and is_readable,
    }
    w_strip = ""
    if args["strip"] and strip.pads:
        w_strip = pack_once(node.inputs[1], strip.pad_pieces(matrices), lowering, "pieces")
    scratch = block_scratch(rows, depth, x.dtype.size)
    if args["strip"]:
        scratch = max(wide_scratch(rows, depth, x.dtype.size), strip.scratch)
    reads = [x.name, w, *column_weights(lowering, y.name, columns, filters.group), w_strip]
    runs = Runs(strip.pieces, padded_depth(strip.piece) // 4) if args["strip"] else row_of(depth)
    call = Call(conv_kernel(x), args, reads, [y.name], scratch=scratch)
    # In the pieces of a strip where these have their own.
    return ProductCall(call, rows, runs, x.dtype, w_strip or w)


def make_depthwise(node: Node, lowering: Lowering) -> Call:
    """Return the call of a depthwise convolution; Refused for any other."""
    if not _is_depthwise(node, lowering):
        raise Refused("it is not depthwise", code="shape")
    x, y = factor(node, lowering), lowering.tensors[node.outputs[0]]
    weights = IntegerWeights.from_constant(node.inputs[1], lowering)
    columns = ColumnScales.from_node(
        node, lowering, weights, weights.reach(tuple(range(1, weights.values.ndim)))
    )
    windows = Windows.of(lowering.shape(node.inputs[1])[1:-1], node.attributes(ConvAttributes))
    args = {**geometry(x, y, windows), "x_zero": Scale.from_tensor(x).zero, **columns.result(node, y)}
    # Less its zero point a weight needs 9 bits; 16 are what the kernel multiplies in anyway.
    taps = (weights.values.astype(np.int16) - weights.zero).reshape(y.shape[-1], -1).T.copy()
    w = lowering.once(
        (node.inputs[1], "taps"),
        lambda: lowering.weight(f"{node.inputs[1]}_packed", taps.shape, "int16", lambda: taps),
    )
    params = {"xtype": C_TYPES[x.dtype], "ytype": C_TYPES[y.dtype], "average": False}
    name = f"conv_depthwise_{x.dtype.value}_{y.dtype.value}"
    fields = (*GEOMETRY, ZEROS[0], *PRODUCT_RESULT)
    kernel = Kernel(name, PLAIN_DEPTHWISE, fields, params, helpers=(INTEGER, REQUANTIZE))
    return Call(kernel, args, [x.name, w, *column_weights(lowering, y.name, columns, 1)], [y.name])


def _cost(node: Node, lowering: Lowering, level: Level) -> float:
    """Return that an instruction is needed for each product of a depthwise convolution."""
    return lowering.tensors[node.outputs[0]].elements * lowering.tensors[node.inputs[1]].elements


LOWERINGS: dict[str, Lower | Sequence[Candidate]] = {
    "Conv": (
        BYTE_LINES,
        BYTE_STRIPS,
        DEPTHWISE,
        offer_strips(make_depthwise),
        offer_winograd(lambda node, lowering: make_product(node, lowering).call, _cost),
        offer(make_product, _cost),
        Candidate("products", conv, _cost),
    ),
}
