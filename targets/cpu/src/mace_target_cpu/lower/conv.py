"""Conv: depthwise ones by a kernel of their own, all others as a matrix product of gathered windows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from mace_core.ir import DType, Node, Shape, Tensor
from mace_core.lowering import Lower, Lowering
from mace_core.ops.conv import ClampAttributes, ConvAttributes
from mace_core.ops.windows import Ints, Windows
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS, packing, panel_width
from mace_target_cpu.lower.gemm import (
    BLOCK,
    GEMM,
    GEMM_TILES,
    MOST_ROWS,
    optional,
    pack,
    pack_at_run_time,
    packed_size,
)
from mace_target_cpu.lower.lines import reads_lines, use_lines
from mace_target_cpu.lower.plain import plain_conv
from mace_target_cpu.lower.types import need_type, operands

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
MATRIX = (("results", "i32"), ("group", "i32"), ("panel", "i32"), ("rows", "i64"), ("form", "i32"))


class WindowForm(IntEnum):
    """Lists the ways in which conv.c.in reads its windows."""

    DIRECT = 0
    RUNS = 1
    GATHER = 2


CONV = Kernel(
    "conv_f32",
    KERNELS / "conv.c.in",
    (*GEOMETRY, *MATRIX, *CLAMP),
    {"gather": WindowForm.GATHER.value, "runs": WindowForm.RUNS.value},
    (*GEMM, GEMM_TILES, WINDOWS),
)

MIN_RUN = 8
"""Floats of the shortest run that is read in place: a tile loads a pointer for each row at its begin."""

MAX_ROWS = 4096
"""Pixels of a task at maximum, since the scratch of a worker holds their pointers."""

DEPTHWISE_ROW = KERNELS / "depthwise_row.h.in"

UNROLLED = ((3, 1), (3, 2), (5, 1), (5, 2))
"""Kernel width and stride for which the depthwise kernel keeps a row of weights in registers."""


@dataclass(frozen=True)
class Filters:
    """Describes how a convolution's filters divide: matrices of [depth, columns], one for each group."""

    group: int
    depth: int
    columns: int

    @classmethod
    def from_node(cls, node: Node, lowering: Lowering) -> Filters:
        """Return how the filters of a node divide; its weights are [O, *kernel, I / group]."""
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
    """Lower any convolution of f32, and one of f64 in plain loops."""
    windows = Windows.of(lowering.shape(node.inputs[1])[1:-1], node.attributes(ConvAttributes))
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    # Double precision is rare: plain loops are right, and need no packing.
    if x.dtype is DType.F64:
        plain_conv(node, lowering, GEOMETRY, geometry(x, y, windows))
        return
    need_type(node, *operands(node, lowering))
    filters = Filters.from_node(node, lowering)
    if is_depthwise(x, filters) and lowering.constant(node.inputs[1]) is not None:
        args = {**geometry(x, y, windows), **clamp(node)}
        _lower_depthwise(node, lowering, args, windows)
        return
    call = multiply_windows(node, lowering, _pack_filters(node, lowering, filters))
    is_narrow = filters.group == 1 and reads_lines(x, y, windows)
    lowering.call(node, use_lines(call) if is_narrow and packing(lowering).reads_lines else call)


def is_depthwise(x: Tensor, filters: Filters) -> bool:
    """Tell whether each channel of x has one filter of its own."""
    return filters.group == x.shape[-1] and filters.columns == 1 and filters.group > 1


def multiply_windows(node: Node, lowering: Lowering, packed: str) -> Call:
    """Return the call of the matrix kernel for a convolution of f32 with packed filters."""
    windows = Windows.of(lowering.shape(node.inputs[1])[1:-1], node.attributes(ConvAttributes))
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    group = node.attributes(ConvAttributes).group
    plan = _plan_windows(x, y, windows, group)
    args = {
        **geometry(x, y, windows),
        **clamp(node),
        "results": y.shape[-1],
        "group": group,
        "panel": panel_width(lowering),
        "rows": plan.rows,
        "form": plan.form.value,
    }
    reads = [node.inputs[0], packed, optional(node, 2)]
    return Call(CONV, args, reads, node.outputs, scratch=plan.scratch)


@dataclass(frozen=True)
class WindowReading:
    """Describes how windows are read.  rows: pixels of a task at maximum.  scratch: bytes of a worker."""

    form: WindowForm
    rows: int
    scratch: int


def _plan_windows(x: Tensor, y: Tensor, windows: Windows, group: int) -> WindowReading:
    rows = max(1, math.prod(y.shape[:-1]))
    inner = x.shape[-1] // group
    # The pixels of a task are read again for each part of the filters, so the second-level cache holds them.
    near = max(MOST_ROWS, min(rows, MAX_ROWS, 2 * BLOCK // x.shape[-1]))
    if set(windows.kernel) | set(windows.strides) == {1} and x.shape[1:-1] == y.shape[1:-1]:
        return WindowReading(WindowForm.DIRECT, near, 0)
    # As windows_split of windows.h.in has it.
    is_contiguous = group == 1 and 1 in (windows.dilations[-1], windows.kernel[-1])
    across = windows.kernel[-1] if is_contiguous else 1
    run, depth = across * inner, math.prod(windows.kernel) * inner
    if run < MIN_RUN:
        gathered = max(min(MOST_ROWS, rows), min(rows, BLOCK // depth))
        return WindowReading(WindowForm.GATHER, gathered, 4 * gathered * depth)
    count = depth // run
    # Of each row of results, so many windows reach over an edge; a task may begin and end within a row.
    edges = _count_edges(x, y, windows) if is_contiguous else 0
    width = y.shape[-2] if len(y.shape) > 2 else 1
    copies = min(near, edges * (-(-near // width) + 1)) * count
    return WindowReading(WindowForm.RUNS, near, 8 * near * count + 4 * run * (1 + copies))


def _count_edges(x: Tensor, y: Tensor, windows: Windows) -> int:
    """Return the windows of a row of results that see columns inside of the input and outside."""
    kernel, size = windows.kernel[-1], x.shape[-2]
    starts = (w * windows.strides[-1] - windows.before[-1] for w in range(y.shape[-2]))
    return sum(start < size and start + kernel > 0 and not 0 <= start <= size - kernel for start in starts)


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
    """Lower a convolution with one filter for each channel; its weights become [kd][kh][kw][channel]."""
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
    kernel = Kernel(name, KERNELS / "conv_depthwise.c.in", (*GEOMETRY, *CLAMP), params, (DEPTHWISE_ROW,))
    lowering.call(node, Call(kernel, args, [node.inputs[0], packed, optional(node, 2)], node.outputs))


LOWERINGS: dict[str, Lower] = {"Conv": conv}
