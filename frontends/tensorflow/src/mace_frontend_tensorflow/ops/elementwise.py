"""Operators that work on each element by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import pi
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler

UNARY: Mapping[str, str] = MappingProxyType(
    {
        **{
            name: name
            for name in (
                "Abs",
                "Neg",
                "Ceil",
                "Floor",
                "Sign",
                "Sqrt",
                "Rsqrt",
                "Reciprocal",
                "Exp",
                "Log",
                "Erf",
            )
        },
        **{
            name: name
            for name in (
                "Sin",
                "Cos",
                "Tan",
                "Asin",
                "Acos",
                "Atan",
                "Sinh",
                "Cosh",
                "Tanh",
                "Asinh",
                "Acosh",
                "Atanh",
            )
        },
        **{name: name for name in ("Sigmoid", "Relu", "Softsign", "Softplus", "Selu")},
        "Inv": "Reciprocal",
        "Invert": "BitwiseNot",
        "IsInf": "IsInf",
        "IsNan": "IsNaN",
        "LogicalNot": "Not",
        "Rint": "Round",
        "Round": "Round",
    }
)

BINARY: Mapping[str, str] = MappingProxyType(
    {
        **{
            name: name
            for name in (
                "Add",
                "Sub",
                "Mul",
                "Minimum",
                "Maximum",
                "Div",
                "Equal",
                "Less",
                "LessEqual",
                "Greater",
            )
        },
        **{name: name for name in ("GreaterEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Pow")},
        "AddV2": "Add",
        "LogicalAnd": "And",
        "LogicalOr": "Or",
        "RealDiv": "Div",
        "TruncateDiv": "Div",
    }
)

SHIFTS: Mapping[str, bool] = MappingProxyType({"LeftShift": True, "RightShift": False})
REMAINDERS: Mapping[str, bool] = MappingProxyType({"FloorMod": False, "Mod": True, "TruncateMod": True})
"""Operator -> whether the remainder has the sign of the dividend."""


def _unary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0)])


def _binary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0), node.input(1)])


def _shift(left: bool) -> Handler:
    return lambda node: node.done("BitShift", [node.input(0), node.input(1)], {"left": left})


def _remainder(fmod: bool) -> Handler:
    return lambda node: node.done("Mod", [node.input(0), node.input(1)], {"fmod": fmod})


def _like(node: TensorFlowNode, value: float, index: int = 0) -> str:
    """A number of the type of operand `index`."""
    return node.add_constant(value, node.dtype(index), f"{value:g}")


def _square(node: TensorFlowNode) -> Sequence[Held]:
    return node.done("Mul", [node.input(0), node.input(0)])


def _squared_difference(node: TensorFlowNode) -> Sequence[Held]:
    difference = node.emit("Sub", [node.input(0), node.input(1)], tag="difference")
    return node.done("Mul", [difference, difference])


def _not_equal(node: TensorFlowNode) -> Sequence[Held]:
    return node.done("Not", [node.emit("Equal", [node.input(0), node.input(1)], tag="equal")])


def _approximate_equal(node: TensorFlowNode) -> Sequence[Held]:
    difference = node.emit(
        "Abs", [node.emit("Sub", [node.input(0), node.input(1)], tag="difference")], tag="distance"
    )
    return node.done("Less", [difference, _like(node, node.attr("tolerance", 1e-5))])


def _relu6(node: TensorFlowNode) -> Sequence[Held]:
    return node.done("Clip", [node.input(0)], {"min": 0.0, "max": 6.0})


def _elu(node: TensorFlowNode) -> Sequence[Held]:
    return node.done("Elu", [node.input(0)], {"alpha": 1.0})


def _leaky_relu(node: TensorFlowNode) -> Sequence[Held]:
    return node.done("LeakyRelu", [node.input(0)], {"alpha": node.attr("alpha", 0.2)})


def _erfc(node: TensorFlowNode) -> Sequence[Held]:
    return node.done("Sub", [_like(node, 1.0), node.emit("Erf", [node.input(0)], tag="erf")])


def _expm1(node: TensorFlowNode) -> Sequence[Held]:
    """exp(x) - 1 as 2 exp(x / 2) sinh(x / 2), which keeps small numbers exact."""
    half = node.emit("Mul", [node.input(0), _like(node, 0.5)], tag="half")
    product = node.emit(
        "Mul", [node.emit("Exp", [half], tag="exp"), node.emit("Sinh", [half], tag="sinh")], tag="product"
    )
    return node.done("Mul", [product, _like(node, 2.0)])


def _log1p(node: TensorFlowNode) -> Sequence[Held]:
    """log(1 + x) as 2 atanh(x / (2 + x)), which keeps small numbers exact."""
    ratio = node.emit(
        "Div", [node.input(0), node.emit("Add", [node.input(0), _like(node, 2.0)], tag="sum")], tag="ratio"
    )
    return node.done("Mul", [node.emit("Atanh", [ratio], tag="atanh"), _like(node, 2.0)])


def _is_finite(node: TensorFlowNode) -> Sequence[Held]:
    """A number less itself is 0, unless it is infinite or no number."""
    return node.done(
        "Equal", [node.emit("Sub", [node.input(0), node.input(0)], tag="zero"), _like(node, 0.0)]
    )


def _floor_div(node: TensorFlowNode) -> Sequence[Held]:
    """Rounded down; for integers the part that the divisor divides."""
    x, y = node.input(0), node.input(1)
    if node.dtype(0).is_float:
        return node.done("Floor", [node.emit("Div", [x, y], tag="ratio")])
    rest = node.emit("Mod", [x, y], tag="rest")
    return node.done("Div", [node.emit("Sub", [x, rest], tag="whole"), y])


def _no_nan(op: str, zero: int) -> Handler:
    """The result, and 0 wherever operand `zero` is 0."""

    def handle(node: TensorFlowNode) -> Sequence[Held]:
        none = node.emit("Equal", [node.input(zero), _like(node, 0.0)], tag="zero")
        return node.done(
            "Where", [none, _like(node, 0.0), node.emit(op, [node.input(0), node.input(1)], tag="result")]
        )

    return handle


def _logarithmic(op: str, shift: float) -> Handler:
    """The first operand times the logarithm of the second (Mul) or over the second itself (Div), and 0 where it is 0."""

    def handle(node: TensorFlowNode) -> Sequence[Held]:
        second = node.input(1)
        if shift:
            second = node.emit("Add", [second, _like(node, shift)], tag="sum")
        if op == "Mul":
            second = node.emit("Log", [second], tag="log")
        result = node.emit(op, [node.input(0), second], tag="result")
        none = node.emit("Equal", [node.input(0), _like(node, 0.0)], tag="zero")
        return node.done("Where", [none, _like(node, 0.0), result])

    return handle


def _atan2(node: TensorFlowNode) -> Sequence[Held]:
    """The angle of (x, y): that of y / x, half a turn on for negative x towards y's side; 0 for none."""
    y, x, zero = node.input(0), node.input(1), _like(node, 0.0)
    angle = node.emit("Atan", [node.emit("Div", [y, x], tag="slope")], tag="angle")
    negative = node.emit("Less", [y, zero], tag="below")
    turn = node.emit("Where", [negative, _like(node, -pi), _like(node, pi)], tag="turn")
    turned = node.emit(
        "Where",
        [node.emit("Less", [x, zero], tag="left"), node.emit("Add", [angle, turn], tag="turned"), angle],
        tag="side",
    )
    both = node.emit(
        "And",
        [node.emit("Equal", [y, zero], tag="flat"), node.emit("Equal", [x, zero], tag="upright")],
        tag="origin",
    )
    return node.done("Where", [both, zero, turned])


