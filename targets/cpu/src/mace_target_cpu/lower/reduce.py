"""Reductions, ArgMax, ArgMin and CumSum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Shape, Tensor
from mace_core.kernel_target import Lower
from mace_core.lowering import Lowering, Refused
from mace_core.ops.arg import ArgAttributes
from mace_core.ops.cumsum import CumulativeAttributes
from mace_core.ops.reduce import ReduceAttributes
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.types import CONVERT, MERGE_AXES, c_type, is_signed, refuse_type, wrap_type

MATH = KERNELS / "math.h.in"
LOOPS = 3
"""Axes that the general kernel loops over, of each kind."""

NEST = (
    ("results", "i64"),
    ("count", "i64"),
    *((n, "i32[3]") for n in ("over", "over_stride", "kept", "kept_stride")),
)


@dataclass(frozen=True)
class Reduction:
    """C expressions: of the running total and a value v, which is *p in the type of the total.

    initial: `least` or `greatest` start at the end of the type's range.
    integers: what integers are added up in: "wrap" (see `wrap_type`), "own" (their type), "long" (64 bits) or
    "double".
    """

    step: str
    final: str = "total"
    initial: str = "0"
    join: str = "total + part"
    integers: str = "wrap"


REDUCTIONS: Mapping[str, Reduction] = {
    "ReduceSum": Reduction("total + v"),
    "ReduceMean": Reduction("total + v", "total / a->count", integers="long"),
    "ReduceMax": Reduction("v > total || v != v ? v : total", initial="least", integers="own"),
    "ReduceMin": Reduction("v < total || v != v ? v : total", initial="greatest", integers="own"),
    "ReduceProd": Reduction("total * v", initial="1"),
    "ReduceL1": Reduction("total + (*p > 0 ? v : 0 - v)"),
    "ReduceL2": Reduction("total + v * v", "sqrt(total)", integers="double"),
    "ReduceLogSum": Reduction("total + v", "log(total)", integers="double"),
    # Equal terms apart: the difference of two infinities is no number.
    "ReduceLogSumExp": Reduction(
        "total == v ? v + 0.69314718055994530942 : total > v ? total + log1p(exp(v - total)) : v + log1p(exp(total - v))",
        initial="-INFINITY",
        integers="double",
    ),
    "ReduceSumSquare": Reduction("total + v * v"),
}

ROWS: Mapping[str, Reduction] = {
    "ReduceSum": Reduction("part + v"),
    "ReduceMean": Reduction("part + v", "total / (float)rows"),
    "ReduceMax": Reduction(
        "vf_select((v > part) | (v != v), v, part)", initial="-INFINITY", join="vf_max(part, total)"
    ),
    "ReduceMin": Reduction(
        "vf_select((v < part) | (v != v), v, part)", initial="INFINITY", join="vf_min(part, total)"
    ),
    "ReduceSumSquare": Reduction("part + v * v"),
}
"""Of vectors, for the reductions that images need."""


def runs(shape: Shape, axes: Sequence[int]) -> list[tuple[bool, int, int]]:
    """Neighbouring axes of one kind merged: (reduced or kept, elements, stride of the last)."""
    merged: list[tuple[bool, int, int]] = []
    for i, dim in enumerate(shape):
        if dim == 1:
            continue
        stride = prod(shape[i + 1 :])
        if merged and merged[-1][0] == (i in axes):
            merged[-1] = (merged[-1][0], merged[-1][1] * dim, stride)
        else:
            merged.append((i in axes, dim, stride))
    return merged


def reduce(node: Node, to: Lowering) -> None:
    """By rows where the innermost axis stays, else by the general loop nest."""
    x, y = to.tensors[node.inputs[0]], to.tensors[node.outputs[0]]
    axes = node.attributes(ReduceAttributes).axes
    merged = runs(x.shape, [a % len(x.shape) for a in axes] if x.shape else [])
    kinds = [reduced for reduced, _, _ in merged]
    if x.dtype is DType.F32 and node.op.name in ROWS and kinds in ([True, False], [False, True, False]):
        _by_rows(node, to, merged)
    else:
        _general(node, to, merged, y)


def _by_rows(node: Node, to: Lowering, merged: list[tuple[bool, int, int]]) -> None:
    sizes = [size for _, size, _ in merged]
    outer, rows, columns = sizes if len(sizes) == LOOPS else (1, *sizes)
    table = ROWS[node.op.name]
    params = {
        "initial": _vector_start(table),
        "step": Code(table.step),
        "join": Code(table.join),
        "final": Code(table.final),
    }
    fields = (("outer", "i32"), ("rows", "i32"), ("columns", "i32"))
    kernel = Kernel(f"{node.op.name.lower()}_rows_f32", KERNELS / "reduce_rows.c.in", fields, params, (MATH,))
    to.call(node, Call(kernel, {"outer": outer, "rows": rows, "columns": columns}, node.inputs, node.outputs))


def _vector_start(table: Reduction) -> Code:
    return Code(table.initial if "INFINITY" in table.initial else f"{table.initial}.0f")


def _general(node: Node, to: Lowering, merged: list[tuple[bool, int, int]], y: Tensor) -> None:
    x = to.tensors[node.inputs[0]]
    table = REDUCTIONS.get(node.op.name)
    if table is None or x.dtype is DType.F16:
        raise refuse_type(node.op.name, x.dtype)
    params = {**_types(x, table), "result": c_type(y), "step": Code(table.step)}
    kernel = Kernel(
        f"{node.op.name.lower()}_{x.dtype.value}", KERNELS / "reduce.c.in", NEST, params, (MATH, CONVERT)
    )
    to.call(node, Call(kernel, nest(merged, x, y), node.inputs, node.outputs))


def nest(merged: list[tuple[bool, int, int]], x: Tensor, y: Tensor) -> dict[str, Arg]:
    """Return the arguments of NEST; Refused for more loops than the kernel has."""
    over, kept = ([(d, s) for reduced, d, s in merged if reduced is kind] for kind in (True, False))
    if max(len(over), len(kept)) > LOOPS:
        reason = f"reduces {len(over)} separate groups of axes and keeps {len(kept)}; the kernels loop over {LOOPS} of each"
        raise Refused(reason, code="shape", remedy=MERGE_AXES)
    sizes: dict[str, Arg] = {"over": _padded(over, 0, 1), "over_stride": _padded(over, 1, 0)}
    sizes |= {"kept": _padded(kept, 0, 1), "kept_stride": _padded(kept, 1, 0)}
    count = x.elements // y.elements if y.elements else 0
    if not x.elements:
        sizes["over"] = (0, 1, 1)
    return {"results": y.elements, "count": count, **sizes}


def _padded(loops: Sequence[tuple[int, int]], part: int, fill: int) -> tuple[int, ...]:
    return (fill,) * (LOOPS - len(loops)) + tuple(loop[part] for loop in loops)


def _types(x: Tensor, table: Reduction) -> dict[str, Code]:
    """The C types of a reduction and its ends: floats add up in double precision, integers as the table says."""
    ctype = c_type(x)
    if x.dtype.is_float:
        starts = {"least": "-INFINITY", "greatest": "INFINITY"}
        initial = Code(starts.get(table.initial, table.initial))
        return {"ctype": ctype, "wide": Code("double"), "initial": initial, "final": Code(table.final)}
    limit, signed = ctype.removesuffix("_t").upper(), is_signed(x.dtype)
    starts = {"least": f"{limit}_MIN" if signed else "0", "greatest": f"{limit}_MAX"}
    wide = {"wrap": wrap_type(x.dtype), "own": ctype, "long": "uint64_t", "double": "double"}[table.integers]
    final = table.final
    if table.integers == "long":  # the mean of nothing is 0, as every division by 0 of integers
        final = f"a->count ? {'(int64_t)total / a->count' if signed else 'total / (uint64_t)a->count'} : 0"
    elif table.integers == "double":
        final = f"mace_to_{ctype}({table.final})"
    return {
        "ctype": ctype,
        "wide": Code(wide),
        "initial": Code(starts.get(table.initial, table.initial)),
        "final": Code(final),
    }


def along(shape: Shape, axis: int) -> dict[str, int]:
    """A tensor as [outer][rows][inner], rows along the axis."""
    axis %= len(shape)
    return {"outer": prod(shape[:axis]), "rows": shape[axis], "inner": prod(shape[axis + 1 :])}


ALONG = (("outer", "i64"), ("rows", "i64"), ("inner", "i64"))


def arg(node: Node, to: Lowering) -> None:
    """ArgMax and ArgMin."""
    x = to.tensors[node.inputs[0]]
    attrs = node.attributes(ArgAttributes)
    params = {"ctype": c_type(x), "greatest": node.op.name == "ArgMax"}
    kernel = Kernel(
        f"{node.op.name.lower()}_{x.dtype.value}", KERNELS / "arg.c.in", (*ALONG, ("last", "i32")), params
    )
    to.call(node, Call(kernel, {**along(x.shape, attrs.axis), "last": int(attrs.last)}, node.inputs, node.outputs))


def running(node: Node, to: Lowering) -> None:
    """CumSum and CumProd: floats in double precision, whole numbers modulo their range."""
    x = to.tensors[node.inputs[0]]
    attrs = node.attributes(CumulativeAttributes)
    wide, join = (
        Code("double" if x.dtype.is_float else "uint64_t"),
        Code("+" if node.op.name == "CumSum" else "*"),
    )
    params = {"ctype": c_type(x), "wide": wide, "join": join}
    fields = (*ALONG, ("exclusive", "i32"), ("reverse", "i32"))
    kernel = Kernel(f"{node.op.name.lower()}_{x.dtype.value}", KERNELS / "cumsum.c.in", fields, params)
    flags = {"exclusive": int(attrs.exclusive), "reverse": int(attrs.reverse)}
    to.call(node, Call(kernel, {**along(x.shape, attrs.axis), **flags}, node.inputs, node.outputs))


LOWERINGS: Mapping[str, Lower] = {
    **dict.fromkeys(REDUCTIONS, reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), arg),
    **dict.fromkeys(("CumSum", "CumProd"), running),
}
