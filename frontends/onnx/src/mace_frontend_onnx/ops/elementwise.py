"""Operators that work on each element by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import DType
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.model_file import element_type
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler

UNARY = (
    *("Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "Sqrt", "Reciprocal", "Exp", "Log", "Erf"),
    *("IsNaN", "Not", "BitwiseNot"),
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
"""Operators -> attributes that the IR's op of the same name has as well."""

VARIADIC: Mapping[str, str] = MappingProxyType({"Sum": "Add", "Max": "Maximum", "Min": "Minimum"})
"""Operators of any number of inputs -> the IR's op of two."""


def _unary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0)])


def _binary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0), node.input(1)])


def _with_attributes(op: str, names: Sequence[str]) -> Handler:
    return lambda node: node.done(op, [node.input(0)], {name: node.attr(name) for name in names})


def _variadic(op: str) -> Handler:
    def handle(node: OnnxNode) -> Sequence[Result]:
        *first, last = node.inputs()
        if not first:
            return [last]
        total = first[0]
        for tensor in first[1:]:
            total = node.emit(op, [total, tensor], tag="partial")
        return node.done(op, [total, last])

    return handle


def _mean(node: OnnxNode) -> Sequence[Result]:
    total, *rest = node.inputs()
    if not rest:
        return [total]
    for tensor in rest:
        total = node.emit("Add", [total, tensor], tag="partial")
    return node.done("Div", [total, node.add_constant(node.input_count, node.dtype(0), "count")])


def _clip_limit(node: OnnxNode, index: int, attr: str) -> float | None:
    """Return a limit of Clip that is known when the model is read; None for no limit."""
    # Clip: limits are attributes before operator set 11 and optional inputs from then on.
    if node.opset < 11:
        value = node.attr(attr)
        return None if value is None else float(value)
    return float(node.constant(index, attr).reshape(())) if node.has(index) else None


def _clip(node: OnnxNode) -> Sequence[Result]:
    present = [i for i in (1, 2) if node.has(i)]
    has_computed_limit = node.opset >= 11 and not all(map(node.is_constant, present))
    # The IR's Clip has limits of single precision, which do not hold every integer.
    if has_computed_limit or not node.dtype(0).is_float:
        return _clip_by_tensors(node)
    low, high = _clip_limit(node, 1, "min"), _clip_limit(node, 2, "max")
    # Clip, operator set 13: where min is above max, every element becomes max.
    if low is not None and high is not None and low > high:
        low = high
    limits = {"min": -np.inf if low is None else low, "max": np.inf if high is None else high}
    return node.done("Clip", [node.input(0)], limits)


def _clip_by_tensors(node: OnnxNode) -> Sequence[Result]:
    # Maximum with the lower limit comes first, so that the upper one wins where they cross.
    steps = [(op, node.input(i)) for i, op in ((1, "Maximum"), (2, "Minimum")) if node.has(i)]
    tensor = node.input(0)
    for op, limit in steps[:-1]:
        tensor = node.emit(op, [tensor, limit], tag="bound")
    return node.done(steps[-1][0], [tensor, steps[-1][1]]) if steps else [tensor]


def _cast(node: OnnxNode) -> Sequence[Result]:
    return _cast_to(node, element_type(node.attr("to")))


def _cast_like(node: OnnxNode) -> Sequence[Result]:
    return _cast_to(node, node.dtype(1))


def _cast_to(node: OnnxNode, dtype: DType) -> Sequence[Result]:
    if node.dtype(0) is dtype:
        return [node.input(0)]
    return node.done("Cast", [node.input(0)], {"to": dtype.value})


def _bit_cast(node: OnnxNode) -> Sequence[Result]:
    dtype = element_type(node.attr("to"))
    if not node.is_constant(0):
        raise RefusedError("its input is computed at run time; export the model with a constant")
    return [node.derive_constant(0, dtype, lambda a: a.view(dtype.numpy))]


def _pow(node: OnnxNode) -> Sequence[Result]:
    """Compute x ** y in the type of x."""
    base, power = node.input(0), node.input(1)
    result_type, power_type = node.dtype(0), node.dtype(1)
    # Pow: from operator set 12 on the types may differ, and the result has that of x.
    if result_type is power_type:
        return node.done("Pow", [base, power])
    if power_type.is_float and not result_type.is_float:
        # An integer to a broken power is rounded once, at the end, as ONNX Runtime does.
        base = node.emit("Cast", [base], {"to": power_type.value}, tag="base")
        result = node.emit("Pow", [base, power], tag="result")
        return node.done("Cast", [result], {"to": result_type.value})
    power = node.emit("Cast", [power], {"to": result_type.value}, tag="power")
    return node.done("Pow", [base, power])


def _mod(node: OnnxNode) -> Sequence[Result]:
    # Mod: fmod=1 takes the sign of the dividend as C does, 0 that of the divisor as Python does.
    return node.done("Mod", [node.input(0), node.input(1)], {"fmod": bool(node.attr("fmod"))})


def _bit_shift(node: OnnxNode) -> Sequence[Result]:
    return node.done("BitShift", [node.input(0), node.input(1)], {"left": node.attr("direction") == "LEFT"})


def _where(node: OnnxNode) -> Sequence[Result]:
    return node.done("Where", [node.input(0), node.input(1), node.input(2)])


def _is_inf(node: OnnxNode) -> Sequence[Result]:
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