def _add_n(node: TensorFlowNode) -> Sequence[Held]:
    first, *rest = node.inputs()
    if not rest:
        return [first]
    for tensor in rest[:-1]:
        first = node.emit("Add", [first, tensor], tag="partial")
    return node.done("Add", [first, rest[-1]])


def _bias_add(node: TensorFlowNode) -> Sequence[Held]:
    x, bias = node.input(0), node.input(1)
    if node.attr("data_format", "NHWC").startswith("NC") and node.rank(0) > 2:
        bias = node.reshape(bias, (*node.shape(1), *(1,) * (node.rank(0) - 2)), "channels")
    return node.done("Add", [x, bias])


def _cast(node: TensorFlowNode) -> Sequence[Held]:
    dtype = node.kind("DstT")
    return (
        [node.input(0)] if node.dtype(0) is dtype else node.done("Cast", [node.input(0)], {"to": dtype.value})
    )


def _bitcast(node: TensorFlowNode) -> Sequence[Held]:
    dtype = node.kind("type")
    if node.dtype(0) is dtype:
        return [node.input(0)]
    array = node.constant(0, "input")
    node.refuse_unless(array.dtype.itemsize == dtype.size, "it changes the number of elements")
    return [node.result(np.ascontiguousarray(array).view(dtype.numpy))]


