"""fuse-affine: a factor and a summand for each channel belong to the normalization before them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import Array, Graph, Node, Shape
from mace_core.ops.norm import LayerNormAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import narrow

NORMS = ("LayerNorm", "RMSNorm", "InstanceNorm", "GroupNorm")


def fuse_affine(graph: Graph) -> Graph:
    """Take constants after a norm into its scale and bias: (n * s + b) * c + d -> n * (s c) + (b c + d).

    For LayerNorm, RMSNorm (which has no bias), InstanceNorm and GroupNorm, where the constants lie along the
    normalized axes or the channels. Rounding differs by an ulp.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    op = match.node.op.name
    if op not in ("Mul", "Div", "Add", "Sub"):
        return None
    for index in (0, 1) if op in ("Mul", "Add") else (1,):
        norm, constant = match.sole_producer(1 - index, *NORMS), match.constant(index)
        if (
            norm is not None
            and constant is not None
            and not (norm.op.name == "RMSNorm" and op in ("Add", "Sub"))
        ):
            return _fold_into_norm(match, norm, constant)
    return None


def _fold_into_norm(match: Match, norm: Node, constant: Array) -> Sequence[str] | None:
    builder, shape = match.builder, match.builder.shape(norm.inputs[0])
    scale = builder.constant(norm.inputs[1])
    bias = builder.constant(norm.inputs[2]) if len(norm.inputs) > 2 and norm.inputs[2] else np.zeros(())
    first = norm.attrs.axis if isinstance(norm.attrs, LayerNormAttributes) else -1
    normalized = shape[first % len(shape) :]
    vector = _strip_leading_axes(constant, normalized, shape)
    # Vectors that are computed at run time cannot be multiplied at build time.
    if scale is None or bias is None or vector is None:
        return None
    op = match.node.op.name
    with np.errstate(divide="ignore"):
        factor = {"Mul": vector, "Div": 1 / vector}.get(op, np.ones(()))
    # A scale of infinity would turn a bias of zero into NaN.
    if not np.all(np.isfinite(factor)):
        return None
    summand = {"Add": vector, "Sub": -vector}.get(op, np.zeros(()))
    vectors = [scale * factor, *([bias * factor + summand] if norm.op.name != "RMSNorm" else [])]
    rounded = [narrow(vector, scale.dtype) for vector in vectors]
    if any(vector is None for vector in rounded):
        return None
    names = [
        builder.weight(f"{match.node.outputs[0]}.{name}", vector)
        for name, vector in zip(("scale", "bias"), rounded, strict=False)
        if vector is not None
    ]
    if len(vectors) > 1 and len(norm.inputs) < 3 and not np.any(vectors[1]):
        names.pop()
    return builder.add(
        norm.op,
        [norm.inputs[0], *names],
        norm.attrs,
        outputs=match.node.outputs,
        like=match.merge_origins(norm),
    )


def _strip_leading_axes(constant: Array, normalized: Shape, shape: Shape) -> Array | None:
    """A constant in double precision without the leading axes that are not normalized.

    None if it differs along one.
    """
    lead = max(constant.ndim - len(normalized), 0)
    if np.broadcast_shapes(constant.shape, shape) != shape or any(d != 1 for d in constant.shape[:lead]):
        return None
    return constant.reshape(constant.shape[lead:]).astype(np.float64)
