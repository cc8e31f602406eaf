"""Layers that compute each element, or each channel, by itself."""

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
    }
)
"""Layer type -> op of the IR, for layers without parameters that count."""


def _unary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input()])


def _dropout(node: CaffeNode) -> Sequence[str]:
    parameters = node.layer.dropout_param
    # Caffe scales by 1 / (1 - ratio) while it trains, so that nothing is left to do afterwards. Forks may
    # scale by 1 - ratio afterwards instead.
    if parameters.scale_train:
        return node.done("Identity", [node.input()])
    return node.done("Mul", [node.input(), node.add_float(1 - parameters.dropout_ratio, "share")])


def _relu(node: CaffeNode) -> Sequence[str]:
    slope = node.layer.relu_param.negative_slope
    if slope:
        return node.done("LeakyRelu", [node.input()], {"alpha": slope})
    # A LeakyRelu of slope 0 is the same, but Relu is what targets fuse into the layer before it.
    return node.done("Relu", [node.input()])


def _relu6(node: CaffeNode) -> Sequence[str]:
    return node.done("Clip", [node.input()], {"min": 0.0, "max": 6.0})


def _clip(node: CaffeNode) -> Sequence[str]:
    parameters = node.layer.clip_param
    low = parameters.min if parameters.HasField("min") else -inf
    high = parameters.max if parameters.HasField("max") else inf
    return node.done("Clip", [node.input()], {"min": low, "max": high})


def broadcast_from(node: CaffeNode, values: Array, axis: int) -> str:
    """Add a constant whose axes lie on those of the bottom from `axis` on.

    Caffe counts from the first axis, where the IR broadcasts from the last one: the constant gets axes of 1
    behind.
    """
    rank = len(node.shape())
    first = node.axis(axis, rank)
    return node.add_float(values.reshape(*values.shape, *(1,) * (rank - first - values.ndim)), "along")


def channels(node: CaffeNode) -> Shape:
    """Return the number of the bottom's channels, as a shape; one if it has no axis for them."""
    return node.shape()[1:2] or (1,)


def _broadcast_blob(node: CaffeNode, index: int, role: str, parameters: Any) -> str:
    """Add a blob that covers `num_axes` axes of the bottom from `axis` on; -1 for all of them."""
    shape = node.shape()
    first = node.axis(parameters.axis, len(shape))
    last = len(shape) if parameters.num_axes == -1 else first + parameters.num_axes
    node.refuse_unless(
        first <= last <= len(shape),
        f"its {role} covers {parameters.num_axes} axes from axis {parameters.axis} on "
        f"of a bottom of rank {len(shape)}",
    )
    return broadcast_from(node, node.shaped_blob(index, role, shape[first:last]), parameters.axis)


def _broadcast_bottom(node: CaffeNode, axis: int) -> str:
    """Return the second bottom in a shape whose axes lie on those of the first from `axis` on."""
    shape, other = node.shape(0), node.shape(1)
    first = node.axis(axis, len(shape))
    # Caffe wants the very same sizes; the IR would accept sizes of 1 too.
    node.refuse_unless(
        shape[first : first + len(other)] == other,
        f"its second bottom has shape {list(other)}, which is no part of {list(shape)} from axis {axis} on",
    )
    aligned = (*(1,) * first, *other, *(1,) * (len(shape) - first - len(other)))
    if aligned == other:
        return node.input(1)
    return node.emit("Reshape", [node.input(1)], {"shape": aligned}, tag="along")


def _scale_or_bias(node: CaffeNode, role: str, parameters: Any) -> str:
    """Return the second operand of Scale or Bias: its second bottom, or else what it has learned."""
    if node.bottom_count > 1:
        return _broadcast_bottom(node, parameters.axis)
    return _broadcast_blob(node, 0, role, parameters)


def _prelu(node: CaffeNode) -> Sequence[str]:
    if node.layer.prelu_param.channel_shared:
        slope = node.add_float(node.shaped_blob(0, "slope", (1,)), "slope")
    else:
        slope = broadcast_from(node, node.shaped_blob(0, "slope", channels(node)), 1)
    return node.done("PRelu", [node.input(), slope])


def _power(node: CaffeNode) -> Sequence[str]:
    """Add (shift + scale * x) ** power.

    Networks use this layer mostly for its scale or its shift alone, so that steps that change nothing are
    left out.
    """
    parameters, x = node.layer.power_param, node.input()
    if parameters.scale != 1:
        x = node.emit("Mul", [x, node.add_float(parameters.scale, "scale")])
    if parameters.shift:
        x = node.emit("Add", [x, node.add_float(parameters.shift, "shift")])
    if parameters.power == 1:
        return node.done("Identity", [x])
    return node.done("Pow", [x, node.add_float(parameters.power, "power")])


