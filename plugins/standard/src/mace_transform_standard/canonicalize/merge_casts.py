"""merge-casts: a conversion that loses nothing need not be made before the next one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import DType, Graph
from mace_core.ops.cast import CastAttributes
from mace_core.rewrite import Match, rewrite

WIDE_INTEGERS = ("i64", "u64")
"""Types that numpy calls safe to convert to f64, which has only 53 bits of them."""


def merge_casts(graph: Graph) -> Graph:
    """Let a Cast read what a lossless Cast before it reads: Cast(Cast(x, A), B) -> Cast(x, B).

    Exact where A holds every value of x's type, and where A is a float and x an integer, only if B holds them
    too: out of range floats saturate and integers wrap.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    inner = match.builder.producer(match.node.inputs[0]) if match.node.op.name == "Cast" else None
    if inner is None or inner.op.name != "Cast":
        return None
    source, middle = (match.builder.tensors[t] for t in (inner.inputs[0], inner.outputs[0]))
    target = match.node.attributes(CastAttributes).dtype
    # What a Cast reads or makes as stored integers is rounded there.
    if middle.quant or not is_exact(source.real.dtype, middle.dtype):
        return None
    rounds = middle.dtype.is_float and not source.real.dtype.is_float
    # Out of range, floats saturate or are undefined, and integers wrap: only the same kind may be skipped.
    if rounds and not is_exact(source.dtype, target):
        return None
    return match.builder.add(
        "Cast", inner.inputs, match.node.attrs, outputs=match.node.outputs, like=match.merge_origins(inner)
    )


def is_exact(source: DType, target: DType) -> bool:
    """Whether a type holds every value of another."""
    return bool(np.can_cast(source.numpy, target.numpy)) and not (
        source.value in WIDE_INTEGERS and target.is_float
    )
