"""Operations of keras.ops that compute element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.importer.elementary import expm1_factors, log1p_choice
from mace_core.ir import DType
from mace_frontend_keras.network import Ref
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.activation import COMPOSITE, SIMPLE, glu, softmax, squareplus

TYPES: Mapping[str, str] = MappingProxyType(
    {
        # The IR computes in single precision whatever width the model states.
        **dict.fromkeys(("float32", "float16", "bfloat16", "float64", "half"), "f32"),
        "int32": "i32",
        "int64": "i64",
        "bool": "bool",
        "uint8": "u8",
        "int8": "i8",
        "int16": "i16",
        "uint16": "u16",
        "uint32": "u32",
    }
)

UNARY: Mapping[str, str] = MappingProxyType(
    {
        **{
            name: name
            for name in (
                "Ceil",
                "Floor",
                "Round",
                "Sqrt",
                "Rsqrt",
                "Reciprocal",
                "Exp",
                "Log",
                "Sin",
                "Cos",
                "Tan",
                "Sinh",
                "Cosh",
            )
        },
        **{name: name for name in ("Tanh", "Erf", "Sigmoid", "Relu", "Softplus", "Softsign")},
        **{f"Arc{name}": f"A{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    }
)
"""Operations that are one op of floats."""
ANY_TYPE: Mapping[str, str] = MappingProxyType(
    {
        "Absolute": "Abs",
        "Abs": "Abs",
        "Negative": "Neg",
        "Sign": "Sign",
        "LogicalNot": "Not",
        "BitwiseNot": "BitwiseNot",
    }
)
"""Operations that are one op of numbers of any type."""
FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "Relu6": "relu6",
        "Silu": "silu",
        "Selu": "selu",
        "HardSigmoid": "hard_sigmoid",
        "HardSilu": "hard_silu",
        "Mish": "mish",
        "HardTanh": "hard_tanh",
        "LogSigmoid": "log_sigmoid",
        "TanhShrink": "tanh_shrink",
        "SparsePlus": "sparse_plus",
        "SparseSigmoid": "sparse_sigmoid",
    }
)
"""Operations that are activation functions without settings."""
BINARY: Mapping[str, str] = MappingProxyType(
    {
        "Add": "Add",
        "Subtract": "Sub",
        "Multiply": "Mul",
        "Maximum": "Maximum",
        "Minimum": "Minimum",
        "Power": "Pow",
        "Mod": "Mod",
        **{
            name: name
            for name in (
                "Equal",
                "Less",
                "LessEqual",
                "Greater",
                "GreaterEqual",
                "BitwiseAnd",
                "BitwiseOr",
                "BitwiseXor",
            )
        },
        **{f"Logical{name}": name for name in ("And", "Or", "Xor")},
    }
)


def first_operand(node: KerasNode) -> str:
    """Return the tensor that an operation of one tensor reads."""
    return node.operand(node.first_argument())


def _unary(op: str) -> Handler:
    return lambda node: node.done(op, [node.to_float(first_operand(node))])


def _of_any_type(op: str) -> Handler:
    return lambda node: node.done(op, [first_operand(node)])


def _function(name: str) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.to_float(first_operand(node))
        if name not in SIMPLE:
            return COMPOSITE[name](node, x)
        op, attrs = SIMPLE[name]
        return node.done(op, [x], attrs)

    return handle


def operand_pair(node: KerasNode) -> list[str]:
    """Return both operands as tensors of one type."""
    a, b = node.argument(0, "x1", "x", "a"), node.argument(1, "x2", "y", "b")
    return unify_types(node, [a, b])


def unify_types(node: KerasNode, values: Sequence[Any]) -> list[str]:
    """Return operands as tensors of one type: floats if one of them is, else that of the first tensor.

    Python numbers take the type of the tensors, as in Keras and numpy, unless they have a fraction.
    """
    tensors = [node.importer.tensor(value) if isinstance(value, Ref) else None for value in values]
    known = [node.builder.tensors[tensor].dtype for tensor in tensors if tensor]
    common = next((dtype for dtype in known if dtype.is_float), known[0] if known else DType.F32)
    numbers = [value for value in values if not isinstance(value, Ref)]
    if any(np.asarray(number).dtype.kind == "f" for number in numbers):
        common = DType.F32
    operands = [tensor or node.operand(value, common) for tensor, value in zip(tensors, values, strict=True)]
    return [_cast_to(node, operand, common) for operand in operands]


def _cast_to(node: KerasNode, tensor: str, dtype: DType) -> str:
    if node.builder.tensors[tensor].dtype is dtype:
        return tensor
    return node.emit("Cast", [tensor], {"to": dtype.value}, tag="same-type")


def _binary(op: str) -> Handler:
    return lambda node: node.done(op, operand_pair(node))


def _divide(node: KerasNode) -> Sequence[str]:
    # True division: of integers Keras gives floats.
    return node.done("Div", [node.to_float(tensor) for tensor in operand_pair(node)])


def _floor_divide(node: KerasNode) -> Sequence[str]:
    operands = operand_pair(node)
    dtype = node.builder.tensors[operands[0]].dtype
    if dtype.is_float:
        return node.done("Floor", [node.emit("Div", operands)])
    # The IR's Div of integers truncates towards 0, its Mod has the sign of the divisor: without the remainder
    # the division leaves none, and both ways of rounding agree.
    rest = node.emit("Mod", operands, tag="rest")
    return node.done("Div", [node.emit("Sub", [operands[0], rest], tag="whole"), operands[1]])


def _not_equal(node: KerasNode) -> Sequence[str]:
    return node.done("Not", [node.emit("Equal", operand_pair(node))])


def _squared_difference(node: KerasNode) -> Sequence[str]:
    apart = node.emit("Sub", operand_pair(node))
    return node.done("Mul", [apart, apart])


def _square(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    return node.done("Mul", [x, x])


def _scaled_log(base: float) -> Handler:
    return lambda node: node.done(
        "Mul", [node.emit("Log", [node.to_float(first_operand(node))]), node.add_float(1 / log(base))]
    )


def _expm1(node: KerasNode) -> Sequence[str]:
    return node.done("Mul", expm1_factors(node, node.to_float(first_operand(node))))


def _log1p(node: KerasNode) -> Sequence[str]:
    return node.done("Where", log1p_choice(node, node.to_float(first_operand(node))))


def with_settings(op: str, *keys: tuple[str, str, float]) -> Handler:
    """Return the handler of an op of floats whose attributes are settings: (attribute, setting, default)."""

    def handle(node: KerasNode) -> Sequence[str]:
        attrs = {attr: float(node.setting(key, default=default)) for attr, key, default in keys}
        return node.done(op, [node.to_float(first_operand(node))], attrs)

    return handle


def gelu(is_approximate: bool) -> Handler:
    """Return the handler of the operation Gelu, which approximates by default or not."""

    def handle(node: KerasNode) -> Sequence[str]:
        approximate = "tanh" if node.setting("approximate", default=is_approximate) else "none"
        return node.done("Gelu", [node.to_float(first_operand(node))], {"approximate": approximate})

    return handle


def _threshold(node: KerasNode) -> Sequence[str]:
    x = node.to_float(first_operand(node))
    above = node.emit("Greater", [x, node.add_float(float(node.setting("threshold", default=0.0)))])
    default = node.add_float(float(node.setting("default_value", "value", default=0.0)))
    return node.done("Where", [above, x, default])


def _clip(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    low = node.argument(1, "x_min", "clip_value_min")
    high = node.argument(2, "x_max", "clip_value_max")
    dtype = node.builder.tensors[x].dtype
    # The IR's Clip is one of floats between constants; integers and bounds that are tensors take two ops.
    if dtype.is_float and all(bound is None or isinstance(bound, int | float) for bound in (low, high)):
        minimum, maximum = -inf if low is None else float(low), inf if high is None else float(high)
        # In TensorFlow the lower bound wins where they cross, in the IR's op the upper one.
        return node.done("Clip", [x], {"min": minimum, "max": max(minimum, maximum)})
    at_most = node.emit("Minimum", [x, node.operand(high, dtype)])
    return node.done("Maximum", [at_most, node.operand(low, dtype)])


def _softmax(node: KerasNode) -> Sequence[str]:
    return softmax(node, node.to_float(first_operand(node)), node.setting("axis", default=-1))


def _log_softmax(node: KerasNode) -> Sequence[str]:
    x = node.to_float(first_operand(node))
    axis = node.axis(node.setting("axis", default=-1), len(node.shape(x)))
    return node.done("LogSoftmax", [x], {"axis": axis})


def _where(node: KerasNode) -> Sequence[str]:
    condition = first_operand(node)
    if node.builder.tensors[condition].dtype is not DType.BOOL:
        condition = node.emit("Cast", [condition], {"to": "bool"})
    values = unify_types(node, [node.argument(1, "x1", "x"), node.argument(2, "x2", "y")])
    return node.done("Where", [condition, *values])


def _cast(node: KerasNode) -> Sequence[str]:
    dtype = str(node.argument(1, "dtype"))
    node.require_supported(dtype in TYPES, f"it is a cast to {dtype}")
    return node.done("Cast", [first_operand(node)], {"to": TYPES[dtype]})


def _add_all(node: KerasNode) -> Sequence[str]:
    tensors = node.tensors(list(node.call.args))
    total = tensors[0]
    for tensor in tensors[1:-1]:
        total = node.emit("Add", [total, tensor])
    return node.done("Add", [total, tensors[-1]]) if len(tensors) > 1 else node.done("Identity", [total])


OPERATIONS: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _unary(op) for name, op in UNARY.items()},
        **{name: _of_any_type(op) for name, op in ANY_TYPE.items()},
        **{name: _function(function) for name, function in FUNCTIONS.items()},
        **{name: _binary(op) for name, op in BINARY.items()},
        **dict.fromkeys(("Divide", "TrueDivide"), _divide),
        "FloorDivide": _floor_divide,
        "NotEqual": _not_equal,
        "SquaredDifference": _squared_difference,
        "Square": _square,
        "Log2": _scaled_log(2),
        "Log10": _scaled_log(10),
        "Expm1": _expm1,
        "Log1p": _log1p,
        "LeakyRelu": with_settings("LeakyRelu", ("alpha", "negative_slope", 0.2)),
        "Elu": with_settings("Elu", ("alpha", "alpha", 1.0)),
        "Celu": with_settings("Celu", ("alpha", "alpha", 1.0)),
        "SoftShrink": with_settings("Shrink", ("bias", "threshold", 0.5), ("lambd", "threshold", 0.5)),
        "HardShrink": with_settings("Shrink", ("lambd", "threshold", 0.5)),
        "Threshold": _threshold,
        "Squareplus": lambda node: squareplus(
            node, node.to_float(first_operand(node)), float(node.setting("b", default=4))
        ),
        "Glu": lambda node: glu(node, node.to_float(first_operand(node)), node.setting("axis", default=-1)),
        # The operation approximates by default, the activation "gelu" of a layer does not.
        "Gelu": gelu(is_approximate=True),
        "Clip": _clip,
        "Softmax": _softmax,
        "LogSoftmax": _log_softmax,
        "Where": _where,
        "Cast": _cast,
        "AddN": _add_all,
    }
)
HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {f"ops.{name}": handler for name, handler in OPERATIONS.items()}
)
