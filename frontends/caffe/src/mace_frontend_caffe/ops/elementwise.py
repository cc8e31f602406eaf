"""Layers that work on each element by itself, or on channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log, prod
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import Array, Shape
from mace_frontend_caffe.node import CaffeNode
from mace_frontend_caffe.ops import Handler

UNARY: Mapping[str, str] = MappingProxyType(
    {
        "Sigmoid": "Sigmoid",
        "TanH": "Tanh",
        "AbsVal": "Abs",
        "BNLL": "Softplus",
        "SoftPlus": "Softplus",
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


def _relu(node: CaffeNode) -> Sequence[str]:
    slope = node.layer.relu_param.negative_slope
    return (
        node.done("LeakyRelu", [node.input()], {"alpha": slope})
        if slope
        else node.done("Relu", [node.input()])
    )


def _clip(node: CaffeNode) -> Sequence[str]:
    p = node.layer.clip_param
    low, high = (
        (0.0, 6.0)
        if node.layer.type == "ReLU6"
        else (p.min if p.HasField("min") else -inf, p.max if p.HasField("max") else inf)
    )
    return node.done("Clip", [node.input()], {"min": low, "max": high})


def along(node: CaffeNode, values: Array, axis: int) -> str:
    """A constant shaped to broadcast with the bottom from `axis` on."""
    rank = len(node.shape())
    first = node.axis(axis, rank)
    return node.add_float(values.reshape(*values.shape, *(1,) * (rank - first - values.ndim)), "along")


def channels(node: CaffeNode) -> Shape:
    """How many channels the bottom has, as a shape; without any axis for them one."""
    return node.shape()[1:2] or (1,)


def _own(node: CaffeNode, index: int, what: str, p: Any) -> str:
    """The layer's blob over `num_axes` axes of the bottom from `axis` on (-1: all), shaped to broadcast with it."""
    shape = node.shape()
    first = node.axis(p.axis, len(shape))
    last = len(shape) if p.num_axes == -1 else first + p.num_axes
    node.refuse_unless(
        first <= last <= len(shape),
        f"{p.num_axes} axes from axis {p.axis} on, of a blob of rank {len(shape)}",
    )
    return along(node, node.fitted(index, what, shape[first:last]), p.axis)


def _bottom(node: CaffeNode, axis: int) -> str:
    """The second bottom, shaped to broadcast with the first from `axis` on."""
    shape, other = node.shape(0), node.shape(1)
    first = node.axis(axis, len(shape))
    fits = shape[first : first + len(other)] == other
    node.refuse_unless(
        fits, f"its second bottom of shape {list(other)} does not lie along {list(shape)} from axis {axis} on"
    )
    wide = (*(1,) * first, *other, *(1,) * (len(shape) - first - len(other)))
    return (
        node.input(1)
        if wide == other
        else node.emit("Reshape", [node.input(1)], {"shape": wide}, tag="along")
    )


def _prelu(node: CaffeNode) -> Sequence[str]:
    if node.layer.prelu_param.channel_shared:
        return node.done("PRelu", [node.input(), node.add_float(node.fitted(0, "slope", (1,)), "slope")])
    return node.done("PRelu", [node.input(), along(node, node.fitted(0, "slope", channels(node)), 1)])


def _power(node: CaffeNode) -> Sequence[str]:
    """(shift + scale * x) ** power."""
    p, x = node.layer.power_param, node.input()
    if p.scale != 1:
        x = node.emit("Mul", [x, node.add_float(p.scale, "scale")])
    if p.shift:
        x = node.emit("Add", [x, node.add_float(p.shift, "shift")])
    return (
        node.done("Identity", [x])
        if p.power == 1
        else node.done("Pow", [x, node.add_float(p.power, "power")])
    )


def _exponent(node: CaffeNode) -> Sequence[str]:
    """Base ** (shift + scale * x); base -1 stands for e."""
    p = node.layer.exp_param
    factor = 1.0 if p.base == -1 else log(p.base)
    x = node.emit("Mul", [node.input(), node.add_float(p.scale * factor, "scale")])
    return node.done("Exp", [node.emit("Add", [x, node.add_float(p.shift * factor, "shift")])])


def _logarithm(node: CaffeNode) -> Sequence[str]:
    """Log to the base of (shift + scale * x); base -1 stands for e."""
    p = node.layer.log_param
    x = node.emit("Mul", [node.input(), node.add_float(p.scale, "scale")])
    made = node.emit("Log", [node.emit("Add", [x, node.add_float(p.shift, "shift")])])
    return node.done("Mul", [made, node.add_float(1.0 if p.base == -1 else 1 / log(p.base), "base")])


def _threshold(node: CaffeNode) -> Sequence[str]:
    above = node.emit(
        "Greater", [node.input(), node.add_float(node.layer.threshold_param.threshold, "threshold")]
    )
    return node.done("Cast", [above], {"to": "f32"})


