"""Lowerings of nodes whose tensors are of half precision: stored in sixteen bits, computed in floats.

Each kernel widens what it loads, or multiplies halves with sums of floats, and rounds each result once. The
bits are those of a kernel of floats between two conversions, except that a NaN keeps its payload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib.resources import files

import numpy as np

from mace_core.emit.text import CIdentifier, Code
from mace_core.ir import Array, DType, Node
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.windows import Windows
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS as CPU_KERNELS
from mace_target_cpu.isa import PANEL, packing
from mace_target_cpu.lower.binary import VECTOR as BINARY
from mace_target_cpu.lower.broadcast import PAIR, pair_args
from mace_target_cpu.lower.conv import (
    CLAMP,
    DEPTHWISE_ROW,
    GEOMETRY,
    UNROLLED,
    WINDOWS,
    Filters,
    WindowForm,
    clamp,
    geometry,
    spatial,
)
from mace_target_cpu.lower.gemm import BLOCK, GEMM_CUT, MOST_ROWS, optional, pack
from mace_target_cpu.lower.types import FREEZE
from mace_target_cpu.lower.unary import MATH, read_numbers
from mace_target_cpu.lower.unary import VECTOR as UNARY

KERNELS = files("mace_target_arm") / "kernels"
MATRIX = (("results", "i32"), ("group", "i32"), ("panel", "i32"), ("rows", "i64"), ("form", "i32"))
PRODUCT = KERNELS / "gemm_halves.h.in"
CONV = Kernel(
    "conv_f16",
    KERNELS / "conv_halves.c.in",
    (*GEOMETRY, *MATRIX, *CLAMP),
    {"gather": WindowForm.GATHER.value, "product": CIdentifier("gemm_halves_rows")},
    (GEMM_CUT, WINDOWS, PRODUCT),
)
CONV_HALF_SUMS = replace(
    CONV,
    name="conv_f16_half_sums",
    params={**CONV.params, "product": CIdentifier("gemm_half_sums_rows")},
    helpers=(GEMM_CUT, WINDOWS, PRODUCT, KERNELS / "gemm_half_sums.h.in"),
)
"""The kernel for `arithmetic: f16`; at levels that cannot add halves it is CONV."""
HALF = Code("uint16_t")


def _need_halves(node: Node, lowering: Lowering) -> None:
    """Raise Refused at a level without conversions, and for a tensor of another type."""
    if not packing(lowering).has_halves:
        raise Refused("its levels have no instructions for half precision", code="dtype")
    for name in filter(None, (*node.inputs, *node.outputs)):
        if lowering.tensors[name].dtype is not DType.F16:
            raise Refused(f"{name} is not of half precision", code="dtype")


def _constants(node: Node, lowering: Lowering) -> tuple[Array, Array | None]:
    """Return the second factor of a product, and the bias as floats; Refused if one is computed."""
    weights, bias = (
        lowering.constant(name) if name else None for name in (node.inputs[1], optional(node, 2))
    )
    if weights is None or (optional(node, 2) and bias is None):
        raise Refused("kernels of half precision pack weights at build time", code="other", remedy=FREEZE)
    return weights, None if bias is None else bias.astype(np.float32)


def conv(node: Node, lowering: Lowering, kernel: Kernel = CONV) -> None:
    """Lower any convolution with constant weights, with sums as `kernel` has them unless it is depthwise."""
    _need_halves(node, lowering)
    weights, bias = _constants(node, lowering)
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    windows = Windows.of(weights.shape[1:-1], node.attributes(ConvAttributes))
    filters = Filters.from_node(node, lowering)
    args = {**geometry(x, y, windows), **clamp(node)}
    if filters.group == x.shape[-1] and filters.columns == 1 and filters.group > 1:
        _lower_depthwise(node, lowering, args, windows)
        return
    rows = max(1, math.prod(y.shape[:-1]))
    is_direct = set(windows.kernel) | set(windows.strides) == {1} and x.shape[1:-1] == y.shape[1:-1]
    gathered = max(min(MOST_ROWS, rows), min(rows, 2 * BLOCK // max(1, filters.depth)))
    args |= {
        "results": y.shape[-1],
        "group": filters.group,
        "rows": max(MOST_ROWS, min(rows, 2 * BLOCK // max(1, x.shape[-1]))) if is_direct else gathered,
        "form": (WindowForm.DIRECT if is_direct else WindowForm.GATHER).value,
    }
    matrices = weights.reshape(filters.group, filters.columns, filters.depth).transpose(0, 2, 1)
    scratch = 0 if is_direct else 2 * gathered * filters.depth
    _lower_product(node, lowering, Call(kernel, args, (), (), scratch=scratch), (matrices, bias))


def matmul(node: Node, lowering: Lowering, kernel: Kernel = CONV) -> None:
    """Lower a product with one constant matrix: a convolution of one pixel for each row."""
    _need_halves(node, lowering)
    weights, bias = _constants(node, lowering)
    if weights.ndim < 2 or math.prod(weights.shape[:-2]) != 1:
        raise Refused("its second factor is not one matrix", code="shape")
    depth, columns = weights.shape[-2:]
    rows = lowering.tensors[node.outputs[0]].elements // max(1, columns)
    single: dict[str, Arg] = dict.fromkeys(("kernel", "stride", "dilation"), (1, 1, 1))
    args = {
        "batch": 1,
        "channels": depth,
        "in": (1, 1, rows),
        "out": (1, 1, rows),
        **single,
        "pad": (0, 0, 0),
        **clamp(node),
        "results": columns,
        "group": 1,
        "rows": max(MOST_ROWS, min(rows, 2 * BLOCK // max(1, depth))),
        "form": WindowForm.DIRECT.value,
    }
    _lower_product(node, lowering, Call(kernel, args, (), ()), (weights.reshape(1, depth, columns), bias))


def _lower_product(
    node: Node,
    lowering: Lowering,
    call: Call,
    constants: tuple[Array, Array | None],
) -> None:
    """Append the call that multiplies windows by matrices [group, depth, columns].

    call: its kernel, arguments and scratch.  constants: the matrices, and the bias of all groups.
    """
    matrices, bias = constants
    group, depth, columns = matrices.shape
    panels = -(-columns // PANEL)
    w = lowering.once(
        (node.inputs[1], "panels of halves", matrices.shape),
        lambda: lowering.weight(
            f"{node.inputs[1]}_packed",
            (group, panels, depth, PANEL),
            "float16",
            lambda: pack(matrices, PANEL).astype(np.float16),
        ),
    )
    padded = np.zeros((group, panels * PANEL), np.float32)
    if bias is not None:
        padded[:, :columns] = bias.reshape(group, columns)
    start = lowering.weight(f"{node.outputs[0]}_bias", padded.shape, "float32", lambda: padded)
    reads = [node.inputs[0], w, start]
    args = {**call.args, "panel": PANEL}
    lowering.call(node, replace(call, args=args, reads=reads, writes=node.outputs))


def _lower_depthwise(node: Node, lowering: Lowering, args: Mapping[str, Arg], windows: Windows) -> None:
    """Lower a convolution with one filter for each channel.

    Its weights are few, and become floats [kd][kh][kw][channel].
    """
    weights, bias = _constants(node, lowering)
    taps = weights.reshape(weights.shape[0], -1).T.astype(np.float32)
    w = lowering.weight(f"{node.inputs[1]}_packed", taps.shape, "float32", lambda: taps)
    start = ""
    if bias is not None:
        start = lowering.weight(f"{node.outputs[0]}_bias", bias.shape, "float32", lambda: bias)
    width, stride = spatial(windows.kernel)[-1], spatial(windows.strides)[-1]
    is_unrolled = (width, stride) in UNROLLED and windows.dilations[-1] == 1
    name = f"conv_depthwise_k{width}s{stride}_f16" if is_unrolled else "conv_depthwise_f16"
    params = {"width": width if is_unrolled else 0, "stride": stride if is_unrolled else 0, "is_half": True}
    template = CPU_KERNELS / "conv_depthwise.c.in"
    kernel = Kernel(name, template, (*GEOMETRY, *CLAMP), params, (DEPTHWISE_ROW,))
    lowering.call(node, Call(kernel, args, [node.inputs[0], w, start], node.outputs))


def binary(node: Node, lowering: Lowering) -> None:
    """Lower an element-wise op of two tensors, both broadcast."""
    _need_halves(node, lowering)
    x, y, z = (lowering.tensors[name] for name in (*node.inputs, *node.outputs))
    params = {
        **dict.fromkeys(("ctype", "ytype", "result"), HALF),
        "vector": Code(BINARY[node.op.name]),
        "scalar": Code(""),
        "is_half": True,
    }
    kernel = Kernel(f"{node.op.name.lower()}_f16", CPU_KERNELS / "binary.c.in", PAIR, params)
    lowering.call(node, Call(kernel, pair_args(x, y, z), node.inputs, node.outputs, inplace=True))


def unary(node: Node, lowering: Lowering) -> None:
    """Lower an element-wise op of one tensor."""
    _need_halves(node, lowering)
    attrs = read_numbers(node)
    params = {
        "ctype": HALF,
        "result": HALF,
        "vector": Code(UNARY[node.op.name]),
        "scalar": Code(""),
        "attrs": [*map(CIdentifier, attrs)],
        "attr_type": Code("float"),
        "is_half": True,
    }
    fields = (("n", "i64"), *((name, "f32") for name in attrs))
    kernel = Kernel(f"{node.op.name.lower()}_f16", CPU_KERNELS / "unary.c.in", fields, params, (MATH,))
    args = {"n": lowering.tensors[node.inputs[0]].elements, **attrs}
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs, inplace=True))


HALVES: Mapping[str, Lower] = {
    "Conv": conv,
    "MatMul": matmul,
    **dict.fromkeys(BINARY, binary),
    **dict.fromkeys((op for op in UNARY if not op.startswith("Gelu")), unary),
}
"""By op. What they refuse is computed in floats, between conversions."""

HALF_SUMS: Mapping[str, Lower] = {
    **HALVES,
    "Conv": partial(conv, kernel=CONV_HALF_SUMS),
    "MatMul": partial(matmul, kernel=CONV_HALF_SUMS),
}
"""The same for `arithmetic: f16`."""
