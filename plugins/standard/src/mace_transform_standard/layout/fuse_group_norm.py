"""fuse-group-norm: InstanceNorm of groups of channels laid end to end is GroupNorm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import Graph
from mace_core.ops.norm import EpsilonAttributes, GroupNormAttributes
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import find_enclosed_nodes, find_maker

SWAP = (0, 2, 1)


def fuse_group_norm(graph: Graph) -> Graph:
    """Fuse Reshape [N, C, ...] -> [N, groups, rest], InstanceNorm, Reshape back to GroupNorm.

    PyTorch exports it so.

    The InstanceNorm stands between Transposes; GroupNorm gets one to channels last and one back, for `layout`
    to move. fuse-affine takes in scale and bias after it. Exact: the same elements are averaged.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    steps = [match.node] if match.node.op.name == "Reshape" else []
    for op in ("Transpose", "InstanceNorm", "Transpose", "Reshape"):
        before = find_maker(match.builder, steps[-1].inputs[0], op) if steps else None
        if before is None:
            return None
        steps.append(before)
    _, outer, norm, inner, first = steps
    builder, x = match.builder, first.inputs[0]
    shape, apart = builder.shape(x), builder.shape(first.outputs[0])
    if (
        shape != match.node.attributes(ReshapeAttributes).shape
        or not 2 <= len(shape) <= 5
        or shape[:1] != apart[:1]
        or 0 in apart
        or shape[1] % apart[1]
    ):
        return None
    scale, bias = (builder.constant(name) for name in norm.inputs[1:])
    swapped = len(apart) == len(SWAP) and all(
        t.attributes(TransposeAttributes).perm == SWAP for t in (outer, inner)
    )
    # Anything else that reads the steps would lose them.
    if scale is None or bias is None or not swapped or find_enclosed_nodes(match, x) is None:
        return None
    # InstanceNorm has a scale for each group, GroupNorm one for each channel.
    vectors = [
        builder.weight(f"{match.node.outputs[0]}.{n}", np.repeat(v, shape[1] // apart[1]))
        for n, v in (("scale", scale), ("bias", bias))
    ]
    last = builder.one("Transpose", [x], TransposeAttributes((0, *range(2, len(shape)), 1)), like=match.node)
    attrs = GroupNormAttributes(apart[1], norm.attributes(EpsilonAttributes).epsilon)
    result = builder.one("GroupNorm", [last, *vectors], attrs, like=match.merge_origins(norm))
    return match.emit(
        "Transpose", [result], TransposeAttributes((0, len(shape) - 1, *range(1, len(shape) - 1)))
    )
