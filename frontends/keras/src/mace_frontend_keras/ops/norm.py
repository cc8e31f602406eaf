"""Layers that normalise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, Shape
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler

SMALLEST_DEVIATION = 1e-7
"""What Keras divides by at least where it normalises data (keras.backend.epsilon)."""


def _along(values: Array, axes: Sequence[int], rank: int) -> Array:
    """Values of some axes, in order, shaped to broadcast with a tensor of this rank."""
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
    node.refuse_unless(all(v.shape == (size,) for _, v in vectors), f"its weights do not fit {size} channels")
    if axis == len(shape) - 1 and len(shape) <= 5:
        return node.done(
            "BatchNorm", [x, *(node.add_float(v, name) for name, v in vectors)], {"epsilon": epsilon}
        )
    factor = gamma.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    scaled = node.emit("Mul", [x, node.add_float(_along(factor, (axis,), len(shape)), "factor")])
    return node.done(
        "Add", [scaled, node.add_float(_along(beta - mean * factor, (axis,), len(shape)), "summand")]
    )


def _last(node: KerasNode, x: str, axes: Shape) -> tuple[str, Shape | None]:
    """The tensor with these axes at its end, and the permutation back; None if they are there already."""
    rank = len(node.shape(x))
    if axes == tuple(range(rank - len(axes), rank)):
        return x, None
    perm = (*(a for a in range(rank) if a not in axes), *axes)
    return node.emit("Transpose", [x], {"perm": perm}, tag="turned"), tuple(
        perm.index(a) for a in range(rank)
    )


def _turned_back(
    node: KerasNode, op: str, inputs: Sequence[str], attrs: Mapping[str, object], back: Shape | None
) -> Sequence[str]:
    if back is None:
        return node.done(op, inputs, attrs)
    return node.done("Transpose", [node.emit(op, inputs, attrs)], {"perm": back})


def _layer(node: KerasNode) -> Sequence[str]:
    x = node.float_input()
    axes = node.axes(node.get("axis", -1), len(node.shape(x)))
    inner = tuple(node.shape(x)[a] for a in axes)
    turned, back = _last(node, x, axes)
    first = len(node.shape(x)) - len(axes)
    scale = node.weight("gamma") if node.has("gamma") else node.add_float(np.ones(inner), "ones")
    attrs = {"axis": first, "epsilon": node.real("epsilon", 1e-3)}
    if node.get("rms_scaling", False):
        return _turned_back(node, "RMSNorm", [turned, scale], attrs, back)
    bias = [node.weight("beta")] if node.has("beta") else []
    return _turned_back(node, "LayerNorm", [turned, scale, *bias], attrs, back)


def _rms(node: KerasNode) -> Sequence[str]:
    x = node.float_input()
    axes = node.axes(node.get("axis", -1), len(node.shape(x)))
    turned, back = _last(node, x, axes)
    attrs = {"axis": len(node.shape(x)) - len(axes), "epsilon": node.real("epsilon", 1e-6)}
    return _turned_back(node, "RMSNorm", [turned, node.weight("scale")], attrs, back)


def _group(node: KerasNode) -> Sequence[str]:
    x = node.float_input()
    axis = node.axis(node.get("axis", -1), len(node.shape(x)))
    channels = node.shape(x)[axis]
    groups = node.integer("groups", 32)
    turned, back = _last(node, x, (axis,))
    scale = node.add_float(_vector(node, "gamma", channels, 1.0), "gamma")
    bias = node.add_float(_vector(node, "beta", channels, 0.0), "beta")
    attrs = {"groups": channels if groups == -1 else groups, "epsilon": node.real("epsilon", 1e-3)}
    return _turned_back(node, "GroupNorm", [turned, scale, bias], attrs, back)


def unit(node: KerasNode, x: str, axes: Shape, epsilon: float = 1e-12) -> Sequence[str]:
    """X over its length along the axes, which counts as at least epsilon."""
    inverse = node.emit("Rsqrt", [node.emit("ReduceSumSquare", [x], {"axes": axes})])
    return node.done("Mul", [x, node.emit("Minimum", [inverse, node.add_float(1 / epsilon)])])


def _unit(node: KerasNode) -> Sequence[str]:
    x = node.float_input()
    return unit(node, x, node.axes(node.get("axis", -1), len(node.shape(x))))


def _data(node: KerasNode) -> Sequence[str]:
    """(x - mean) / deviation with moments known from data, or the inverse."""
    x = node.float_input()
    shape, axis = node.shape(x), node.get("axis", -1)
    axes = () if node.layer.config.get("axis", -1) in (None, []) else node.axes(axis, len(shape))
    if node.has("mean"):
        mean, variance = node.array("mean"), node.array("variance")
    else:
        mean, variance = (np.asarray(node.get(key), np.float32) for key in ("mean", "variance"))
    sizes = tuple(shape[a] for a in axes)
    mean, variance = (
        np.broadcast_to(v.reshape(-1) if len(sizes) == 1 else v, sizes) for v in (mean, variance)
    )
    deviation = np.maximum(np.sqrt(variance), SMALLEST_DEVIATION)
    centre, spread = (
        node.add_float(_along(v, axes, len(shape)), tag)
        for v, tag in ((mean, "mean"), (deviation, "deviation"))
    )
    if node.get("invert", False):
        return node.done("Add", [node.emit("Mul", [x, spread]), centre])
    return node.done("Div", [node.emit("Sub", [x, centre]), spread])


def _rescaling(node: KerasNode) -> Sequence[str]:
    x = node.float_input()
    scale, offset = (
        np.asarray(node.get(key, default), np.float32) for key, default in (("scale", 1.0), ("offset", 0.0))
    )
    scaled = node.emit("Mul", [x, node.add_float(scale, "scale")])
    return node.done("Add", [scaled, node.add_float(offset, "offset")])


def _layer_scale(node: KerasNode) -> Sequence[str]:
    """A factor for each channel, as Keras's ConvNeXt has it."""
    return node.done("Mul", [node.float_input(), node.weight("gamma")])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("BatchNormalization", "SyncBatchNormalization"), _batch),
        "LayerNormalization": _layer,
        "RMSNormalization": _rms,
        "GroupNormalization": _group,
        "UnitNormalization": _unit,
        "Normalization": _data,
        "Rescaling": _rescaling,
        "LayerScale": _layer_scale,
    }
)
