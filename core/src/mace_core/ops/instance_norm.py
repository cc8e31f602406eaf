"""InstanceNorm: normalization of each channel of each image by its own moments."""

from __future__ import annotations

from mace_core.ir import Array
from mace_core.ops.norm import EpsilonAttributes, channels_last, move_spatial, normalize
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs


def _infer(inputs: Inputs, attrs: EpsilonAttributes) -> list[Spec]:
    x = channels_last(inputs, attrs.epsilon)
    return [(x.dtype, x.shape)]


def _instance_norm(x: Array, scale: Array, bias: Array, attrs: EpsilonAttributes) -> Array:
    return (normalize(x, tuple(range(1, x.ndim - 1)), attrs.epsilon) * scale + bias).astype(x.dtype)


OPS = (
    Op(
        "InstanceNorm",
        ("x", "scale", "bias"),
        ("y",),
        _infer,
        _instance_norm,
        EpsilonAttributes,
        move=move_spatial,
    ),
)
