"""Reductions, cumulative sums and products, and the indices of extremes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.ir import DType
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.values import OptionalValue

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


def _keepdims(node: TensorFlowNode) -> bool:
    # Operators of version 1 have the one spelling, some later ones the other.
    return node.attr("keep_dims", False) or node.attr("keepdims", False)


def _reduction(op: str) -> Handler:
    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        axes = node.axes(1, node.rank(0))
        # No axes mean no reduction, where in ONNX they mean all axes. A norm over nothing is still the
        # magnitude.
        if not axes and op != "ReduceL2":
            return [node.value(0)]
        return node.done(op, [node.input(0)], {"axes": axes, "keepdims": _keepdims(node)})

    return handle


def _boolean_reduction(op: str) -> Handler:
    """Return a handler for All or Any: the minimum or the maximum of booleans as integers."""

    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        axes = node.axes(1, node.rank(0))
        if not axes:
            return [node.value(0)]
        numbers = node.cast(node.input(0), DType.I32)
        extreme = node.emit(op, [numbers], {"axes": axes, "keepdims": _keepdims(node)}, tag="extreme")
        return node.done("Cast", [extreme], {"to": "bool"})

    return handle


def _arg_extreme(op: str) -> Handler:
    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        axis = node.axis(node.integer(1, "axis") if node.operand_count > 1 else 0, node.rank(0))
        dtype, attrs = node.dtype_attr("output_type", DType.I64), {"axis": axis, "keepdims": False}
        x = node.input(0)
        # The op of the IR compares numbers alone, TensorFlow also booleans.
        x = node.cast(x, DType.U8) if node.dtype(0) is DType.BOOL else x
        if dtype is DType.I64:
            return node.done(op, [x], attrs)
        return node.done("Cast", [node.emit(op, [x], attrs, tag="place")], {"to": dtype.value})

    return handle


def _cumulative(op: str) -> Handler:
    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        attrs = {"exclusive": node.attr("exclusive", False), "reverse": node.attr("reverse", False)}
        return node.done(
            op, [node.input(0)], {"axis": node.axis(node.integer(1, "axis"), node.rank(0)), **attrs}
        )

    return handle


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _reduction(op) for name, op in REDUCTIONS.items()},
        "All": _boolean_reduction("ReduceMin"),
        "Any": _boolean_reduction("ReduceMax"),
        "ArgMax": _arg_extreme("ArgMax"),
        "ArgMin": _arg_extreme("ArgMin"),
        "Cumprod": _cumulative("CumProd"),
        "Cumsum": _cumulative("CumSum"),
    }
)
