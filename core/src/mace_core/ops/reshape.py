"""Reshape: the same elements in the same order under another shape."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mace_core.attributes import Attributes
from mace_core.ir import Array, Shape
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, present


@dataclass(frozen=True)
class ReshapeAttributes(Attributes):
    """shape: the shape of the result, with every dimension stated."""

    shape: Shape


def _infer(inputs: Inputs, attrs: ReshapeAttributes) -> list[Spec]:
    (x,) = present(inputs)
    shape = attrs.shape
    need(
        all(d >= 0 for d in shape), f"shape {list(shape)} has a negative dimension; every one must be stated"
    )
    need(
        math.prod(shape) == x.elements,
        f"{x.elements} elements of {list(x.shape)} do not fill shape {list(shape)}",
    )
    return [(x.dtype, shape)]


def _reshape(x: Array, attrs: ReshapeAttributes) -> Array:
    return x.reshape(attrs.shape)


OPS = (Op("Reshape", ("x",), ("y",), _infer, _reshape, ReshapeAttributes, moves=True),)
