"""Reductions over axes, and the places of maxima and minima."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from mace_core.emit.text import Code
from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.arg import ArgAttributes
from mace_core.ops.reduce import ReduceAttributes
from mace_core.ops.shapes import axis_of
from mace_target_opencl.lower.rows import RowPass, Rows, enqueue_rows
from mace_target_opencl.lower.unary import wrap_type
from mace_target_opencl.steps import ElementStep
from mace_target_opencl.types import C_TYPES, c_type, integer_literal, refuse_type

MAXIMUM = "a > b || a != a ? a : b"
MINIMUM = "a < b || a != a ? a : b"
"""NaN where either is."""

SUM = "a + b"

FLOAT: Mapping[str, tuple[tuple[RowPass, ...], str]] = {
    "ReduceSum": ((RowPass("total", "float", "0.0f", "v", SUM),), "total"),
    "ReduceMean": ((RowPass("total", "float", "0.0f", "v", SUM),), "mace_divide(total, COUNT)"),
    "ReduceMax": ((RowPass("most", "float", "-INFINITY", "v", MAXIMUM),), "most"),
    "ReduceMin": ((RowPass("least", "float", "INFINITY", "v", MINIMUM),), "least"),
    "ReduceProd": ((RowPass("product", "float", "1.0f", "v", "a * b"),), "product"),
    "ReduceL1": ((RowPass("total", "float", "0.0f", "fabs(v)", SUM),), "total"),
    "ReduceL2": ((RowPass("total", "float", "0.0f", "v * v", SUM),), "sqrt(total)"),
    "ReduceLogSum": ((RowPass("total", "float", "0.0f", "v", SUM),), "log(total)"),
    "ReduceSumSquare": ((RowPass("total", "float", "0.0f", "v * v", SUM),), "total"),
    "ReduceLogSumExp": (
        (
            RowPass("most", "float", "-INFINITY", "v", MAXIMUM),
            # Less the maximum, so that nothing overflows; an infinite one is its own result.
            RowPass("total", "float", "0.0f", "isinf(most) ? 1.0f : exp(v - most)", SUM),
        ),
        "most + log(total)",
    ),
}


def reduce(node: Node, lowering: Lowering) -> None:
    """Any reduction of floats; of integers those without roots and logarithms."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attributes(ReduceAttributes)
    axes = {axis_of(axis, len(x.shape)) for axis in attrs.axes}
    count = prod(x.shape[axis] for axis in axes)
    if x.dtype is DType.F32:
        passes, result = FLOAT[node.op.name]
        rows = Rows(axes, passes, result.replace("COUNT", f"{float(count)!r}f"))
    elif x.dtype in C_TYPES:
        rows = _of_integers(node, x.dtype, axes, count)
    else:
        raise refuse_type(node.op.name, x.dtype)
    enqueue_rows(lowering, node, rows)


def _of_integers(node: Node, dtype: DType, axes: set[int], count: int) -> Rows:
    kind, wrap = str(C_TYPES[dtype]), wrap_type(dtype)
    limits = np.iinfo(dtype.numpy)
    low, high = (integer_literal(int(value), dtype) for value in (limits.min, limits.max))
    is_signed = dtype.value[0] == "i"
    # A mean in 64 bits, as in core's reference: in 32 the sum would wrap before it is divided.
    wide = "long" if is_signed else "ulong"
    magnitude = "v < 0 ? (WRAP)0 - (WRAP)v : (WRAP)v".replace("WRAP", wrap) if is_signed else f"({wrap})v"
    table = {
        "ReduceSum": (RowPass("total", wrap, "0", f"({wrap})v", SUM), "total"),
        "ReduceMean": (RowPass("total", wide, "0", "v", SUM), f"total / {max(1, count)}"),
        "ReduceMax": (RowPass("most", kind, low, "v", "a > b ? a : b"), "most"),
        "ReduceMin": (RowPass("least", kind, high, "v", "a < b ? a : b"), "least"),
        "ReduceProd": (RowPass("product", wrap, "1", f"({wrap})v", "a * b"), "product"),
        "ReduceL1": (RowPass("total", wrap, "0", magnitude, SUM), "total"),
        "ReduceSumSquare": (RowPass("total", wrap, "0", f"({wrap})v * ({wrap})v", SUM), "total"),
    }
    if node.op.name not in table:
        raise refuse_type(node.op.name, dtype)
    entry, result = table[node.op.name]
    return Rows(axes, (entry,), f"({kind})({result})", kind)


def arg(node: Node, lowering: Lowering) -> None:
    """The place of the first or last maximum or minimum; NaN is the maximum and the minimum."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attributes(ArgAttributes)
    kind, is_max = str(c_type(x)), node.op.name == "ArgMax"
    if x.dtype.is_float:
        first = "-INFINITY" if is_max else "INFINITY"
    else:
        limits = np.iinfo(x.dtype.numpy)
        first = str(integer_literal(int(limits.min if is_max else limits.max), x.dtype))
    passes = (
        RowPass("best", kind, first, "v", MAXIMUM if is_max else MINIMUM),
        # numpy, too, returns the place of a NaN where there is one.
        _place("v == best || v != v", attrs.last),
    )
    axis = axis_of(attrs.axis, len(x.shape))
    result = lowering.tensors[node.outputs[0]]
    # No tensor has more elements than an int counts; only the op's result has 64 bits.
    to_result = ElementStep(Code("x"), (None,), c_type(result))
    enqueue_rows(lowering, node, Rows({axis}, passes, "place", "int", steps=(to_result,)))


def _place(condition: str, last: bool) -> RowPass:
    """Return the pass that finds the first or last element for which a condition holds."""
    if last:
        return RowPass("place", "int", "-1", f"{condition} ? (int)k : -1", "max(a, b)")
    return RowPass("place", "int", "INT_MAX", f"{condition} ? (int)k : INT_MAX", "min(a, b)")


LOWERINGS: Mapping[str, Lower] = {**dict.fromkeys(sorted(FLOAT), reduce), "ArgMax": arg, "ArgMin": arg}
