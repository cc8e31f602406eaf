"""Operations of keras.ops that compute element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import DType
from mace_frontend_keras.network import Ref, refs
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.activation import COMPOSITE, SIMPLE, glu, softmax, squareplus

TYPES: Mapping[str, str] = MappingProxyType(
    {
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
SIGNED: Mapping[str, str] = MappingProxyType(
    {
        "Absolute": "Abs",
        "Abs": "Abs",
        "Negative": "Neg",
        "Sign": "Sign",
        "LogicalNot": "Not",
        "BitwiseNot": "BitwiseNot",
    }
)
"""Operations that are one op of whatever they are given."""
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


def first(node: KerasNode) -> str:
    """The tensor that an operation of one is given."""
    given = node.call.args[0] if node.call.args else next(iter(node.call.kwargs.values()), None)
    return node.operand(given)


def _unary(op: str) -> Handler:
    return lambda node: node.done(op, [node.to_float(first(node))])


def _signed(op: str) -> Handler:
    return lambda node: node.done(op, [first(node)])


def _function(name: str) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.to_float(first(node))
        return (
            node.done(SIMPLE[name][0], [x], SIMPLE[name][1]) if name in SIMPLE else COMPOSITE[name](node, x)
        )

    return handle


def pair(node: KerasNode) -> list[str]:
    """Both operands as tensors of one type."""
    a, b = node.argument(0, "x1", "x", "a"), node.argument(1, "x2", "y", "b")
    return unified(node, [a, b])


def unified(node: KerasNode, values: Sequence[Any]) -> list[str]:
    """Operands as tensors of one type: floats if one of them is, else that of the first tensor."""
    tensors = [node.importer.tensor(v) if isinstance(v, Ref) else None for v in values]
    known = [node.builder.tensors[t].dtype for t in tensors if t]
    common = next((k for k in known if k.is_float), known[0] if known else DType.F32)
    if any(not isinstance(v, Ref) and np.asarray(v).dtype.kind == "f" for v in values):
        common = DType.F32
    made = [t or node.operand(v, common) for t, v in zip(tensors, values, strict=True)]
    return [
        t
        if node.builder.tensors[t].dtype is common
        else node.emit("Cast", [t], {"to": common.value}, tag="same-type")
        for t in made
    ]


def _binary(op: str) -> Handler:
    return lambda node: node.done(op, pair(node))


def _divide(node: KerasNode) -> Sequence[str]:
    return node.done("Div", [node.to_float(t) for t in pair(node)])


def _floor_divide(node: KerasNode) -> Sequence[str]:
    operands = pair(node)
    kind = node.builder.tensors[operands[0]].dtype
    down = node.emit("Div", [node.to_float(t) for t in operands])
    if kind.is_float:
        return node.done("Floor", [down])
    return node.done("Cast", [node.emit("Floor", [down])], {"to": kind.value})


def _not_equal(node: KerasNode) -> Sequence[str]:
    return node.done("Not", [node.emit("Equal", pair(node))])


def _squared_difference(node: KerasNode) -> Sequence[str]:
    apart = node.emit("Sub", pair(node))
    return node.done("Mul", [apart, apart])


def _square(node: KerasNode) -> Sequence[str]:
    x = first(node)
    return node.done("Mul", [x, x])


def _scaled_log(base: float) -> Handler:
    return lambda node: node.done(
        "Mul", [node.emit("Log", [node.to_float(first(node))]), node.add_float(1 / log(base))]
    )


def _expm1(node: KerasNode) -> Sequence[str]:
    return node.done("Sub", [node.emit("Exp", [node.to_float(first(node))]), node.add_float(1.0)])


def _log1p(node: KerasNode) -> Sequence[str]:
    return node.done("Log", [node.emit("Add", [node.to_float(first(node)), node.add_float(1.0)])])


def _with(op: str, *keys: tuple[str, str, float]) -> Handler:
    """An op of floats whose attributes are settings: (attribute, setting, default)."""

    def handle(node: KerasNode) -> Sequence[str]:
        attrs = {attr: float(node.setting(key, default=default)) for attr, key, default in keys}
        return node.done(op, [node.to_float(first(node))], attrs)

    return handle


def _gelu(node: KerasNode) -> Sequence[str]:
    approximate = "tanh" if node.setting("approximate", default=True) else "none"
    return node.done("Gelu", [node.to_float(first(node))], {"approximate": approximate})


def _threshold(node: KerasNode) -> Sequence[str]:
    x = node.to_float(first(node))
    above = node.emit("Greater", [x, node.add_float(float(node.setting("threshold", default=0.0)))])
    return node.done(
        "Where", [above, x, node.add_float(float(node.setting("default_value", "value", default=0.0)))]
    )


def _clip(node: KerasNode) -> Sequence[str]:
    x = first(node)
    low, high = (
        node.argument(i, *keys)
        for i, keys in ((1, ("x_min", "clip_value_min")), (2, ("x_max", "clip_value_max")))
    )
    numbers = all(v is None or isinstance(v, int | float) for v in (low, high))
    if numbers and node.builder.tensors[x].dtype.is_float:
        return node.done(
            "Clip",
            [x],
            {"min": -inf if low is None else float(low), "max": inf if high is None else float(high)},
        )
    kind = node.builder.tensors[x].dtype
    return node.done(
        "Minimum", [node.emit("Maximum", [x, node.operand(low, kind)]), node.operand(high, kind)]
    )


def _softmax(node: KerasNode) -> Sequence[str]:
    return softmax(node, node.to_float(first(node)), node.setting("axis", default=-1))


def _log_softmax(node: KerasNode) -> Sequence[str]:
    x = node.to_float(first(node))
    return node.done(
        "LogSoftmax", [x], {"axis": node.axis(node.setting("axis", default=-1), len(node.shape(x)))}
    )


def _where(node: KerasNode) -> Sequence[str]:
    condition = first(node)
    if node.builder.tensors[condition].dtype is not DType.BOOL:
        condition = node.emit("Cast", [condition], {"to": "bool"})
    return node.done(
        "Where", [condition, *unified(node, [node.argument(1, "x1", "x"), node.argument(2, "x2", "y")])]
    )


def _cast(node: KerasNode) -> Sequence[str]:
    wanted = str(node.argument(1, "dtype"))
    node.refuse_unless(wanted in TYPES, f"a cast to {wanted}")
    return node.done("Cast", [first(node)], {"to": TYPES[wanted]})


def _add_all(node: KerasNode) -> Sequence[str]:
    tensors = [node.importer.tensor(ref) for ref in refs(list(node.call.args))]
    total = tensors[0]
    for tensor in tensors[1:-1]:
        total = node.emit("Add", [total, tensor])
    return node.done("Add", [total, tensors[-1]]) if len(tensors) > 1 else node.done("Identity", [total])


OPERATIONS: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _unary(op) for name, op in UNARY.items()},
        **{name: _signed(op) for name, op in SIGNED.items()},
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
        "LeakyRelu": _with("LeakyRelu", ("alpha", "negative_slope", 0.2)),
        "Elu": _with("Elu", ("alpha", "alpha", 1.0)),
        "Celu": _with("Celu", ("alpha", "alpha", 1.0)),
        "SoftShrink": _with("Shrink", ("bias", "threshold", 0.5), ("lambd", "threshold", 0.5)),
        "HardShrink": _with("Shrink", ("lambd", "threshold", 0.5)),
        "Threshold": _threshold,
        "Squareplus": lambda node: squareplus(
            node, node.to_float(first(node)), float(node.setting("b", default=4))
        ),
        "Glu": lambda node: glu(node, node.to_float(first(node)), node.setting("axis", default=-1)),
        "Gelu": _gelu,
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
