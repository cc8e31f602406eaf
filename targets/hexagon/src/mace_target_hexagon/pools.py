"""Pools and means of bytes by HVX, with the bits of the CPU's kernels for each rule of `numerics`."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.integer_storage import EIGHT_BITS, need_stored
from mace_core.ir import DType, Node, Tensor
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.ops.reduce import ReduceAttributes
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.fixed_point import pool as fixed_pool
from mace_target_cpu.fixed_point import reduce as fixed_reduce
from mace_target_cpu.fixed_point.rules import LIMITS, MULTIPLIER
from mace_target_cpu.lower import pool as plain_pool
from mace_target_cpu.lower.conv import GEOMETRY
from mace_target_cpu.lower.reduce import runs
from mace_target_cpu.quantized import pool, reduce
from mace_target_hexagon.depthwise import REGISTER
from mace_target_hexagon.isa import KERNELS

WINDOW = (*GEOMETRY, ("after", "i32[3]"), ("count_pad", "i32"))
SINGLE, DIVIDED, FIXED = 0, 1, 2
"""Rules by which kernels/mean_bytes.c.in makes means of sums."""

FIELDS = {
    SINGLE: (
        *(("factor", "f32"), ("divides", "i32"), ("x_zero", "i32")),
        *(("low", "f32"), ("high", "f32"), ("y_zero", "i32")),
    ),
    DIVIDED: (),
    FIXED: (("offset", "i32"), *MULTIPLIER, *LIMITS),
}
WHOLE: Mapping[str, Arg] = {"after": (0, 0, 0), "count_pad": 0}
"""Windows that count what is inside."""


def lower_max(node: Node, lowering: Lowering) -> None:
    """Lower the maxima of windows of bytes."""
    dtype = lowering.tensors[node.inputs[0]].dtype
    if dtype not in EIGHT_BITS:
        raise Refused(f"its elements are {dtype.value}, not bytes", code="dtype")
    plain_pool.max_pool(node, lowering)
    call = lowering.calls.pop()
    out, kernel, stride, dilation = (_triple(call, name) for name in ("out", "kernel", "stride", "dilation"))
    channels = call.args["channels"]
    assert isinstance(channels, int)
    columns = (out[2] - 1) * stride[2] + (kernel[2] - 1) * dilation[2] + 1
    # The last register that is read begins at the last element but one, or before.
    line_bytes = -(-(columns * channels + REGISTER) // REGISTER) * REGISTER
    fields = (*GEOMETRY, ("line_bytes", "i32"))
    params = {"is_signed": dtype is DType.I8}
    vectors = Kernel(f"max_bytes_{dtype.value}", KERNELS / "max_bytes.c.in", fields, params)
    args = {**call.args, "line_bytes": line_bytes}
    lowering.call(node, Call(vectors, args, node.inputs, node.outputs, scratch=line_bytes))


def lower_average(node: Node, lowering: Lowering) -> None:
    """Lower the means of windows, by factors in single precision."""
    _need_bytes(node, lowering)
    pool.average(node, lowering)
    args = dict(lowering.calls.pop().args)
    args.pop("y_type")
    _call(node, lowering, SINGLE, {**args, "divides": 1})


def lower_divided_average(node: Node, lowering: Lowering) -> None:
    """Lower the means of windows, divided as integers."""
    _need_bytes(node, lowering)
    fixed_pool.average(node, lowering)
    _call(node, lowering, DIVIDED, {**lowering.calls.pop().args, **WHOLE})


def lower_mean(node: Node, lowering: Lowering) -> None:
    """Lower a mean or a sum over axes before the last, by a factor in single precision."""
    x, _ = _need_bytes(node, lowering)
    window = _find_rows(node, x)
    reduce.total(node, lowering)
    args = lowering.calls.pop().args
    scaling = {name: args[name] for name in ("factor", "low", "high", "y_zero")}
    zero = x.quant.zero_point[0] if x.quant else 0
    _call(node, lowering, SINGLE, {**window, **scaling, "x_zero": zero, "divides": 0})


def lower_fixed_mean(node: Node, lowering: Lowering) -> None:
    """Lower a mean over axes before the last, by a multiplier and a shift."""
    x, _ = _need_bytes(node, lowering)
    window = _find_rows(node, x)
    fixed_reduce.mean(node, lowering)
    args = lowering.calls.pop().args
    _call(node, lowering, FIXED, {**window, **{name: args[name] for name, _ in FIELDS[FIXED]}})


def estimate(node: Node, lowering: Lowering, level: Level) -> float:
    """Return that an instruction of HVX reads 16 elements, those of small images among them."""
    return lowering.tensors[node.inputs[0]].elements / 16


def merge_axes(args: dict[str, Arg]) -> dict[str, Arg]:
    """Return the geometry with axes merged into the one before where windows see all of them.

    Loops over the elements of a window are longer then.
    """
    return _merge_last_axis(_merge_last_axis(args))


def _merge_last_axis(args: dict[str, Arg]) -> dict[str, Arg]:
    sizes = {name: value for name, value in args.items() if isinstance(value, tuple)}
    width = sizes["in"][2]
    is_whole = sizes["kernel"][2] == width and sizes["out"][2] == 1
    is_dilated = max(sizes["dilation"][1:]) > 1
    has_pads = any((*sizes["pad"][1:], *sizes["after"][1:]))
    if not is_whole or is_dilated or has_pads:
        return args
    merged = dict(args)
    for name, (first, second, _) in sizes.items():
        scale = width if name in ("in", "kernel", "stride") else 1
        # An axis that is not there has one element and no padding.
        absent = 0 if name in ("pad", "after") else 1
        merged[name] = (absent, int(first), int(second * scale))
    return merged


def _find_rows(node: Node, x: Tensor) -> dict[str, Arg]:
    """Return the geometry of a reduction as windows over rows that see all of them; Refused for others."""
    axes = node.attributes(ReduceAttributes).axes
    merged = runs(x.shape, [axis % len(x.shape) for axis in axes])
    kinds = [is_reduced for is_reduced, _, _ in merged]
    sizes = [size for _, size, _ in merged]
    if kinds == [True, False]:
        sizes = [1, *sizes]
    elif kinds != [False, True, False]:
        raise Refused("its last axis does not stay alone behind those that go", code="shape")
    outer, rows, columns = sizes
    ones = (1, 1, 1)
    return {
        "batch": outer,
        "channels": columns,
        "in": (1, 1, rows),
        "out": ones,
        "kernel": (1, 1, rows),
        "stride": ones,
        "dilation": ones,
        "pad": (0, 0, 0),
        **WHOLE,
    }


def _need_bytes(node: Node, lowering: Lowering) -> tuple[Tensor, Tensor]:
    x, y = (need_stored(lowering, name, EIGHT_BITS) for name in (node.inputs[0], node.outputs[0]))
    return x, y


def _call(node: Node, lowering: Lowering, rule: int, args: dict[str, Arg]) -> None:
    x, y = _need_bytes(node, lowering)
    params = {"x_signed": x.dtype is DType.I8, "y_signed": y.dtype is DType.I8, "rule": rule}
    name = f"mean_bytes_{x.dtype.value}_{y.dtype.value}_{('single', 'divided', 'fixed')[rule]}"
    kernel = Kernel(name, KERNELS / "mean_bytes.c.in", (*WINDOW, *FIELDS[rule]), params)
    lowering.call(node, Call(kernel, merge_axes(args), node.inputs, node.outputs))


def _triple(call: Call, name: str) -> tuple[int, int, int]:
    value = call.args[name]
    assert isinstance(value, tuple)
    first, second, third = (int(number) for number in value)
    return first, second, third
