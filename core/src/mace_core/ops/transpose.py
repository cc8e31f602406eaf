"""Transpose: reorder the axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array
from mace_core.ops.op import Op, Perm, Spec
from mace_core.ops.shapes import Inputs, need, present


@dataclass(frozen=True)
class TransposeAttributes(Attributes):
    """perm: for each axis of the result, the axis of x that it is."""

    perm: Perm


def _infer(inputs: Inputs, attrs: TransposeAttributes) -> list[Spec]:
    (x,) = present(inputs)
    perm = attrs.perm
    need(sorted(perm) == list(range(len(x.shape))), f"perm {list(perm)} does not reorder {len(x.shape)} axes")
    return [(x.dtype, tuple(x.shape[i] for i in perm))]


def _transpose(x: Array, attrs: TransposeAttributes) -> Array:
    return np.transpose(x, attrs.perm)


OPS = (Op("Transpose", ("x",), ("y",), _infer, _transpose, TransposeAttributes, moves=True),)
