"""InstanceNorm: normalisation of every channel of every image by its own moments."""

from __future__ import annotations

from mace_core.ir import Array, Attrs
from mace_core.ops.norm import channels_last, move_spatial, normalised
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    x = channels_last(inputs, attrs)
    return [(x.dtype, x.shape)]


def _instance_norm(x: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    return (normalised(x, tuple(range(1, x.ndim - 1)), epsilon) * scale + bias).astype(x.dtype)


OPS = (
    Op(
        "InstanceNorm",
        ("x", "scale", "bias"),
        ("y",),
        _infer,
        _instance_norm,
        {"epsilon": 1e-5},
        move=move_spatial,
    ),
)
