"""Converts operations that work on each element by itself.

Operands are broadcast from the first axis on: see `NnefNode.align_ranks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from types import MappingProxyType

from mace_frontend_nnef.node import NnefNode
from mace_frontend_nnef.ops import Handler

UNARY: Mapping[str, str] = MappingProxyType(
    {
        "exp": "Exp",
        "log": "Log",
        "sin": "Sin",
        "cos": "Cos",
        "tan": "Tan",
        "sinh": "Sinh",
        "cosh": "Cosh",
        "tanh": "Tanh",
        "asin": "Asin",
        "acos": "Acos",
        "atan": "Atan",
        "asinh": "Asinh",
        "acosh": "Acosh",
        "atanh": "Atanh",
        "abs": "Abs",
        "sign": "Sign",
        "neg": "Neg",
        "not": "Not",
        "floor": "Floor",
        "ceil": "Ceil",
        "sqrt": "Sqrt",
        "rsqrt": "Rsqrt",
        "relu": "Relu",
        "sigmoid": "Sigmoid",
        "softplus": "Softplus",
        "gelu": "Gelu",
        "copy": "Identity",
        "rcp": "Reciprocal",
        "silu": "Swish",
    }
)
"""Operation -> the op of the IR that computes the same.

gelu is exact, x Phi(x): NNEF 1.0.5 leaves the approximation to the implementation.
"""

BINARY: Mapping[str, str] = MappingProxyType(
    {
        "add": "Add",
        "sub": "Sub",
        "mul": "Mul",
        "div": "Div",
        "pow": "Pow",
        "and": "And",
        "or": "Or",
        "lt": "Less",
        "gt": "Greater",
        "le": "LessEqual",
        "ge": "GreaterEqual",
        "eq": "Equal",
        "min": "Minimum",
        "max": "Maximum",
    }
)
"""Operation with operands x and y -> the op of the IR that computes the same."""


def _unary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input("x")])


def _binary(op: str) -> Handler:
    return lambda node: node.done(op, node.align_ranks([node.input("x"), node.input("y")]))


def _not_equal(node: NnefNode) -> Sequence[str]:
    equal = node.emit("Equal", node.align_ranks([node.input("x"), node.input("y")]), tag="equal")
    # Not of Equal: a NaN is unequal to itself, as IEEE 754 defines it.
    return node.done("Not", [equal])


def _select(node: NnefNode) -> Sequence[str]:
    names = ("condition", "true_value", "false_value")
    return node.done("Where", node.align_ranks([node.input(name) for name in names]))


def _clamp(node: NnefNode) -> Sequence[str]:
    """Compute max(min(x, b), a)."""
    low, high = node.literal("a"), node.literal("b")
    # Clip of the IR takes constants only, and does not define what bounds in the wrong order mean.
    if low is not None and high is not None and low <= high:
        return node.done("Clip", [node.input("x")], {"min": low, "max": high})
    x, a, b = node.align_ranks([node.input(name) for name in ("x", "a", "b")])
    return node.done("Maximum", [node.emit("Minimum", [x, b], tag="below"), a])


def _round(node: NnefNode) -> Sequence[str]:
    """Round halves up, as NNEF defines round: floor(x + 0.5); the IR's Round takes halves to even."""
    shifted = node.emit("Add", [node.input("x"), node.add_float(0.5, "half")], tag="moved")
    return node.done("Floor", [shifted])


def square(node: NnefNode, x: str) -> str:
    """Return a tensor times itself."""
    return node.emit("Mul", [x, x], tag="square")


def _sqr(node: NnefNode) -> Sequence[str]:
    # A product of the tensor with itself, which every target has, instead of a power.
    return node.done("Mul", [node.input("x")] * 2)


def _rsqr(node: NnefNode) -> Sequence[str]:
    return node.done("Reciprocal", [square(node, node.input("x"))])


def _log2(node: NnefNode) -> Sequence[str]:
    # The IR has the natural logarithm only.
    natural = node.emit("Log", [node.input("x")], tag="natural")
    return node.done("Mul", [natural, node.add_float(1 / log(2), "factor")])