def _eltwise(node: CaffeNode) -> Sequence[str]:
    p = node.layer.eltwise_param
    op = {"PROD": "Mul", "SUM": "Add", "MAX": "Maximum"}[node.choice(p, "operation")]
    terms = node.inputs()
    node.refuse_unless(
        len(terms) > 1 and len(p.coeff) in (0, len(terms)),
        f"{len(p.coeff)} coefficients for {len(terms)} bottoms",
    )
    shapes = {node.shape(i) for i in range(len(terms))}
    node.refuse_unless(
        len(shapes) == 1,
        f"its bottoms have shapes {', '.join(str(list(s)) for s in sorted(shapes))}; they must be the same",
    )
    if op == "Add":
        pairs = zip(terms, p.coeff or [1.0] * len(terms), strict=True)
        terms = [t if c == 1 else node.emit("Mul", [t, node.add_float(c, "coefficient")]) for t, c in pairs]
    return _chain(node, op, terms)


def _chain(node: CaffeNode, op: str, terms: Sequence[str]) -> Sequence[str]:
    node.refuse_unless(len(terms) > 1, "it has one bottom; it needs two")
    total = terms[0]
    for term in terms[1:-1]:
        total = node.emit(op, [total, term])
    return node.done(op, [total, terms[-1]])


def _batch_norm(node: CaffeNode) -> Sequence[str]:
    """(x - mean) / sqrt(variance + eps); the third blob is what both were multiplied with."""
    p, wide = node.layer.batch_norm_param, channels(node)
    if not p.use_global_stats:
        return _of_batch(node, p.eps)
    mean, variance = (
        node.fitted(i, what, wide).astype(np.float64) for i, what in enumerate(("mean", "variance"))
    )
    factor = float(node.fitted(2, "factor", (1,))[0]) if node.blobs > 2 else 1.0
    unit = 1 / factor if factor else 0.0
    scale = 1 / np.sqrt(variance * unit + p.eps)
    x = node.emit("Mul", [node.input(), along(node, scale, 1)], tag="scaled")
    return node.done("Add", [x, along(node, -mean * unit * scale, 1)])


def _of_batch(node: CaffeNode, epsilon: float) -> Sequence[str]:
    """(x - mean) / sqrt(variance + eps) of the batch's own numbers, which is what `use_global_stats: false` asks for."""
    axes = {"axes": (0, *range(2, len(node.shape())))}
    centred = node.emit("Sub", [node.input(), node.emit("ReduceMean", [node.input()], axes)])
    variance = node.emit("ReduceMean", [node.emit("Mul", [centred, centred])], axes)
    return node.done(
        "Div", [centred, node.emit("Sqrt", [node.emit("Add", [variance, node.add_float(epsilon, "eps")])])]
    )


def _normalized(node: CaffeNode) -> Sequence[str]:
    """BN of SegNet (scale, shift) and of PSPNet (scale, shift, mean, variance), whose eps is 1e-5."""
    scale, shift = (
        node.fitted(i, what, channels(node)).astype(np.float64) for i, what in enumerate(("scale", "shift"))
    )
    if node.blobs > 2:
        mean, variance = (
            node.fitted(i, what, channels(node)).astype(np.float64)
            for i, what in ((2, "mean"), (3, "variance"))
        )
        scale = scale / np.sqrt(variance + 1e-5)
        shift = shift - mean * scale
    return node.done(
        "Add", [node.emit("Mul", [node.input(), along(node, scale, 1)], tag="scaled"), along(node, shift, 1)]
    )


def _scale(node: CaffeNode) -> Sequence[str]:
    p = node.layer.scale_param
    learned = node.count == 1
    factor = _own(node, 0, "scale", p) if learned else _bottom(node, p.axis)
    if not p.bias_term:
        return node.done("Mul", [node.input(), factor])
    if not learned:
        covered = node.shape(1)
        bias = along(node, node.fitted(0, "bias", covered), p.axis)
    else:
        bias = _own(node, 1, "bias", p)
    return node.done("Add", [node.emit("Mul", [node.input(), factor], tag="scaled"), bias])


def _bias(node: CaffeNode) -> Sequence[str]:
    p = node.layer.bias_param
    return node.done(
        "Add", [node.input(), _own(node, 0, "bias", p) if node.count == 1 else _bottom(node, p.axis)]
    )


def _axpy(node: CaffeNode) -> Sequence[str]:
    """A scale for each channel times the second bottom, plus the third (of J. Hu et al., "Squeeze-and-Excitation Networks")."""
    shape, wide = node.shape(0), node.shape(1)
    fits = prod(shape) == prod(wide[:2]) and shape[:2] == wide[:2] == node.shape(2)[:2]
    node.refuse_unless(fits, f"a scale of shape {list(shape)} for a blob of {list(wide)}")
    scale = node.emit(
        "Reshape", [node.input(0)], {"shape": (*wide[:2], *(1,) * (len(wide) - 2))}, tag="scale"
    )
    return node.done("Add", [node.emit("Mul", [scale, node.input(1)]), node.input(2)])


def _parameter(node: CaffeNode) -> Sequence[str]:
    shape = tuple(int(d) for d in node.layer.parameter_param.shape.dim)
    return [node.add_float(node.fitted(0, "blob", shape), "blob")]


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
        "BN": _normalized,
        "Scale": _scale,
        "Bias": _bias,
        "Axpy": _axpy,
        "Parameter": _parameter,
        "MatMul": lambda node: node.done("MatMul", node.inputs()),
    }
)