def _bucketize(node: TensorFlowNode) -> Sequence[Held]:
    """How many of the boundaries, which rise, a number reaches."""
    boundaries = node.attr("boundaries", (0.0,) * 0)
    node.refuse_unless(bool(boundaries), "it has no boundaries")
    column = node.reshape(node.cast(node.input(0), DType.F32), (*node.shape(0), 1), "column")
    reached = node.emit(
        "GreaterEqual", [column, node.add_constant(boundaries, DType.F32, "boundaries")], tag="reached"
    )
    return node.done(
        "ReduceSum", [node.cast(reached, DType.I32)], {"axes": (node.rank(0),), "keepdims": False}
    )


def _clip(node: TensorFlowNode) -> Sequence[Held]:
    low, high = (node.array(i) for i in (1, 2))
    if node.dtype(0).is_float and low is not None and high is not None and low.size == high.size == 1:
        limits = (float(low.reshape(())), float(high.reshape(())))
        if limits[0] <= limits[1]:
            return node.done("Clip", [node.input(0)], {"min": limits[0], "max": limits[1]})
    return node.done(
        "Maximum", [node.emit("Minimum", [node.input(0), node.input(2)], tag="below"), node.input(1)]
    )


def _select(node: TensorFlowNode) -> Sequence[Held]:
    return node.done("Where", node.inputs())


def _select_rows(node: TensorFlowNode) -> Sequence[Held]:
    """A condition of one axis chooses whole rows."""
    condition = node.input(0)
    if node.rank(0) == 1 and node.rank(1) > 1:
        condition = node.reshape(condition, (node.shape(0)[0], *(1,) * (node.rank(1) - 1)), "rows")
    return node.done("Where", [condition, node.input(1), node.input(2)])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _unary(op) for name, op in UNARY.items()},
        **{name: _binary(op) for name, op in BINARY.items()},
        **{name: _shift(left) for name, left in SHIFTS.items()},
        **{name: _remainder(fmod) for name, fmod in REMAINDERS.items()},
        **dict.fromkeys(("AddN", "AccumulateNV2"), _add_n),
        **dict.fromkeys(("BiasAdd", "BiasAddV1"), _bias_add),
        "ApproximateEqual": _approximate_equal,
        "Atan2": _atan2,
        "Bitcast": _bitcast,
        "Bucketize": _bucketize,
        "Cast": _cast,
        "ClipByValue": _clip,
        "DivNoNan": _no_nan("Div", 1),
        "Elu": _elu,
        "Erfc": _erfc,
        "Expm1": _expm1,
        "FloorDiv": _floor_div,
        "IsFinite": _is_finite,
        "LeakyRelu": _leaky_relu,
        "Log1p": _log1p,
        "MulNoNan": _no_nan("Mul", 1),
        "NotEqual": _not_equal,
        "Relu6": _relu6,
        "Select": _select_rows,
        "SelectV2": _select,
        "Square": _square,
        "SquaredDifference": _squared_difference,
        "Xdivy": _logarithmic("Div", 0.0),
        "Xlog1py": _logarithmic("Mul", 1.0),
        "Xlogy": _logarithmic("Mul", 0.0),
    }
)
