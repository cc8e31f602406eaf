"""Operators that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.importer.elementary import atan2_choice, expm1_factors, log1p_choice
from mace_core.ir import DType
from mace_frontend_tensorflow.node import CUT_BEFORE, TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.values import OptionalValue

SAME_UNARY = (
    *("Abs", "Neg", "Ceil", "Floor", "Sign", "Sqrt", "Rsqrt", "Reciprocal", "Exp", "Log", "Erf"),
    *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh"),
    *("Sigmoid", "Relu", "Softsign", "Softplus", "Selu"),
)
"""Operators of one operand that have the same name in the IR."""

UNARY: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in SAME_UNARY},
        "Inv": "Reciprocal",
        "Invert": "BitwiseNot",
        "IsInf": "IsInf",
        "IsNan": "IsNaN",
        "LogicalNot": "Not",
        # Both round halves to even numbers, as the op of the IR does.
        "Rint": "Round",
        "Round": "Round",
    }
)

SAME_BINARY = (
    *("Add", "Sub", "Mul", "Minimum", "Maximum", "Div", "Pow", "Equal", "Less", "LessEqual", "Greater"),
    *("GreaterEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
)
"""Operators of two operands that have the same name in the IR."""

BINARY: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in SAME_BINARY},
        "AddV2": "Add",
        "LogicalAnd": "And",
        "LogicalOr": "Or",
        "RealDiv": "Div",
        # Quotients of integers are cut off in the IR, as in C.
        "TruncateDiv": "Div",
    }
)

SHIFTS: Mapping[str, bool] = MappingProxyType({"LeftShift": True, "RightShift": False})
REMAINDERS: Mapping[str, bool] = MappingProxyType({"FloorMod": False, "Mod": True, "TruncateMod": True})
"""Operator -> whether the remainder has the sign of the dividend, as in C, instead of that of the divisor."""


def _unary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0)])


def _binary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0), node.input(1)])


def _shift(left: bool) -> Handler:
    return lambda node: node.done("BitShift", [node.input(0), node.input(1)], {"left": left})


def _remainder(fmod: bool) -> Handler:
    return lambda node: node.done("Mod", [node.input(0), node.input(1)], {"fmod": fmod})


def _like(node: TensorFlowNode, value: float, index: int = 0) -> str:
    """Add a number in the type of operand `index`."""
    return node.add_constant(value, node.dtype(index), f"{value:g}")


def _square(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return node.done("Mul", [node.input(0), node.input(0)])


def _squared_difference(node: TensorFlowNode) -> Sequence[OptionalValue]:
    difference = node.emit("Sub", [node.input(0), node.input(1)], tag="difference")
    return node.done("Mul", [difference, difference])


def _not_equal(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return node.done("Not", [node.emit("Equal", [node.input(0), node.input(1)], tag="equal")])


def _approximate_equal(node: TensorFlowNode) -> Sequence[OptionalValue]:
    difference = node.emit("Sub", [node.input(0), node.input(1)], tag="difference")
    distance = node.emit("Abs", [difference], tag="distance")
    return node.done("Less", [distance, _like(node, node.attr("tolerance", 1e-5))])


def _relu6(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return node.done("Clip", [node.input(0)], {"min": 0.0, "max": 6.0})


def _elu(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return node.done("Elu", [node.input(0)], {"alpha": 1.0})


def _leaky_relu(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return node.done("LeakyRelu", [node.input(0)], {"alpha": node.attr("alpha", 0.2)})


def _erfc(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return node.done("Sub", [_like(node, 1.0), node.emit("Erf", [node.input(0)], tag="erf")])


def _expm1(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return node.done("Mul", expm1_factors(node, node.input(0)))


def _log1p(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return node.done("Where", log1p_choice(node, node.input(0)))


def _is_finite(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add x - x == 0, which holds unless x is infinite or NaN."""
    difference = node.emit("Sub", [node.input(0), node.input(0)], tag="zero")
    return node.done("Equal", [difference, _like(node, 0.0)])


