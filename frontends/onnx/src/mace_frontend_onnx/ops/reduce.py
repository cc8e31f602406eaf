"""Reductions along axes, searches and running sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.ir import DType
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler

REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")


def _reduce(op: str) -> Handler:
    # `axes` is an input from operator set 13 (ReduceSum) or 18 (the others) on, an attribute before.
    since = 13 if op == "ReduceSum" else 18

    def handle(node: OnnxNode) -> Sequence[Result]:
        rank = len(node.shape(0))
        axes = node.ints_since("axes", 1, since)
        if not axes:
            # No axes mean all of them; `noop_with_empty_axes`, which came with the input, makes them mean
            # none.
            does_nothing = node.opset >= since and node.attr("noop_with_empty_axes")
            axes = () if does_nothing else tuple(range(rank))
        axes = tuple(sorted({node.axis(axis, rank) for axis in axes}))
        attrs = {"axes": axes, "keepdims": bool(node.attr("keepdims"))}
        if node.dtype(0) is not DType.BOOL:
            return node.done(op, [node.input(0)], attrs)
        # ReduceMax, ReduceMin: from operator set 20 on they take booleans.
        numbers = node.emit("Cast", [node.input(0)], {"to": "i32"}, tag="numbers")
        # Compared with 0, and not cast back: the maximum of no elements is the lowest number and must be
        # false.
        zero = node.add_constant(0, DType.I32, "zero")
        return node.done("Greater", [node.emit(op, [numbers], attrs), zero])

    return handle


def _search(op: str) -> Handler:
    def handle(node: OnnxNode) -> Sequence[Result]:
        # ArgMax, ArgMin: `select_last_index` exists from operator set 12 on.
        last = node.opset >= 12 and bool(node.attr("select_last_index"))
        attrs = {
            "axis": node.axis(node.attr("axis"), len(node.shape(0))),
            "keepdims": bool(node.attr("keepdims")),
            "last": last,
        }
        return node.done(op, [node.input(0)], attrs)

    return handle


def _cumulate(op: str) -> Handler:
    def handle(node: OnnxNode) -> Sequence[Result]:
        (axis,) = node.ints(1, "axis")
        attrs = {
            "axis": axis,
            "exclusive": bool(node.attr("exclusive")),
            "reverse": bool(node.attr("reverse")),
        }
        return node.done(op, [node.input(0)], attrs)

    return handle


def _top_k(node: OnnxNode) -> Sequence[Result]:
    # TopK: k is an input from operator set 10 on, `largest` exists from 11 on. `sorted` is not read: a sorted
    # result is one of those that sorted=0 allows.
    (k,) = node.ints(1, "k") if node.opset >= 10 else (node.attr("k"),)
    largest = node.opset < 11 or bool(node.attr("largest"))
    return node.done("TopK", [node.input(0)], {"k": k, "axis": node.attr("axis"), "largest": largest})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{f"Reduce{name}": _reduce(f"Reduce{name}") for name in REDUCTIONS},
        "ArgMax": _search("ArgMax"),
        "ArgMin": _search("ArgMin"),
        "CumProd": _cumulate("CumProd"),
        "CumSum": _cumulate("CumSum"),
        "TopK": _top_k,
    }
)
