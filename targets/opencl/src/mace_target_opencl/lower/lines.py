"""Ops along one axis that each work-item walks: running totals, the best elements, normalized channels."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.cumsum import CumulativeAttributes
from mace_core.ops.lrn import LRNAttributes
from mace_core.ops.shapes import axis_of
from mace_core.ops.topk import TopKAttributes
from mace_target_opencl.enqueue import GROUP, Launch, enqueue
from mace_target_opencl.lower.unary import wrap_type
from mace_target_opencl.types import c_type, literal, need_floats
from mace_target_opencl.views import View, dense


def view_lines(shape: tuple[int, ...], axis: int) -> View:
    """Return where each line along an axis begins."""
    steps = dense(shape)
    return View.of((shape[other], steps[other]) for other in range(len(shape)) if other != axis)


def cumulate(node: Node, lowering: Lowering) -> None:
    """CumSum and CumProd; integers wrap."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attributes(CumulativeAttributes)
    axis, is_sum = axis_of(attrs.axis, len(x.shape)), node.op.name == "CumSum"
    kind = c_type(x)
    lines = x.elements // max(1, x.shape[axis])
    operator = "+" if is_sum else "*"
    wide = str(kind) if x.dtype.is_float else wrap_type(x.dtype)
    constants = {
        "lines": lines,
        "count": x.shape[axis],
        "outer": view_lines(x.shape, axis),
        "step": dense(x.shape)[axis],
        "type": Code(wide),
        "first": 0 if is_sum else 1,
        "join": Code(f"a {operator} v"),
        "reverse": attrs.reverse,
        "exclusive": attrs.exclusive,
    }
    launch = Launch("cumulate", {"x": x.name}, {"y": node.outputs[0]}, (lines,), constants, (GROUP,), ())
    enqueue(lowering, node, launch)


def lrn(node: Node, lowering: Lowering) -> None:
    """Normalize across channels."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attributes(LRNAttributes)
    need_floats(x)
    constants = {
        "count": x.elements,
        "channels": x.shape[-1],
        "size": attrs.size,
        "bias": literal(attrs.bias),
        "scale": literal(attrs.alpha / attrs.size),
        "beta": literal(attrs.beta),
    }
    launch = Launch("lrn", {"x": x.name}, {"y": node.outputs[0]}, (x.elements,), constants, (GROUP,), ())
    enqueue(lowering, node, launch)


def topk(node: Node, lowering: Lowering) -> None:
    """The k best of each line: each element counts those before it."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attributes(TopKAttributes)
    axis = axis_of(attrs.axis, len(x.shape))
    # NaN is larger than every number.
    is_nan = ("(v != v && w == w)", "(w != w && v == v)") if x.dtype is DType.F32 else ("0", "0")
    larger, smaller = f"v > w || {is_nan[0]}", f"v < w || {is_nan[1]}"
    shape = (*x.shape[:axis], attrs.k, *x.shape[axis + 1 :])
    lines = prod(shape[:axis]) * prod(shape[axis + 1 :])
    has_indices = len(node.outputs) > 1 and bool(node.outputs[1])
    constants = {
        "lines": lines,
        "length": x.shape[axis],
        "step": dense(x.shape)[axis],
        "outer": view_lines(x.shape, axis),
        "target": view_lines(shape, axis),
        "type": c_type(x),
        "before": Code(larger if attrs.largest else smaller),
        "behind": Code(smaller if attrs.largest else larger),
        "k": attrs.k,
        "has_indices": has_indices,
    }
    results = {"values": node.outputs[0]}
    if has_indices:
        results["indices"] = node.outputs[1]
    launch = Launch("topk", {"x": x.name}, results, (x.shape[axis], lines), constants, (GROUP, 1))
    enqueue(lowering, node, launch)


LOWERINGS: Mapping[str, Lower] = {"CumSum": cumulate, "CumProd": cumulate, "LRN": lrn, "TopK": topk}
