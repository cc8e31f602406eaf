"""ReverseSequence: reverse the order of the first steps of each sequence of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, axis_of, need, need_indices, present


@dataclass(frozen=True)
class ReverseSequenceAttributes(Attributes):
    """The axes of the sequences and of their steps."""

    batch_axis: int = 1
    time_axis: int = 0


def _infer(inputs: Inputs, attrs: ReverseSequenceAttributes) -> list[Spec]:
    x, lengths = present(inputs)
    need_indices(lengths, "lengths")
    batch, time = (axis_of(axis, len(x.shape)) for axis in (attrs.batch_axis, attrs.time_axis))
    need(batch != time, f"batch_axis and time_axis are both {batch}")
    need(
        lengths.shape == (x.shape[batch],),
        f"lengths have shape {list(lengths.shape)} for a batch of {x.shape[batch]}",
    )
    return [(x.dtype, x.shape)]


def _reverse_sequence(x: Array, lengths: Array, attrs: ReverseSequenceAttributes) -> Array:
    """Reverse the first `lengths` steps; a length outside 0 ... steps is clamped."""
    y = x.copy()
    # Both are views: writing a row of the second writes into y.
    rows, reversed_rows = (np.moveaxis(a, (attrs.batch_axis, attrs.time_axis), (0, 1)) for a in (x, y))
    for row, into, length in zip(rows, reversed_rows, lengths, strict=True):
        steps = max(0, min(int(length), len(row)))
        into[:steps] = row[:steps][::-1]
    return y


OPS = (
    Op(
        "ReverseSequence",
        ("x", "lengths"),
        ("y",),
        _infer,
        _reverse_sequence,
        ReverseSequenceAttributes,
        moves=True,
    ),
)