def _exp(node: CaffeNode) -> Sequence[str]:
    """Add base ** (shift + scale * x), as e ** (log(base) * (shift + scale * x))."""
    parameters = node.layer.exp_param
    # In ExpParameter and LogParameter of caffe.proto a base of -1, the default, stands for e.
    factor = 1.0 if parameters.base == -1 else log(parameters.base)
    x = node.emit("Mul", [node.input(), node.add_float(parameters.scale * factor, "scale")])
    return node.done("Exp", [node.emit("Add", [x, node.add_float(parameters.shift * factor, "shift")])])


def _log(node: CaffeNode) -> Sequence[str]:
    """Add the logarithm to the base of (shift + scale * x), as log(shift + scale * x) / log(base)."""
    parameters = node.layer.log_param
    x = node.emit("Mul", [node.input(), node.add_float(parameters.scale, "scale")])
    logarithm = node.emit("Log", [node.emit("Add", [x, node.add_float(parameters.shift, "shift")])])
    factor = 1.0 if parameters.base == -1 else 1 / log(parameters.base)
    return node.done("Mul", [logarithm, node.add_float(factor, "base")])


def _threshold(node: CaffeNode) -> Sequence[str]:
    threshold = node.add_float(node.layer.threshold_param.threshold, "threshold")
    is_above = node.emit("Greater", [node.input(), threshold])
    # All blobs of Caffe are floats: 1 stands for above, 0 for the rest.
    return node.done("Cast", [is_above], {"to": "f32"})


def _eltwise(node: CaffeNode) -> Sequence[str]:
    parameters = node.layer.eltwise_param
    op = {"PROD": "Mul", "SUM": "Add", "MAX": "Maximum"}[node.enum_name(parameters, "operation")]
    terms = node.inputs()
    node.refuse_unless(
        len(terms) > 1 and len(parameters.coeff) in (0, len(terms)),
        f"it has {len(parameters.coeff)} coefficients for {len(terms)} bottoms",
    )
    # Eltwise of Caffe does not broadcast; a shape of 1 is a mistake in the network.
    shapes = {node.shape(i) for i in range(len(terms))}
    node.refuse_unless(
        len(shapes) == 1,
        f"its bottoms have shapes {', '.join(str(list(s)) for s in sorted(shapes))}; they must be the same",
    )
    # Caffe reads the coefficients for SUM alone: eltwise_layer.cpp refuses them for PROD and does not use
    # them for MAX.
    if op == "Add":
        pairs = zip(terms, parameters.coeff or [1.0] * len(terms), strict=True)
        terms = [t if c == 1 else node.emit("Mul", [t, node.add_float(c, "coefficient")]) for t, c in pairs]
    return _combine(node, op, terms)


def _combine(node: CaffeNode, op: str, terms: Sequence[str]) -> Sequence[str]:
    """Combine the terms from the first to the last, the order in which Caffe rounds the sums."""
    node.refuse_unless(len(terms) > 1, "it has one bottom, but needs two")
    total = terms[0]
    for term in terms[1:-1]:
        total = node.emit(op, [total, term])
    return node.done(op, [total, terms[-1]])


def _batch_norm(node: CaffeNode) -> Sequence[str]:
    """Add (x - mean) / sqrt(variance + eps), as a product and a sum with constants.

    The constants are computed in double precision, because the subtraction of a large mean would lose digits.
    """
    parameters, shape = node.layer.batch_norm_param, channels(node)
    if not parameters.use_global_stats:
        return _normalize_batch(node, parameters.eps)
    mean = node.shaped_blob(0, "mean", shape).astype(np.float64)
    variance = node.shaped_blob(1, "variance", shape).astype(np.float64)
    # While it trains, Caffe sums both with a weight that falls from step to step, and keeps the sum of the
    # weights as the third blob. It is 0 in a network that never trained, which batch_norm_layer.cpp reads as
    # statistics of 0.
    factor = float(node.shaped_blob(2, "factor", (1,))[0]) if node.blob_count > 2 else 1.0
    inverse = 1 / factor if factor else 0.0
    scale = 1 / np.sqrt(variance * inverse + parameters.eps)
    x = node.emit("Mul", [node.input(), broadcast_from(node, scale, 1)], tag="scaled")
    return node.done("Add", [x, broadcast_from(node, -mean * inverse * scale, 1)])


def _normalize_batch(node: CaffeNode, epsilon: float) -> Sequence[str]:
    """Add (x - mean) / sqrt(variance + eps) of the batch's own statistics: `use_global_stats: false`."""
    axes = {"axes": (0, *range(2, len(node.shape())))}
    centered = node.emit("Sub", [node.input(), node.emit("ReduceMean", [node.input()], axes)])
    variance = node.emit("ReduceMean", [node.emit("Mul", [centered, centered])], axes)
    deviation = node.emit("Sqrt", [node.emit("Add", [variance, node.add_float(epsilon, "eps")])])
    return node.done("Div", [centered, deviation])


