"""Operators that work on each element by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import DType
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.source import element_type

UNARY = (
    *(
        "Abs",
        "Neg",
        "Ceil",
        "Floor",
        "Round",
        "Sign",
        "Sqrt",
        "Reciprocal",
        "Exp",
        "Log",
        "Erf",
        "IsNaN",
        "Not",
        "BitwiseNot",
    ),
    *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh"),
    *("Sigmoid", "Relu", "HardSwish", "Mish", "Softsign", "Softplus"),
)

SAME_BINARY = ("Add", "Sub", "Mul", "Div", "Equal", "Less", "Greater", "And", "Or", "Xor", "PRelu")
BINARY: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in SAME_BINARY},
        **{name: name for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
        "LessOrEqual": "LessEqual",
        "GreaterOrEqual": "GreaterEqual",
    }
)

WITH_ATTRIBUTES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Elu": ("alpha",),
        "Celu": ("alpha",),
        "Selu": ("alpha", "gamma"),
        "LeakyRelu": ("alpha",),
        "ThresholdedRelu": ("alpha",),
        "HardSigmoid": ("alpha", "beta"),
        "Gelu": ("approximate",),
        "Swish": ("alpha",),
        "Shrink": ("bias", "lambd"),
    }
)

VARIADIC: Mapping[str, str] = MappingProxyType({"Sum": "Add", "Max": "Maximum", "Min": "Minimum"})


def _unary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0)])


def _binary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0), node.input(1)])


def _with_attributes(op: str, names: Sequence[str]) -> Handler:
    return lambda node: node.done(op, [node.input(0)], {name: node.attr(name) for name in names})


def _variadic(op: str) -> Handler:
    def handle(node: OnnxNode) -> Sequence[Held]:
        *first, last = node.inputs()
        if not first:
            return [last]
        total = first[0]
        for tensor in first[1:]:
            total = node.emit(op, [total, tensor], tag="partial")
        return node.done(op, [total, last])

    return handle


def _mean(node: OnnxNode) -> Sequence[Held]:
    first, *rest = node.inputs()
    if not rest:
        return [first]
    for tensor in rest:
        first = node.emit("Add", [first, tensor], tag="partial")
    return node.done("Div", [first, node.add_constant(node.count, node.dtype(0), "count")])


def _bound(node: OnnxNode, index: int, attr: str) -> float | None:
    """A bound of Clip: an attribute before operator set 11, a constant input from then on.

    None for no bound.
    """
    if node.opset < 11:
        value = node.attr(attr)
        return None if value is None else float(value)
    return float(node.constant(index, attr).reshape(())) if node.has(index) else None


def _clip(node: OnnxNode) -> Sequence[Held]:
    runtime = node.opset >= 11 and any(node.has(i) and not node.array_is_constant(i) for i in (1, 2))
    if runtime or not node.dtype(0).is_float:
        return _clip_by_tensors(node)
    low, high = _bound(node, 1, "min"), _bound(node, 2, "max")
    if low is not None and high is not None and low > high:  # ONNX: every element becomes the upper bound
        low = high
    limits = {"min": -np.inf if low is None else low, "max": np.inf if high is None else high}
    return node.done("Clip", [node.input(0)], limits)


def _clip_by_tensors(node: OnnxNode) -> Sequence[Held]:
    steps = [(op, node.input(i)) for i, op in ((1, "Maximum"), (2, "Minimum")) if node.has(i)]
    tensor = node.input(0)
    for op, bound in steps[:-1]:
        tensor = node.emit(op, [tensor, bound], tag="bound")
    return node.done(steps[-1][0], [tensor, steps[-1][1]]) if steps else [tensor]


def _cast(node: OnnxNode) -> Sequence[Held]:
    return _cast_to(node, element_type(node.attr("to")))


def _cast_like(node: OnnxNode) -> Sequence[Held]:
    return _cast_to(node, node.dtype(1))


def _cast_to(node: OnnxNode, dtype: DType) -> Sequence[Held]:
    return (
        [node.input(0)] if node.dtype(0) is dtype else node.done("Cast", [node.input(0)], {"to": dtype.value})
    )


def _bit_cast(node: OnnxNode) -> Sequence[Held]:
    dtype = element_type(node.attr("to"))
    return (
        [node.derived(0, dtype, lambda a: a.view(dtype.numpy))]
        if node.array_is_constant(0)
        else _no_bit_cast()
    )


def _no_bit_cast() -> Sequence[Held]:
    raise RefusedError("its input is computed at run time; export the model with a constant")


def _pow(node: OnnxNode) -> Sequence[Held]:
    """Compute x ** y in the type of x; y may be of another type."""
    base, power = node.input(0), node.input(1)
    kinds = node.dtype(0), node.dtype(1)
    if kinds[0] is kinds[1]:
        return node.done("Pow", [base, power])
    if kinds[0].is_float:
        return node.done("Pow", [base, node.emit("Cast", [power], {"to": kinds[0].value}, tag="power")])
    if kinds[1].is_float:
        base = node.emit("Cast", [base], {"to": kinds[1].value}, tag="base")
        return node.done("Cast", [node.emit("Pow", [base, power], tag="result")], {"to": kinds[0].value})
    return node.done("Pow", [base, node.emit("Cast", [power], {"to": kinds[0].value}, tag="power")])


def _mod(node: OnnxNode) -> Sequence[Held]:
    return node.done("Mod", [node.input(0), node.input(1)], {"fmod": bool(node.attr("fmod"))})


def _bit_shift(node: OnnxNode) -> Sequence[Held]:
    return node.done("BitShift", [node.input(0), node.input(1)], {"left": node.attr("direction") == "LEFT"})


def _where(node: OnnxNode) -> Sequence[Held]:
    return node.done("Where", [node.input(0), node.input(1), node.input(2)])


def _is_inf(node: OnnxNode) -> Sequence[Held]:
    signs = {"negative": bool(node.attr("detect_negative")), "positive": bool(node.attr("detect_positive"))}
    return node.done("IsInf", [node.input(0)], signs)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _unary(name) for name in UNARY},
        **{name: _binary(op) for name, op in BINARY.items()},
        **{name: _with_attributes(name, attributes) for name, attributes in WITH_ATTRIBUTES.items()},
        **{name: _variadic(op) for name, op in VARIADIC.items()},
        "BitCast": _bit_cast,
        "BitShift": _bit_shift,
        "Cast": _cast,
        "CastLike": _cast_like,
        "Clip": _clip,
        "IsInf": _is_inf,
        "Mean": _mean,
        "Mod": _mod,
        "Pow": _pow,
        "Where": _where,
    }
)
