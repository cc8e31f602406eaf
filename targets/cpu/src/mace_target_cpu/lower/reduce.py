"""Reductions, ArgMax, ArgMin and CumSum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Shape, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.arg import ArgAttributes
from mace_core.ops.cumsum import CumulativeAttributes
from mace_core.ops.reduce import ReduceAttributes
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.softmax import ROW
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

    initial: `lowest` or `highest` start at the end of the type's range.
    integers: type in which integers are added up: "wrap" (see `wrap_type`), "own" (their type),
    "long" (64 bits) or "double".
    """

    step: str
    final: str = "total"
    initial: str = "0"
    join: str = "total + part"
    integers: str = "wrap"


REDUCTIONS: Mapping[str, Reduction] = {
    "ReduceSum": Reduction("total + v"),
    "ReduceMean": Reduction("total + v", "total / a->count", integers="long"),
    "ReduceMax": Reduction("v > total || v != v ? v : total", initial="lowest", integers="own"),
    "ReduceMin": Reduction("v < total || v != v ? v : total", initial="highest", integers="own"),
    "ReduceProd": Reduction("total * v", initial="1"),
    "ReduceL1": Reduction("total + (*p > 0 ? v : 0 - v)"),
    "ReduceL2": Reduction("total + v * v", "sqrt(total)", integers="double"),
    "ReduceLogSum": Reduction("total + v", "log(total)", integers="double"),
    # Equal terms apart: the difference of two infinities is no number.
    "ReduceLogSumExp": Reduction(
        "total == v ? v + 0.69314718055994530942"
        " : total > v ? total + log1p(exp(v - total)) : v + log1p(exp(total - v))",
        initial="-INFINITY",
        integers="double",
    ),
    "ReduceSumSquare": Reduction("total + v * v"),
}

ROWS: Mapping[str, Reduction] = {
    "ReduceSum": Reduction("part + v"),
    "ReduceMean": Reduction("part + v", "total / (float)rows"),
    "ReduceMax": Reduction(
        "vf_select((v > part) | (v != v), v, part)",
        initial="-INFINITY",
        join="vf_select((part > total) | (part != part), part, total)",
    ),
    "ReduceMin": Reduction(
        "vf_select((v < part) | (v != v), v, part)",
        initial="INFINITY",
        join="vf_select((part < total) | (part != part), part, total)",
    ),
    "ReduceSumSquare": Reduction("part + v * v"),
}
"""Of vectors, for the reductions that images need."""

EXTREMES = ("ReduceMax", "ReduceMin")
"""Those that give the same in any order of the elements."""

MIN_RUN = 64
"""Elements for which joining the lanes of a vector pays."""


def runs(shape: Shape, axes: Sequence[int]) -> list[tuple[bool, int, int]]:
    """Neighboring axes of one kind merged: (reduced or kept, elements, stride of the last)."""
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