def _softabs(node: NnefNode) -> Sequence[str]:
    epsilon = node.add_float(node.number("epsilon"), "epsilon")
    return node.done("Sqrt", [node.emit("Add", [square(node, node.input("x")), epsilon], tag="sum")])


def _elu(node: NnefNode) -> Sequence[str]:
    return node.done("Elu", [node.input("x")], {"alpha": node.number("alpha")})


def _selu(node: NnefNode) -> Sequence[str]:
    attrs = {"alpha": node.number("alpha"), "gamma": node.number("lambda")}
    return node.done("Selu", [node.input("x")], attrs)


def _leaky_relu(node: NnefNode) -> Sequence[str]:
    return node.done("LeakyRelu", [node.input("x")], {"alpha": node.number("alpha")})


def _prelu(node: NnefNode) -> Sequence[str]:
    return node.done("PRelu", node.align_ranks([node.input("x"), node.input("alpha")]))


def _add_n(node: NnefNode) -> Sequence[str]:
    first, *rest = node.align_ranks(node.tensor_list("x"))
    if not rest:
        return node.done("Identity", [first])
    for term in rest[:-1]:
        first = node.emit("Add", [first, term], tag="sum")
    return node.done("Add", [first, rest[-1]])


def _cast(node: NnefNode) -> Sequence[str]:
    """Convert to the type that the result is declared with; logical values become 0 and 1."""
    kinds = {"scalar": "f32", "integer": "i64", "logical": "bool"}
    kind = node.operation.dtype
    node.refuse_unless(kind in kinds, f"a cast to {kind!r}")
    return node.done("Cast", [node.input("input")], {"to": kinds[kind]})


def _copy_n(node: NnefNode) -> Sequence[str]:
    x = node.input("x")
    copies: list[str] = []
    for name in node.results():
        copies += node.add("Identity", [x], None, [node.builder.fresh(name)], node.origin)
    return copies


def _min_max_linear_quantize(node: NnefNode) -> Sequence[str]:
    """Round to 2^bits - 1 steps between a minimum and a maximum."""
    return _quantize(node, signed=node.attribute("signed"), symmetric=node.attribute("symmetric"))


def _linear_quantize(node: NnefNode) -> Sequence[str]:
    return _quantize(node, signed=False, symmetric=False)


def _quantize(node: NnefNode, *, signed: bool, symmetric: bool) -> Sequence[str]:
    """Compute what a quantized tensor stands for, in floats, as the specification defines the operation.

    A library does not store the integers: no operation of NNEF computes on them.
    """
    bits = node.integer("bits")
    node.refuse_unless(1 <= bits <= 24, f"{bits} bits; single precision holds 24")
    # Symmetric integers of n bits leave out the lowest, -2^(n-1), and so have one step less.
    steps = node.add_float(2**bits - 1 - int(signed and symmetric), "steps")
    x, low, high = node.align_ranks([node.input(name) for name in ("x", "min", "max")])
    inside = node.emit("Maximum", [node.emit("Minimum", [x, high], tag="below"), low], tag="inside")
    width = node.emit("Sub", [high, low], tag="width")
    share = node.emit("Div", [node.emit("Sub", [inside, low], tag="above"), width], tag="share")
    scaled = node.emit("Mul", [share, steps], tag="scaled")
    number = node.emit("Floor", [node.emit("Add", [scaled, node.add_float(0.5, "half")])], tag="number")
    back = node.emit("Mul", [node.emit("Div", [number, steps], tag="part"), width], tag="back")
    return node.done("Add", [back, low])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _unary(op) for name, op in UNARY.items()},
        **{name: _binary(op) for name, op in BINARY.items()},
        "ne": _not_equal,
        "select": _select,
        "clamp": _clamp,
        "round": _round,
        "sqr": _sqr,
        "rsqr": _rsqr,
        "log2": _log2,
        "softabs": _softabs,
        "elu": _elu,
        "selu": _selu,
        "leaky_relu": _leaky_relu,
        "prelu": _prelu,
        "add_n": _add_n,
        "copy_n": _copy_n,
        "cast": _cast,
        "linear_quantize": _linear_quantize,
        "min_max_linear_quantize": _min_max_linear_quantize,
    }
)
