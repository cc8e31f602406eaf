"""Arithmetic, comparison and logic, element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

UNARY: Mapping[str, str] = MappingProxyType(
    {
        "ABS": "Abs",
        "NEG": "Neg",
        "CEIL": "Ceil",
        "FLOOR": "Floor",
        "ROUND": "Round",
        "SQRT": "Sqrt",
        "RSQRT": "Rsqrt",
        "EXP": "Exp",
        "LOG": "Log",
        "SIN": "Sin",
        "COS": "Cos",
        "SIGN": "Sign",
        "LOGICAL_NOT": "Not",
    }
)
BINARY: Mapping[str, str] = MappingProxyType(
    {
        "MAXIMUM": "Maximum",
        "MINIMUM": "Minimum",
        "POW": "Pow",
        "FLOOR_MOD": "Mod",
        "EQUAL": "Equal",
        "LESS": "Less",
        "LESS_EQUAL": "LessEqual",
        "GREATER": "Greater",
        "GREATER_EQUAL": "GreaterEqual",
        "LOGICAL_AND": "And",
        "LOGICAL_OR": "Or",
        "BITWISE_XOR": "BitwiseXor",
    }
)
WITH_ACTIVATION: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "ADD": ("Add", "AddOptions"),
        "SUB": ("Sub", "SubOptions"),
        "MUL": ("Mul", "MulOptions"),
        "DIV": ("Div", "DivOptions"),
    }
)


def _unary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0)])


def _binary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0), node.input(1)])


def _with_activation(op: str, kind: str) -> Handler:
    def handle(node: TfliteNode) -> Sequence[str]:
        function = node.options(kind).FusedActivationFunction()
        return node.done_with_activation(op, [node.input(0), node.input(1)], {}, function)

    return handle


def _not_equal(node: TfliteNode) -> Sequence[str]:
    return node.done("Not", [node.emit("Equal", [node.input(0), node.input(1)])])


def _right_shift(node: TfliteNode) -> Sequence[str]:
    return node.done("BitShift", [node.input(0), node.input(1)], {"left": False})


def _square(node: TfliteNode) -> Sequence[str]:
    return node.done("Mul", [node.input(0), node.input(0)])


def _squared_difference(node: TfliteNode) -> Sequence[str]:
    difference = node.emit("Sub", [node.input(0), node.input(1)])
    return node.done("Mul", [difference, difference])


def _add_n(node: TfliteNode) -> Sequence[str]:
    *first, last = node.inputs()
    if not first:
        return [last]
    total = first[0]
    for term in first[1:]:
        total = node.emit("Add", [total, term])
    return node.done("Add", [total, last])


def _floor_div(node: TfliteNode) -> Sequence[str]:
    """Add floor(x / y)."""
    x, y = node.input(0), node.input(1)
    if node.tensor(x).real.dtype.is_float:
        return node.done("Floor", [node.emit("Div", [x, y])])
    # The IR's Div of integers truncates towards 0, its Mod has the sign of the divisor: without the remainder
    # the division leaves none, and both ways of rounding agree.
    return node.done("Div", [node.emit("Sub", [x, node.emit("Mod", [x, y], tag="rest")]), y])


def _cast(node: TfliteNode) -> Sequence[str]:
    """Add a cast, of a quantized tensor from its stored integers: the kernel does not look at the scale."""
    target = node.output().dtype
    node.require_supported(target is not None, f"its result is of type {node.output().kind}")
    assert target is not None
    return node.done("Cast", [node.stored_integers(0)], {"to": target.value})


def _select(node: TfliteNode) -> Sequence[str]:
    condition, x, y = node.inputs()
    rank = len(node.shape(1))
    # The older operator takes a vector as one condition for each row; SELECT_V2 broadcasts it along the last
    # axis.
    if node.operator.code == "SELECT" and len(node.shape(0)) == 1 and rank > 1:
        shape = (node.shape(0)[0], *(1,) * (rank - 1))
        condition = node.emit("Reshape", [condition], {"shape": shape}, tag="rows")
    return node.done("Where", [condition, x, y])


def _quantize(node: TfliteNode) -> Sequence[str]:
    node.refuse_unless(node.storage() is not None, "its result has no scale; convert the model again")
    return node.done("Quantize", [node.input(0)])


def _dequantize(node: TfliteNode) -> Sequence[str]:
    tensor = node.stored_input(0)
    if node.tensor(tensor).quant:
        return node.done("Dequantize", [tensor])
    # Weights of half precision are stored with this operator behind them (float16 quantization).
    return node.done("Cast", [tensor], {"to": DType.F32.value})


def _fake_quant(node: TfliteNode) -> Sequence[str]:
    """Add rounding to the steps between min and max."""
    options = node.options("FakeQuantOptions")
    minimum, maximum = float(options.Min()), float(options.Max())
    levels = (1 << options.NumBits()) - 1 - int(options.NarrowRange())
    node.require_consistent(
        maximum > minimum and levels > 0, f"it rounds to a range from {minimum} to {maximum}"
    )
    step = np.float32((maximum - minimum) / levels)
    # TensorFlow moves the range by less than a step so that 0 is exactly one of the steps
    # (NudgeQuantizationRange).
    zero = np.clip(np.floor(np.float32(-minimum) / step + np.float32(0.5)), 0, levels)
    low, high = np.float32(-zero * step), np.float32((levels - zero) * step)
    limited = node.emit("Clip", [node.input(0)], {"min": float(low), "max": float(high)}, tag="limited")
    # The kernel counts steps from the lower bound and rounds halves up (FakeQuantizeArray); the IR's Round
    # takes them to the even step.
    lowest, scale = node.add_constant(low, tag="lowest"), node.add_constant(step, tag="step")
    above = node.emit("Sub", [limited, lowest], tag="above")
    steps = node.emit("Mul", [above, node.add_constant(np.float32(1) / step, tag="inverse")], tag="steps")
    shifted = node.emit("Add", [steps, node.add_constant(np.float32(0.5), tag="half")], tag="shifted")
    rounded = node.emit("Mul", [node.emit("Floor", [shifted], tag="rounded"), scale], tag="scaled")
    return node.done("Add", [rounded, lowest])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _unary(op) for name, op in UNARY.items()},
        **{name: _binary(op) for name, op in BINARY.items()},
        **{name: _with_activation(op, kind) for name, (op, kind) in WITH_ACTIVATION.items()},
        "NOT_EQUAL": _not_equal,
        "RIGHT_SHIFT": _right_shift,
        "SQUARE": _square,
        "SQUARED_DIFFERENCE": _squared_difference,
        "ADD_N": _add_n,
        "FLOOR_DIV": _floor_div,
        "CAST": _cast,
        "SELECT": _select,
        "SELECT_V2": _select,
        "QUANTIZE": _quantize,
        "DEQUANTIZE": _dequantize,
        "FAKE_QUANT": _fake_quant,
    }
)