def _floor_div(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the quotient rounded down.

    Integers go without floats, which are inexact above 2**24: the remainder has the divisor's sign, so that
    the rest of the dividend is what the divisor divides.
    """
    x, y = node.input(0), node.input(1)
    if node.dtype(0).is_float:
        return node.done("Floor", [node.emit("Div", [x, y], tag="ratio")])
    rest = node.emit("Mod", [x, y], tag="rest")
    return node.done("Div", [node.emit("Sub", [x, rest], tag="whole"), y])


def _no_nan(op: str, zero: int) -> Handler:
    """Return a handler whose result is 0 wherever operand `zero` is 0, also for NaN and infinite operands."""

    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        is_zero = node.emit("Equal", [node.input(zero), _like(node, 0.0)], tag="zero")
        none = _like(node, 0.0)
        result = node.emit(op, [node.input(0), node.input(1)], tag="result")
        return node.done("Where", [is_zero, none, result])

    return handle


def _zero_where_first_is(combine: Callable[[TensorFlowNode], str]) -> Handler:
    """Return a handler of a result that is 0 wherever operand 0 is 0.

    Without that x * log(y) and x / y would be NaN for x = y = 0, as in cross entropies.
    """

    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        result = combine(node)
        is_zero = node.emit("Equal", [node.input(0), _like(node, 0.0)], tag="zero")
        return node.done("Where", [is_zero, _like(node, 0.0), result])

    return handle


def _divide(node: TensorFlowNode) -> str:
    return node.emit("Div", [node.input(0), node.input(1)], tag="result")


def _multiply_log(node: TensorFlowNode) -> str:
    log = node.emit("Log", [node.input(1)], tag="log")
    return node.emit("Mul", [node.input(0), log], tag="result")


def _multiply_log1p(node: TensorFlowNode) -> str:
    log = node.emit("Where", log1p_choice(node, node.input(1)), tag="log")
    return node.emit("Mul", [node.input(0), log], tag="result")


def _atan2(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return node.done("Where", atan2_choice(node, node.input(0), node.input(1)))


def _add_n(node: TensorFlowNode) -> Sequence[OptionalValue]:
    first, *rest = node.inputs()
    if not rest:
        return [first]
    for tensor in rest[:-1]:
        first = node.emit("Add", [first, tensor], tag="partial")
    return node.done("Add", [first, rest[-1]])


def _bias_add(node: TensorFlowNode) -> Sequence[OptionalValue]:
    x, bias = node.input(0), node.input(1)
    # A bias belongs to the channels, which broadcast by themselves only if they are the last axis.
    if node.attr("data_format", "NHWC").startswith("NC") and node.rank(0) > 2:
        bias = node.reshape(bias, (*node.shape(1), *(1,) * (node.rank(0) - 2)), "channels")
    return node.done("Add", [x, bias])


def _cast(node: TensorFlowNode) -> Sequence[OptionalValue]:
    dtype = node.dtype_attr("DstT")
    if node.dtype(0) is dtype:
        return [node.input(0)]
    return node.done("Cast", [node.input(0)], {"to": dtype.value})


def _bitcast(node: TensorFlowNode) -> Sequence[OptionalValue]:
    dtype = node.dtype_attr("type")
    if node.dtype(0) is dtype:
        return [node.input(0)]
    # The IR has no op that reads the bits of one type as another.
    array = node.constant(0, "input")
    node.refuse_unless(array.dtype.itemsize == dtype.size, "it changes the number of elements", CUT_BEFORE)
    return [node.result(np.ascontiguousarray(array).view(dtype.numpy))]


def _bucketize(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the number of boundaries, which rise, that an element reaches."""
    boundaries = node.attr("boundaries", (0.0,) * 0)
    node.refuse_unless(bool(boundaries), "it has no boundaries")
    # The boundaries are of single precision, and compared with elements of double precision as they are.
    dtype = DType.F64 if node.dtype(0) is DType.F64 else DType.F32
    column = node.reshape(node.cast(node.input(0), dtype), (*node.shape(0), 1), "column")
    row = node.add_constant(boundaries, dtype, "boundaries")
    reached = node.emit("GreaterEqual", [column, row], tag="reached")
    attrs = {"axes": (node.rank(0),), "keepdims": False}
    return node.done("ReduceSum", [node.cast(reached, DType.I32)], attrs)


def _clip(node: TensorFlowNode) -> Sequence[OptionalValue]:
    low, high = (node.array(i) for i in (1, 2))
    # Clip is what targets fuse into the layer before it; it refuses a minimum above the maximum, which
    # TensorFlow allows and where the minimum wins.
    if node.dtype(0).is_float and low is not None and high is not None and low.size == high.size == 1:
        min_value, max_value = float(low.reshape(())), float(high.reshape(()))
        if min_value <= max_value:
            return node.done("Clip", [node.input(0)], {"min": min_value, "max": max_value})
    below = node.emit("Minimum", [node.input(0), node.input(2)], tag="below")
    return node.done("Maximum", [below, node.input(1)])


def _select(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return node.done("Where", node.inputs())


def _select_rows(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a Select of version 1: a condition of one axis chooses among rows instead of columns."""
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
        "Xdivy": _zero_where_first_is(_divide),
        "Xlog1py": _zero_where_first_is(_multiply_log1p),
        "Xlogy": _zero_where_first_is(_multiply_log),
    }
)
