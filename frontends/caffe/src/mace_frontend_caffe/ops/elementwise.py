"""Layers that work on each element by itself, or on channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array
from mace_frontend_caffe.node import Node
from mace_frontend_caffe.ops import Handler

UNARY: Mapping[str, str] = MappingProxyType(
    {
        "Sigmoid": "Sigmoid",
        "TanH": "Tanh",
        "AbsVal": "Abs",
        "BNLL": "Softplus",
        "Mish": "Mish",
        "Gelu": "Gelu",
        "GELU": "Gelu",
        "HSwish": "HardSwish",
        "HardSwish": "HardSwish",
        "Dropout": "Identity",
    }
)


def _unary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input()])


def _relu(node: Node) -> Sequence[str]:
    slope = node.layer.relu_param.negative_slope
    return node.done("LeakyRelu", [node.input()], {"alpha": slope}) if slope else node.done("Relu", [node.input()])


def _clip(node: Node) -> Sequence[str]:
    p = node.layer.clip_param
    low, high = (0.0, 6.0) if node.layer.type == "ReLU6" else (p.min if p.HasField("min") else -inf, p.max if p.HasField("max") else inf)
    return node.done("Clip", [node.input()], {"min": low, "max": high})


def along(node: Node, values: Array, axis: int) -> str:
    """A constant shaped to broadcast with the bottom from `axis` on."""
    rank = len(node.shape())
    first = node.axis(axis, rank)
    node.refuse_unless(first + values.ndim <= rank, f"{list(values.shape)} numbers from axis {axis} on")
    return node.weight(values.reshape(*values.shape, *(1,) * (rank - first - values.ndim)), "along")


def _prelu(node: Node) -> Sequence[str]:
    slope = node.blob(0, "slope").reshape(-1)
    return node.done("PRelu", [node.input(), node.weight(slope, "slope") if slope.size == 1 else along(node, slope, 1)])


def _power(node: Node) -> Sequence[str]:
    """(shift + scale * x) ** power."""
    p, x = node.layer.power_param, node.input()
    if p.scale != 1:
        x = node.emit("Mul", [x, node.weight(p.scale, "scale")])
    if p.shift:
        x = node.emit("Add", [x, node.weight(p.shift, "shift")])
    return node.done("Identity", [x]) if p.power == 1 else node.done("Pow", [x, node.weight(p.power, "power")])


def _exponent(node: Node) -> Sequence[str]:
    """Base ** (shift + scale * x); base -1 stands for e."""
    p = node.layer.exp_param
    factor = 1.0 if p.base == -1 else log(p.base)
    x = node.emit("Mul", [node.input(), node.weight(p.scale * factor, "scale")])
    return node.done("Exp", [node.emit("Add", [x, node.weight(p.shift * factor, "shift")])])


def _logarithm(node: Node) -> Sequence[str]:
    """Log to the base of (shift + scale * x); base -1 stands for e."""
    p = node.layer.log_param
    x = node.emit("Mul", [node.input(), node.weight(p.scale, "scale")])
    made = node.emit("Log", [node.emit("Add", [x, node.weight(p.shift, "shift")])])
    return node.done("Mul", [made, node.weight(1.0 if p.base == -1 else 1 / log(p.base), "base")])


def _threshold(node: Node) -> Sequence[str]:
    above = node.emit("Greater", [node.input(), node.weight(node.layer.threshold_param.threshold, "threshold")])
    return node.done("Cast", [above], {"to": "f32"})


def _eltwise(node: Node) -> Sequence[str]:
    p = node.layer.eltwise_param
    kind = p.DESCRIPTOR.fields_by_name["operation"].enum_type.values_by_number[p.operation].name
    op = {"PROD": "Mul", "SUM": "Add", "MAX": "Maximum"}[kind]
    terms = node.inputs()
    node.refuse_unless(len(terms) > 1 and len(p.coeff) in (0, len(terms)), f"{len(p.coeff)} coefficients for {len(terms)} bottoms")
    if kind == "SUM":
        pairs = zip(terms, p.coeff or [1.0] * len(terms), strict=True)
        terms = [t if c == 1 else node.emit("Mul", [t, node.weight(c, "coefficient")]) for t, c in pairs]
    return _chain(node, op, terms)


def _chain(node: Node, op: str, terms: Sequence[str]) -> Sequence[str]:
    total = terms[0]
    for term in terms[1:-1]:
        total = node.emit(op, [total, term])
    return node.done(op, [total, terms[-1]])


def _batch_norm(node: Node) -> Sequence[str]:
    """(x - mean) / sqrt(variance + eps); the third blob is what both were multiplied with."""
    p = node.layer.batch_norm_param
    mean, variance = (node.blob(i, what).reshape(-1).astype(np.float64) for i, what in enumerate(("mean", "variance")))
    factor = float(node.blob(2, "factor").reshape(-1)[0]) if node.blobs > 2 else 1.0
    unit = 1 / factor if factor else 0.0
    scale = 1 / np.sqrt(variance * unit + p.eps)
    x = node.emit("Mul", [node.input(), along(node, scale, 1)], tag="scaled")
    return node.done("Add", [x, along(node, -mean * unit * scale, 1)])


def _scale(node: Node) -> Sequence[str]:
    p, x = node.layer.scale_param, node.input()
    if node.count > 1:
        other = node.shape(1)
        first = node.axis(p.axis, len(node.shape()))
        wide = (*(1,) * first, *other, *(1,) * (len(node.shape()) - first - len(other)))
        return node.done("Mul", [x, node.emit("Reshape", [node.input(1)], {"shape": wide})])
    scale = node.blob(0, "scale")
    if not p.bias_term:
        return node.done("Mul", [x, along(node, scale, p.axis)])
    return node.done("Add", [node.emit("Mul", [x, along(node, scale, p.axis)]), along(node, node.blob(1, "bias"), p.axis)])


def _bias(node: Node) -> Sequence[str]:
    if node.count > 1:
        return node.done("Add", node.inputs())
    return node.done("Add", [node.input(), along(node, node.blob(0, "bias"), node.layer.bias_param.axis)])


def _axpy(node: Node) -> Sequence[str]:
    """A scale for each channel times the second bottom, plus the third."""
    shape = node.shape(0)
    scale = node.emit("Reshape", [node.input(0)], {"shape": (*shape[:2], *(1,) * (len(node.shape(1)) - 2))}, tag="scale")
    return node.done("Add", [node.emit("Mul", [scale, node.input(1)]), node.input(2)])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _unary(op) for name, op in UNARY.items()},
        "ReLU": _relu,
        "ReLU6": _clip,
        "Clip": _clip,
        "ELU": lambda node: node.done("Elu", [node.input()], {"alpha": node.layer.elu_param.alpha}),
        "Swish": lambda node: node.done("Swish", [node.input()], {"alpha": node.layer.swish_param.beta}),
        "HardSigmoid": lambda node: node.done("HardSigmoid", [node.input()], {"alpha": 1 / 6, "beta": 0.5}),
        "HSigmoid": lambda node: node.done("HardSigmoid", [node.input()], {"alpha": 1 / 6, "beta": 0.5}),
        "PReLU": _prelu,
        "Power": _power,
        "Exp": _exponent,
        "Log": _logarithm,
        "Threshold": _threshold,
        "Eltwise": _eltwise,
        "Add": lambda node: _chain(node, "Add", node.inputs()),
        "BatchNorm": _batch_norm,
        "Scale": _scale,
        "Bias": _bias,
        "Axpy": _axpy,
        "MatMul": lambda node: node.done("MatMul", node.inputs()),
    }
)
