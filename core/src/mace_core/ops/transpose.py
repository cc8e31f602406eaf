"""Transpose: reorder the axes."""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array, Attrs
from mace_core.ops.arguments import integers
from mace_core.ops.op import REQUIRED, Op, Spec
from mace_core.ops.shapes import Inputs, need, present


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    perm = integers(attrs, "perm")
    need(sorted(perm) == list(range(len(x.shape))), f"perm {list(perm)} does not reorder {len(x.shape)} axes")
    return [(x.dtype, tuple(x.shape[i] for i in perm))]


def _transpose(x: Array, perm: tuple[int, ...]) -> Array:
    return np.transpose(x, perm)


OPS = (Op("Transpose", ("x",), ("y",), _infer, _transpose, {"perm": REQUIRED}, moves=True),)