def reduce(node: Node, lowering: Lowering) -> None:
    """By rows where the innermost axis stays, by runs where only it goes, else by the general loop nest."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    axes = node.attributes(ReduceAttributes).axes
    merged = runs(x.shape, [a % len(x.shape) for a in axes] if x.shape else [])
    kinds = [reduced for reduced, _, _ in merged]
    # Where the last axis stays, vectors lie across it: faster than one sum by strides.
    if x.dtype is DType.F32 and node.op.name in ROWS and kinds in ([True, False], [False, True, False]):
        _lower_rows(node, lowering, merged)
    # Sums stay where they add up in double precision; an extreme needs none.
    elif _is_long_extreme(node, x, merged):
        _lower_runs(node, lowering, merged)
    else:
        _lower_general(node, lowering, merged, y)


def _lower_rows(node: Node, lowering: Lowering, merged: list[tuple[bool, int, int]]) -> None:
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
    lowering.call(
        node, Call(kernel, {"outer": outer, "rows": rows, "columns": columns}, node.inputs, node.outputs)
    )


def _is_long_extreme(node: Node, x: Tensor, merged: list[tuple[bool, int, int]]) -> bool:
    if x.dtype is not DType.F32 or node.op.name not in EXTREMES:
        return False
    kinds = [reduced for reduced, _, _ in merged]
    return kinds in ([True], [False, True]) and merged[-1][1] >= MIN_RUN


def _lower_runs(node: Node, lowering: Lowering, merged: list[tuple[bool, int, int]]) -> None:
    sizes = [size for _, size, _ in merged]
    outer, count = sizes if len(sizes) > 1 else (1, *sizes)
    table = ROWS[node.op.name]
    limit = "vf_max" if node.op.name == "ReduceMax" else "vf_min"
    params = {
        "initial": _vector_start(table),
        "step": Code(table.step),
        "one": Code(REDUCTIONS[node.op.name].step),
        "limit": Code(limit),
    }
    fields = (("outer", "i64"), ("count", "i64"))
    kernel = Kernel(f"{node.op.name.lower()}_runs_f32", KERNELS / "reduce_runs.c.in", fields, params, (ROW,))
    lowering.call(node, Call(kernel, {"outer": outer, "count": count}, node.inputs, node.outputs))


def _vector_start(table: Reduction) -> Code:
    return Code(table.initial if "INFINITY" in table.initial else f"{table.initial}.0f")


def _lower_general(node: Node, lowering: Lowering, merged: list[tuple[bool, int, int]], y: Tensor) -> None:
    x = lowering.tensors[node.inputs[0]]
    table = REDUCTIONS.get(node.op.name)
    if table is None or x.dtype is DType.F16:
        raise refuse_type(node.op.name, x.dtype)
    # Compilers warn of an integer compared with itself, which is never NaN.
    step = table.step if x.dtype.is_float else table.step.replace(" || v != v", "")
    params = {**_choose_types(x, table), "result": c_type(y), "step": Code(step)}
    kernel = Kernel(
        f"{node.op.name.lower()}_{x.dtype.value}", KERNELS / "reduce.c.in", NEST, params, (MATH, CONVERT)
    )
    lowering.call(node, Call(kernel, nest(merged, x, y), node.inputs, node.outputs))


def nest(merged: list[tuple[bool, int, int]], x: Tensor, y: Tensor) -> dict[str, Arg]:
    """Return the arguments of NEST; Refused for more loops than the kernel has."""
    over_loops, kept_loops = (
        [(d, s) for reduced, d, s in merged if reduced is kind] for kind in (True, False)
    )
    if max(len(over_loops), len(kept_loops)) > LOOPS:
        reason = (
            f"reduces {len(over_loops)} separate groups of axes and keeps {len(kept_loops)}; "
            f"the kernels loop over {LOOPS} of each"
        )
        raise Refused(reason, code="shape", remedy=MERGE_AXES)
    sizes: dict[str, Arg] = {
        "over": _pad_loops(over_loops, 0, 1),
        "over_stride": _pad_loops(over_loops, 1, 0),
    }
    sizes |= {"kept": _pad_loops(kept_loops, 0, 1), "kept_stride": _pad_loops(kept_loops, 1, 0)}
    count = x.elements // y.elements if y.elements else 0
    # The reduction of nothing is its initial value: no loop, but a result.
    if not x.elements:
        sizes["over"] = (0, 1, 1)
    return {"results": y.elements, "count": count, **sizes}


def _pad_loops(loops: Sequence[tuple[int, int]], part: int, fill: int) -> tuple[int, ...]:
    return (fill,) * (LOOPS - len(loops)) + tuple(loop[part] for loop in loops)


def _choose_types(x: Tensor, table: Reduction) -> dict[str, Code]:
    """The C types of a reduction and its ends.

    Floats add up in double precision, integers as the table says.
    """
    ctype = c_type(x)
    if x.dtype.is_float:
        starts = {"lowest": "-INFINITY", "highest": "INFINITY"}
        initial = Code(starts.get(table.initial, table.initial))
        return {"ctype": ctype, "wide": Code("double"), "initial": initial, "final": Code(table.final)}
    limit, signed = ctype.removesuffix("_t").upper(), is_signed(x.dtype)
    starts = {"lowest": f"{limit}_MIN" if signed else "0", "highest": f"{limit}_MAX"}
    # int64_t would overflow where numpy wraps, hence unsigned; the mean needs the true sum.
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


def split_at_axis(shape: Shape, axis: int) -> dict[str, int]:
    """A tensor as [outer][rows][inner], rows along the axis."""
    axis %= len(shape)
    return {"outer": prod(shape[:axis]), "rows": shape[axis], "inner": prod(shape[axis + 1 :])}


ALONG = (("outer", "i64"), ("rows", "i64"), ("inner", "i64"))


def arg(node: Node, lowering: Lowering) -> None:
    """ArgMax and ArgMin."""
    x = lowering.tensors[node.inputs[0]]
    attrs = node.attributes(ArgAttributes)
    params = {"ctype": c_type(x), "is_float": x.dtype.is_float, "highest": node.op.name == "ArgMax"}
    kernel = Kernel(
        f"{node.op.name.lower()}_{x.dtype.value}", KERNELS / "arg.c.in", (*ALONG, ("last", "i32")), params
    )
    lowering.call(
        node,
        Call(
            kernel, {**split_at_axis(x.shape, attrs.axis), "last": int(attrs.last)}, node.inputs, node.outputs
        ),
    )


def running(node: Node, lowering: Lowering) -> None:
    """CumSum and CumProd: floats in double precision, integers modulo their range."""
    x = lowering.tensors[node.inputs[0]]
    attrs = node.attributes(CumulativeAttributes)
    wide, join = (
        Code("double" if x.dtype.is_float else "uint64_t"),
        Code("+" if node.op.name == "CumSum" else "*"),
    )
    params = {"ctype": c_type(x), "wide": wide, "join": join}
    fields = (*ALONG, ("exclusive", "i32"), ("reverse", "i32"))
    kernel = Kernel(f"{node.op.name.lower()}_{x.dtype.value}", KERNELS / "cumsum.c.in", fields, params)
    flags = {"exclusive": int(attrs.exclusive), "reverse": int(attrs.reverse)}
    lowering.call(
        node, Call(kernel, {**split_at_axis(x.shape, attrs.axis), **flags}, node.inputs, node.outputs)
    )


LOWERINGS: Mapping[str, Lower] = {
    **dict.fromkeys(REDUCTIONS, reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), arg),
    **dict.fromkeys(("CumSum", "CumProd"), running),
}
