"""fuse-bias: an addition for each channel is the bias of the op before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import Array, Graph, Node
from mace_core.ops.conv import ClampAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import narrow

FILTERED = ("Conv", "ConvTranspose", "MatMul")


def fuse_bias(graph: Graph) -> Graph:
    """Make Add and Sub of constants along the channels the bias of the op before.

    (W x + b) + c -> W x + (b + c).

    For Conv, ConvTranspose and MatMul without limits. Biases are added in double precision and rounded once.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name not in ("Add", "Sub"):
        return None
    for index in (0, 1) if match.node.op.name == "Add" else (1,):
        feeder = match.sole_producer(1 - index, *FILTERED)
        constant = match.constant(index)
        if feeder is not None and constant is not None and _can_fuse(match, feeder, constant):
            bias = _add_bias(match, feeder, -constant if match.node.op.name == "Sub" else constant)
            if bias is not None:
                return bias
    return None


def _can_fuse(match: Match, feeder: Node, constant: Array) -> bool:
    shape = match.builder.shape(feeder.outputs[0])
    free = not feeder.attributes(ClampAttributes).is_clamped
    bias = feeder.inputs[2] if len(feeder.inputs) > 2 else ""
    known = not bias or match.builder.constant(bias) is not None
    channels = constant.shape[-1] if constant.ndim else 1
    flat = constant.size == channels and channels in (1, *shape[-1:]) and constant.ndim <= len(shape)
    matrix = feeder.op.name != "MatMul" or len(match.builder.shape(feeder.inputs[1])) > 1
    # A limit comes before the summand, and a computed bias cannot be added to at build time; a vector as
    # second factor leaves no axis for a bias.
    return free and known and flat and matrix


def _add_bias(match: Match, feeder: Node, constant: Array) -> tuple[str, ...] | None:
    builder = match.builder
    columns = builder.shape(feeder.outputs[0])[-1]
    # Added in double precision: two float biases of unlike size would lose digits. Integers wrap.
    dtype = np.float64 if constant.dtype.kind == "f" else constant.dtype
    total = np.broadcast_to(constant.reshape(-1), (columns,)).astype(dtype)
    if len(feeder.inputs) > 2 and feeder.inputs[2]:
        total = total + builder.weights[feeder.inputs[2]]
    rounded = narrow(total, constant.dtype) if constant.dtype.kind == "f" else total
    if rounded is None:
        return None
    inputs = [*feeder.inputs[:2], builder.weight(f"{match.node.outputs[0]}.bias", rounded)]
    return builder.add(
        feeder.op, inputs, feeder.attrs, outputs=match.node.outputs, like=match.merge_origins(feeder)
    )
