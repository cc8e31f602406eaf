"""Reductions, sums along an axis, and where extremes are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.ir import DType
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler

REDUCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "Sum": "ReduceSum",
        "Mean": "ReduceMean",
        "Max": "ReduceMax",
        "Min": "ReduceMin",
        "Prod": "ReduceProd",
        "EuclideanNorm": "ReduceL2",
    }
)


def _keep(node: TensorFlowNode) -> bool:
    return node.attr("keep_dims", False) or node.attr("keepdims", False)


def _reduction(op: str) -> Handler:
    def handle(node: TensorFlowNode) -> Sequence[Held]:
        axes = node.axes(1, node.rank(0))
        if not axes and op != "ReduceL2":
            return [node.held(0)]
        return node.done(op, [node.input(0)], {"axes": axes, "keepdims": _keep(node)})

    return handle


def _truth(op: str) -> Handler:
    """All is the least of truth values, any the greatest."""

    def handle(node: TensorFlowNode) -> Sequence[Held]:
        axes = node.axes(1, node.rank(0))
        if not axes:
            return [node.held(0)]
        numbers = node.cast(node.input(0), DType.I32)
        return node.done(
            "Cast",
            [node.emit(op, [numbers], {"axes": axes, "keepdims": _keep(node)}, tag="extreme")],
            {"to": "bool"},
        )

    return handle


def _arg(op: str) -> Handler:
    def handle(node: TensorFlowNode) -> Sequence[Held]:
        axis = node.axis(node.integer(1, "axis") if node.count > 1 else 0, node.rank(0))
        dtype, attrs = node.kind("output_type", DType.I64), {"axis": axis, "keepdims": False}
        x = node.input(0)
        x = node.cast(x, DType.U8) if node.dtype(0) is DType.BOOL else x
        if dtype is DType.I64:
            return node.done(op, [x], attrs)
        return node.done("Cast", [node.emit(op, [x], attrs, tag="place")], {"to": dtype.value})

    return handle


def _running(op: str) -> Handler:
    def handle(node: TensorFlowNode) -> Sequence[Held]:
        attrs = {"exclusive": node.attr("exclusive", False), "reverse": node.attr("reverse", False)}
        return node.done(
            op, [node.input(0)], {"axis": node.axis(node.integer(1, "axis"), node.rank(0)), **attrs}
        )

    return handle


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _reduction(op) for name, op in REDUCTIONS.items()},
        "All": _truth("ReduceMin"),
        "Any": _truth("ReduceMax"),
        "ArgMax": _arg("ArgMax"),
        "ArgMin": _arg("ArgMin"),
        "Cumprod": _running("CumProd"),
        "Cumsum": _running("CumSum"),
    }
)
