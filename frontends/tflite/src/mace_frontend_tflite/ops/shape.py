"""Shapes, and constants made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, DType, Shape
from mace_frontend_tflite.node import Node
from mace_frontend_tflite.ops import Handler


def _shape_of(node: Node) -> str:
    dtype = node.output().dtype or DType.I32
    return node.weight(np.asarray(node.shape(0), dtype.numpy), tag="shape")


def _rank(node: Node) -> str:
    return node.weight(np.int32(len(node.shape(0))), tag="rank")


def _reshape(node: Node) -> Sequence[str]:
    old = node.shape(0)
    if node.has(1):
        wanted = node.ints(1, "shape")
    else:
        options = node.options("ReshapeOptions")
        wanted = tuple(int(v) for v in options.NewShapeAsNumpy()) if options.NewShapeLength() else ()
    return node.done("Reshape", [node.input(0)], {"shape": complete(node, wanted, prod(old))})


def complete(node: Node, shape: Shape, elements: int) -> Shape:
    """A shape with the one dimension that is -1 filled in."""
    known = prod(d for d in shape if d != -1)
    node.refuse_unless(shape.count(-1) <= 1 and min(shape, default=0) >= -1, f"a new shape of {list(shape)}")
    if -1 not in shape:
        return shape
    node.refuse_unless(known > 0 and elements % known == 0, f"{elements} elements in a shape of {list(shape)}")
    return tuple(elements // known if d == -1 else d for d in shape)


def _squeeze(node: Node) -> Sequence[str]:
    shape, options = node.shape(0), node.operator.options("SqueezeOptions")
    given = [int(v) for v in options.SqueezeDimsAsNumpy()] if options and options.SqueezeDimsLength() else []
    axes = {node.axis(a, len(shape)) for a in given} or {i for i, d in enumerate(shape) if d == 1}
    return node.done("Reshape", [node.input(0)], {"shape": tuple(d for i, d in enumerate(shape) if i not in axes)})


def _expand_dims(node: Node) -> Sequence[str]:
    shape = list(node.shape(0))
    shape.insert(node.axis(node.ints(1, "axis")[0], len(shape) + 1), 1)
    return node.done("Reshape", [node.input(0)], {"shape": tuple(shape)})


def _range(node: Node) -> str:
    start, limit, delta = (node.constant(i, what).reshape(()) for i, what in enumerate(("start", "limit", "step")))
    node.refuse_unless(bool(delta != 0) and abs((limit - start) / delta) < 1 << 24, f"a range from {start} to {limit} by {delta}")
    return node.weight(np.arange(start, limit, delta, dtype=start.dtype), tag="range")


def _fill(node: Node) -> Sequence[str]:
    return node.done("Expand", [node.input(1)], {"shape": node.ints(0, "shape")})


def _like(value: int) -> Handler:
    def handle(node: Node) -> str:
        made: Array = np.full(node.shape(0), value, node.tensor(node.input(0)).real.dtype.numpy)
        return node.weight(made, tag="like")

    return handle


def _broadcast_to(node: Node) -> Sequence[str]:
    return node.done("Expand", [node.input(0)], {"shape": node.ints(1, "shape")})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "SHAPE": _shape_of,
        "RANK": _rank,
        "RESHAPE": _reshape,
        "SQUEEZE": _squeeze,
        "EXPAND_DIMS": _expand_dims,
        "RANGE": _range,
        "FILL": _fill,
        "ZEROS_LIKE": _like(0),
        "BROADCAST_TO": _broadcast_to,
    }
)
