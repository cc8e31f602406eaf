"""Convolution: by the packed matrix kernel, or channel by channel where it is depthwise."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.ir import DType, Node
from mace_core.kernel_target import Lower
from mace_core.program import Arg, Kernel, Lowering, Refused
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.packing import Packing, packed, packed_bias

GEMM = KERNELS / "gemm.h.in"
AXES = 3
"""Spatial axes that the kernels loop over; absent ones count 1."""

BLOCK_BYTES = 128 * 1024
"""Of gathered rows that are multiplied at a time: about half of a second-level cache."""

ROW_STEP = 24
"""Rows of a block are a multiple of it where possible: of every level's tile."""

GEOMETRY = (
    ("in", "i32[4]"),
    ("out", "i32[3]"),
    *((name, "i32[3]") for name in ("kernel", "stride", "pad", "dilation")),
    ("images", "i32"),
    ("low", "f32"),
    ("high", "f32"),
)
CONV = Kernel(
    "conv_f32",
    KERNELS / "conv.c.in",
    (*GEOMETRY, *((n, "i32") for n in ("groups", "group_in", "group_out", "block", "direct"))),
    helpers=(GEMM,),
)
DEPTHWISE = Kernel("depthwise_f32", KERNELS / "depthwise.c.in", GEOMETRY)


def three(values: object, fill: int) -> tuple[int, ...]:
    """Values for each spatial axis, with `fill` for the leading axes that are absent."""
    assert isinstance(values, tuple)
    return (fill,) * (AXES - len(values)) + values


def geometry(node: Node, to: Lowering) -> dict[str, Arg]:
    """The arguments that all window kernels share."""
    x, w, y = to.shape(node.inputs[0]), to.shape(node.inputs[1]), to.shape(node.outputs[0])
    attrs = node.attrs
    low, high = attrs["low"], attrs["high"]
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    return {
        "in": (*three(x[1:-1], 1), x[-1]),
        "out": three(y[1:-1], 1),
        "kernel": three(w[1:-1], 1),
        "stride": three(attrs["strides"], 1),
        "pad": three(attrs["pads_before"], 0),
        "dilation": three(attrs["dilations"], 1),
        "images": x[0],
        "low": float(low),
        "high": float(high),
    }


def need_floats(node: Node, to: Lowering) -> None:
    """Refused unless every operand is float."""
    for name in filter(None, node.inputs):
        if to.tensors[name].dtype is not DType.F32:
            raise Refused(f"{name} is {to.tensors[name].dtype.value}; the kernel computes in f32")


def conv(node: Node, to: Lowering) -> None:
    """Depthwise where every channel stands alone, else the matrix kernel."""
    need_floats(node, to)
    x, w, *bias = node.inputs
    groups = node.attrs["group"]
    assert isinstance(groups, int)
    if groups == to.shape(x)[-1] == to.shape(w)[0] and groups > 1:
        _depthwise(node, to)
        return
    shape = to.shape(w)
    args = geometry(node, to)
    depth, columns = prod(shape[1:]), shape[0] // groups
    direct = groups == 1 and _pointwise(args)
    block = max(BLOCK_BYTES // (4 * depth) // ROW_STEP, 1) * ROW_STEP
    filters = packed(w, Packing(groups, columns, depth, to.panel, columns * depth, depth, 1), node, to)
    start = packed_bias(bias[0] if bias else "", groups, columns, node, to)
    args |= {"groups": groups, "group_in": shape[-1], "group_out": columns, "block": block, "direct": int(direct)}
    scratch = 0 if direct else 4 * depth * min(block, prod(to.shape(node.outputs[0])[1:-1]))
    to.call(node, CONV, args, [x, filters, start], node.outputs, scratch=scratch)


def _pointwise(args: Mapping[str, Arg]) -> bool:
    return args["kernel"] == args["stride"] == (1,) * AXES and args["pad"] == (0,) * AXES and args["out"] == args["in"][:3]  # type: ignore[index]


def _depthwise(node: Node, to: Lowering) -> None:
    x, w, *bias = node.inputs
    channels, taps = to.shape(x)[-1], prod(to.shape(w)[1:])
    filters = packed(w, Packing(1, channels, taps, channels, 0, taps, 1), node, to)
    to.call(node, DEPTHWISE, geometry(node, to), [x, filters, bias[0] if bias else ""], node.outputs)


LOWERINGS: Mapping[str, Lower] = {"Conv": conv}
