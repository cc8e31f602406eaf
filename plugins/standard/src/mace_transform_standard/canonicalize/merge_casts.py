"""merge-casts: a conversion that loses nothing need not be made before the next one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import DType, Graph
from mace_core.rewrite import Match, rewrite

WHOLE = ("i64", "u64")
"""Types that numpy calls safe to convert to f64, which has only 53 bits of them."""


def merge_casts(graph: Graph) -> Graph:
    """Let a Cast read what a lossless Cast before it reads."""
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    inner = match.new.producer(match.node.inputs[0]) if match.node.op.name == "Cast" else None
    if inner is None or inner.op.name != "Cast":
        return None
    source, between = (match.new.tensors[t] for t in (inner.inputs[0], inner.outputs[0]))
    wanted = DType(match.node.attrs["to"])
    if between.quant or not exact(source.real.dtype, between.dtype):
        return None
    rounds = between.dtype.is_float and not source.real.dtype.is_float
    if rounds and not exact(
        source.dtype, wanted
    ):  # numbers out of range: floats saturate or are undefined, integers wrap
        return None
    return match.new.add(
        "Cast", inner.inputs, match.node.attrs, outputs=match.node.outputs, like=match.merge_origins(inner)
    )


def exact(source: DType, to: DType) -> bool:
    """Whether a type holds every value of another."""
    return bool(np.can_cast(source.numpy, to.numpy)) and not (source.value in WHOLE and to.is_float)