def _bn(node: CaffeNode) -> Sequence[str]:
    """Add BN, which forks of Caffe define in two ways.

    SegNet's has a scale and a shift, into which its tools merge the statistics before it is deployed;
    PSPNet's has the statistics as two more blobs.
    """
    parameters, shape = node.layer.bn_param, channels(node)
    node.refuse_unless(
        node.enum_name(parameters, "bn_mode") == "INFERENCE",
        "it takes the statistics of each batch (bn_mode: LEARN)",
        "merge the statistics into it with SegNet's compute_bn_statistics.py, and set bn_mode: INFERENCE",
    )
    scale = node.shaped_blob(0, "scale", shape).astype(np.float64)
    shift = node.shaped_blob(1, "shift", shape).astype(np.float64)
    if node.blob_count > 2:
        mean = node.shaped_blob(2, "mean", shape).astype(np.float64)
        variance = node.shaped_blob(3, "variance", shape).astype(np.float64)
        scale = scale / np.sqrt(variance + parameters.eps)
        shift = shift - mean * scale
    scaled = node.emit("Mul", [node.input(), broadcast_from(node, scale, 1)], tag="scaled")
    return node.done("Add", [scaled, broadcast_from(node, shift, 1)])


def _scale(node: CaffeNode) -> Sequence[str]:
    """Add x * scale, or x * scale + bias; the scale is a blob of the layer, or its second bottom."""
    parameters = node.layer.scale_param
    is_learned = node.bottom_count == 1
    factor = _scale_or_bias(node, "scale", parameters)
    if not parameters.bias_term:
        return node.done("Mul", [node.input(), factor])
    # The bias has the shape of the scale, and is the first blob where the scale is a bottom.
    if is_learned:
        bias = _broadcast_blob(node, 1, "bias", parameters)
    else:
        bias = broadcast_from(node, node.shaped_blob(0, "bias", node.shape(1)), parameters.axis)
    return node.done("Add", [node.emit("Mul", [node.input(), factor], tag="scaled"), bias])


def _bias(node: CaffeNode) -> Sequence[str]:
    return node.done("Add", [node.input(), _scale_or_bias(node, "bias", node.layer.bias_param)])


def _axpy(node: CaffeNode) -> Sequence[str]:
    """Add a * x + y with a scale `a` for each channel.

    J. Hu et al., "Squeeze-and-Excitation Networks", 2018.
    """
    scale_shape, shape = node.shape(0), node.shape(1)
    node.refuse_unless(
        prod(scale_shape) == prod(shape[:2]) and scale_shape[:2] == shape[:2] == node.shape(2)[:2],
        f"it has a scale of shape {list(scale_shape)} for a blob of shape {list(shape)}",
    )
    aligned = (*shape[:2], *(1,) * (len(shape) - 2))
    scale = node.emit("Reshape", [node.input(0)], {"shape": aligned}, tag="scale")
    return node.done("Add", [node.emit("Mul", [scale, node.input(1)]), node.input(2)])


def _parameter(node: CaffeNode) -> Sequence[str]:
    shape = tuple(int(d) for d in node.layer.parameter_param.shape.dim)
    return [node.add_float(node.shaped_blob(0, "blob", shape), "blob")]


def _elu(node: CaffeNode) -> Sequence[str]:
    return node.done("Elu", [node.input()], {"alpha": node.layer.elu_param.alpha})


def _swish(node: CaffeNode) -> Sequence[str]:
    return node.done("Swish", [node.input()], {"alpha": node.layer.swish_param.beta})


def _hard_sigmoid(node: CaffeNode) -> Sequence[str]:
    # relu6(x + 3) / 6, as MobileNetV3 defines it; a slope of 0.2 is the default of ONNX.
    return node.done("HardSigmoid", [node.input()], {"alpha": 1 / 6, "beta": 0.5})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _unary(op) for name, op in UNARY.items()},
        "Dropout": _dropout,
        "ReLU": _relu,
        "ReLU6": _relu6,
        "Clip": _clip,
        "ELU": _elu,
        "Swish": _swish,
        "HardSigmoid": _hard_sigmoid,
        "HSigmoid": _hard_sigmoid,
        "PReLU": _prelu,
        "Power": _power,
        "Exp": _exp,
        "Log": _log,
        "Threshold": _threshold,
        "Eltwise": _eltwise,
        "Add": lambda node: _combine(node, "Add", node.inputs()),
        "BatchNorm": _batch_norm,
        "BN": _bn,
        "Scale": _scale,
        "Bias": _bias,
        "Axpy": _axpy,
        "Parameter": _parameter,
        "MatMul": lambda node: node.done("MatMul", node.inputs()),
    }
)
