"""Conv: depthwise ones by a kernel of their own, all others as a matrix product of gathered windows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mace_core.ir import DType, Node, Shape, Tensor
from mace_core.lowering import Lower, Lowering
from mace_core.ops.conv import ClampAttributes, ConvAttributes
from mace_core.ops.windows import Ints, Windows
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS, panel_width
from mace_target_cpu.lower.gemm import (
    BLOCK,
    GEMM,
    block_floats,
    need_f32,
    optional,
    pack,
    pack_at_run_time,
    packed_size,
)
from mace_target_cpu.lower.plain import plain_conv

WINDOWS = KERNELS / "windows.h.in"
GEOMETRY = (
    ("batch", "i32"),
    ("channels", "i32"),
    ("in", "i32[3]"),
    ("out", "i32[3]"),
    ("kernel", "i32[3]"),
    ("stride", "i32[3]"),
    ("dilation", "i32[3]"),
    ("pad", "i32[3]"),
)
CLAMP = (("low", "f32"), ("high", "f32"))
MATRIX = (("results", "i32"), ("group", "i32"), ("panel", "i32"), ("block", "i64"))

CONV = Kernel("conv_f32", KERNELS / "conv.c.in", (*GEOMETRY, *MATRIX, *CLAMP), helpers=(GEMM, WINDOWS))

UNROLLED = ((3, 1), (3, 2), (5, 1), (5, 2))
"""Kernel width and stride for which the depthwise kernel keeps a row of weights in registers."""


@dataclass(frozen=True)
class Filters:
    """How a convolution's filters divide: matrices of [depth, columns], one for each group."""

    group: int
    depth: int
    columns: int

    @classmethod
    def from_node(cls, node: Node, lowering: Lowering) -> Filters:
        """From the node's weights, [O, *kernel, I / group]."""
        w, group = lowering.shape(node.inputs[1]), node.attributes(ConvAttributes).group
        return cls(group, math.prod(w[1:]), w[0] // group)

    @property
    def size(self) -> tuple[int, int, int]:
        """Matrices, and the rows and columns of each."""
        return self.group, self.depth, self.columns


def geometry(x: Tensor, y: Tensor, windows: Windows) -> dict[str, Arg]:
    """Return the arguments of GEOMETRY, absent spatial axes being of size 1."""
    return {
        "batch": x.shape[0],
        "channels": x.shape[-1],
        "in": spatial(x.shape[1:-1]),
        "out": spatial(y.shape[1:-1]),
        "kernel": spatial(windows.kernel),
        "stride": spatial(windows.strides),
        "dilation": spatial(windows.dilations),
        "pad": spatial(windows.before, 0),
    }


def spatial(values: Ints | Shape, absent: int = 1) -> Ints:
    """Return three numbers, with `absent` in front for the axes that are not there."""
    return (absent,) * (3 - len(values)) + tuple(values)


def clamp(node: Node) -> dict[str, Arg]:
    """Return the arguments of CLAMP."""
    attrs = node.attributes(ClampAttributes)
    return {"low": attrs.low, "high": attrs.high}


def conv(node: Node, lowering: Lowering) -> None:
    """Any convolution of f32; of f64 in plain loops."""
    windows = Windows.of(lowering.shape(node.inputs[1])[1:-1], node.attributes(ConvAttributes))
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    # Double precision is rare: plain loops are right, and need no packing.
    if x.dtype is DType.F64:
        plain_conv(node, lowering, GEOMETRY, geometry(x, y, windows))
        return
    need_f32(node, lowering)
    filters = Filters.from_node(node, lowering)
    args = {**geometry(x, y, windows), **clamp(node)}
    if (
        filters.group == x.shape[-1]
        and filters.columns == 1
        and filters.group > 1
        and lowering.constant(node.inputs[1]) is not None
    ):
        _lower_depthwise(node, lowering, args, windows)
        return
    rows = math.prod(y.shape[:-1])
    # Windows of one pixel are x itself: nothing to gather, no scratch.
    direct = set(windows.kernel) | set(windows.strides) == {1} and x.shape[1:-1] == y.shape[1:-1]
    # The block is what one worker gathers at a time; it bounds memory, whatever the image.
    scratch = 0 if direct else block_floats(rows, filters.depth)
    args |= {
        "results": y.shape[-1],
        "group": filters.group,
        "panel": panel_width(lowering),
        "block": scratch or BLOCK,
    }
    reads = [node.inputs[0], _pack_filters(node, lowering, filters), optional(node, 2)]
    lowering.call(node, Call(CONV, args, reads, node.outputs, scratch=4 * scratch))


def _pack_filters(node: Node, lowering: Lowering, filters: Filters) -> str:
    w, panel = node.inputs[1], panel_width(lowering)
    constant = lowering.constant(w)
    if constant is None:
        return pack_at_run_time(node, lowering, w, filters.size, transposed=True)
    matrices = constant.reshape(filters.group, filters.columns, filters.depth).transpose(0, 2, 1)
    shape = packed_size(*filters.size, panel)
    return lowering.once(
        (w, "filters", shape),
        lambda: lowering.weight(f"{w}_packed", shape, "float32", lambda: pack(matrices, panel)),
    )


def _lower_depthwise(node: Node, lowering: Lowering, args: dict[str, Arg], windows: Windows) -> None:
    """One filter for each channel; the weights as [kd][kh][kw][channel]."""
    w = node.inputs[1]
    constant = lowering.constant(w)
    assert constant is not None
    flat = constant.reshape(constant.shape[0], -1)
    packed = lowering.weight(f"{w}_packed", flat.T.shape, "float32", flat.T.copy)
    shape = (windows.kernel[-1], windows.strides[-1])
    # A dilated row reads every second element, which the unrolled taps do not.
    unrolled = shape in UNROLLED and windows.dilations[-1] == 1
    params = {"width": shape[0] if unrolled else 0, "stride": shape[1] if unrolled else 0}
    name = f"conv_depthwise_k{shape[0]}s{shape[1]}_f32" if unrolled else "conv_depthwise_f32"
    kernel = Kernel(name, KERNELS / "conv_depthwise.c.in", (*GEOMETRY, *CLAMP), params)
    lowering.call(node, Call(kernel, args, [node.inputs[0], packed, optional(node, 2)], node.outputs))


LOWERINGS: dict[str, Lower] = {"Conv": conv}
