"""Concat: tensors one after another along an axis."""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import AxisAttributes, Inputs, axis_of, move_axis, need, present, same_dtype


def _infer(inputs: Inputs, attrs: AxisAttributes) -> list[Spec]:
    need(len(inputs) > 0 and None not in inputs, "it has an input that is absent; every one must be there")
    first, *others = present(inputs)
    same_dtype(inputs)
    axis = axis_of(attrs.axis, len(first.shape))
    for other in others:
        fits = len(other.shape) == len(first.shape) and all(
            a == b for i, (a, b) in enumerate(zip(first.shape, other.shape, strict=True)) if i != axis
        )
        need(fits, f"shapes {list(first.shape)} and {list(other.shape)} differ elsewhere than on axis {axis}")
    total = sum(t.shape[axis] for t in present(inputs))
    return [(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))]


def _concat(*xs: Array, attrs: AxisAttributes) -> Array:
    return np.concatenate(xs, attrs.axis)


OPS = (Op("Concat", ("xs*",), ("y",), _infer, _concat, AxisAttributes, move=move_axis, moves=True),)
