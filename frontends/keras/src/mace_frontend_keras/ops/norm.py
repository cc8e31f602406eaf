"""Layers that normalize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, Shape
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler

SMALLEST_DEVIATION = 1e-7
"""The smallest divisor of the layer Normalization (keras.backend.epsilon)."""


def _broadcastable(values: Array, axes: Sequence[int], rank: int) -> Array:
    """Return values of some axes, in order, shaped to broadcast with a tensor of this rank."""
    sizes = iter(values.shape)
    return values.reshape([next(sizes) if axis in axes else 1 for axis in range(rank)])


def _vector(node: KerasNode, name: str, size: int, default: float) -> Array:
    return node.array(name) if node.has(name) else np.full(size, default, np.float32)


def _batch(node: KerasNode) -> Sequence[str]:
    x = node.float_input()
    shape = node.shape(x)
    axis, epsilon = node.axis(node.get("axis", -1), len(shape)), node.real("epsilon", 1e-3)
    size = shape[axis]
    gamma, beta = _vector(node, "gamma", size, 1.0), _vector(node, "beta", size, 0.0)
    mean, variance = node.array("moving_mean"), node.array("moving_variance")
    vectors = (("gamma", gamma), ("beta", beta), ("moving_mean", mean), ("moving_variance", variance))
    node.require_consistent(
        all(v.shape == (size,) for _, v in vectors), f"its weights do not fit {size} channels"
    )
    if axis == len(shape) - 1 and len(shape) <= 5:
        constants = [node.add_float(vector, name) for name, vector in vectors]
        return node.done("BatchNorm", [x, *constants], {"epsilon": epsilon})
    # The IR's op has its channels last. Elsewhere factor and summand of each channel are computed here, in
    # double precision: for small variances the quotient loses what single precision has.
    factor = gamma.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    scaled = node.emit("Mul", [x, node.add_float(_broadcastable(factor, (axis,), len(shape)), "factor")])
    summand = _broadcastable(beta - mean * factor, (axis,), len(shape))
    return node.done("Add", [scaled, node.add_float(summand, "summand")])


def _move_to_end(node: KerasNode, x: str, axes: Shape) -> tuple[str, Shape | None]:
    """Return the tensor with these axes at its end, and the permutation back.

    None if they are there already.
    """
    rank = len(node.shape(x))
    if axes == tuple(range(rank - len(axes), rank)):
        return x, None
    perm = (*(a for a in range(rank) if a not in axes), *axes)
    back = tuple(perm.index(a) for a in range(rank))
    return node.emit("Transpose", [x], {"perm": perm}, tag="turned"), back


def _done_moved_back(
    node: KerasNode, op: str, inputs: Sequence[str], attrs: Mapping[str, object], back: Shape | None
) -> Sequence[str]:
    if back is None:
        return node.done(op, inputs, attrs)
    return node.done("Transpose", [node.emit(op, inputs, attrs)], {"perm": back})


def _layer(node: KerasNode) -> Sequence[str]:
    x = node.float_input()
    axes = node.axes(node.get("axis", -1), len(node.shape(x)))
    inner = tuple(node.shape(x)[a] for a in axes)
    moved, back = _move_to_end(node, x, axes)
    first = len(node.shape(x)) - len(axes)
    scale = node.weight("gamma") if node.has("gamma") else node.add_float(np.ones(inner), "ones")
    attrs = {"axis": first, "epsilon": node.real("epsilon", 1e-3)}
    # Keras before RMSNormalization had it as this setting of LayerNormalization.
    if node.get("rms_scaling", False):
        return _done_moved_back(node, "RMSNorm", [moved, scale], attrs, back)
    bias = [node.weight("beta")] if node.has("beta") else []
    return _done_moved_back(node, "LayerNorm", [moved, scale, *bias], attrs, back)


def _rms(node: KerasNode) -> Sequence[str]:
    x = node.float_input()
    axes = node.axes(node.get("axis", -1), len(node.shape(x)))
    moved, back = _move_to_end(node, x, axes)
    attrs = {"axis": len(node.shape(x)) - len(axes), "epsilon": node.real("epsilon", 1e-6)}
    return _done_moved_back(node, "RMSNorm", [moved, node.weight("scale")], attrs, back)


def _group(node: KerasNode) -> Sequence[str]:
    x = node.float_input()
    axis = node.axis(node.get("axis", -1), len(node.shape(x)))
    channels = node.shape(x)[axis]
    groups = node.integer("groups", 32)
    moved, back = _move_to_end(node, x, (axis,))
    scale = node.add_float(_vector(node, "gamma", channels, 1.0), "gamma")
    bias = node.add_float(_vector(node, "beta", channels, 0.0), "beta")
    # -1 means a group for each channel (instance normalization).
    attrs = {"groups": channels if groups == -1 else groups, "epsilon": node.real("epsilon", 1e-3)}
    return _done_moved_back(node, "GroupNorm", [moved, scale, bias], attrs, back)


def done_unit_length(node: KerasNode, x: str, axes: Shape, epsilon: float = 1e-12) -> Sequence[str]:
    """Add x divided by its length along the axes.

    A length below epsilon counts as epsilon, by a limit of its inverse: so a vector of zeros stays zeros.
    """
    inverse = node.emit("Rsqrt", [node.emit("ReduceSumSquare", [x], {"axes": axes})])
    return node.done("Mul", [x, node.emit("Minimum", [inverse, node.add_float(1 / epsilon)])])


def _unit_normalization(node: KerasNode) -> Sequence[str]:
    x = node.float_input()
    return done_unit_length(node, x, node.axes(node.get("axis", -1), len(node.shape(x))))


def _data(node: KerasNode) -> Sequence[str]:
    """Add (x - mean) / deviation with moments known from data, or the inverse of it."""
    x = node.float_input()
    shape, axis = node.shape(x), node.get("axis", -1)
    # An axis of null means one mean for all elements, which `get` cannot tell from an absent setting.
    axes = () if node.layer.config.get("axis", -1) in (None, []) else node.axes(axis, len(shape))
    if node.has("mean"):
        moments = [node.array("mean"), node.array("variance")]
    else:
        moments = [np.asarray(node.get(key), np.float32) for key in ("mean", "variance")]
    sizes = tuple(shape[a] for a in axes)
    mean, variance = (np.broadcast_to(v.reshape(-1) if len(sizes) == 1 else v, sizes) for v in moments)
    deviation = np.maximum(np.sqrt(variance), SMALLEST_DEVIATION)
    center = node.add_float(_broadcastable(mean, axes, len(shape)), "mean")
    spread = node.add_float(_broadcastable(deviation, axes, len(shape)), "deviation")
    if node.get("invert", False):
        return node.done("Add", [node.emit("Mul", [x, spread]), center])
    return node.done("Div", [node.emit("Sub", [x, center]), spread])


def _rescaling(node: KerasNode) -> Sequence[str]:
    x = node.float_input()
    # Either may be one number or one for each channel.
    scale = np.asarray(node.get("scale", 1.0), np.float32)
    offset = np.asarray(node.get("offset", 0.0), np.float32)
    scaled = node.emit("Mul", [x, node.add_float(scale, "scale")])
    return node.done("Add", [scaled, node.add_float(offset, "offset")])


def _layer_scale(node: KerasNode) -> Sequence[str]:
    """Add a factor for each channel, as Keras's ConvNeXt has it."""
    return node.done("Mul", [node.float_input(), node.weight("gamma")])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("BatchNormalization", "SyncBatchNormalization"), _batch),
        "LayerNormalization": _layer,
        "RMSNormalization": _rms,
        "GroupNormalization": _group,
        "UnitNormalization": _unit_normalization,
        "Normalization": _data,
        "Rescaling": _rescaling,
        "LayerScale": _layer_scale,
    }
)
