"""Shapes, and constants made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, DType, Shape
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

MOST_ELEMENTS = 1 << 24
"""Of a constant made here."""


def _shape_of(node: TfliteNode) -> str:
    dtype = node.output().dtype or DType.I32
    return node.add_constant(np.asarray(node.shape(0), dtype.numpy), tag="shape")


def _rank(node: TfliteNode) -> str:
    return node.add_constant(np.int32(len(node.shape(0))), tag="rank")


def _reshape(node: TfliteNode) -> Sequence[str]:
    old = node.shape(0)
    if node.has(1):
        wanted = node.ints(1, "shape")
    else:
        options = node.options("ReshapeOptions")
        wanted = tuple(int(v) for v in options.NewShapeAsNumpy()) if options.NewShapeLength() else ()
    return node.done("Reshape", [node.input(0)], {"shape": complete(node, wanted, prod(old))})


def complete(node: TfliteNode, shape: Shape, elements: int) -> Shape:
    """A shape with the one dimension that is -1 filled in."""
    known = prod(d for d in shape if d != -1)
    node.refuse_unless(shape.count(-1) <= 1 and min(shape, default=0) >= -1, f"a new shape of {list(shape)}")
    if -1 not in shape:
        return shape
    node.refuse_unless(
        known > 0 and elements % known == 0, f"{elements} elements in a shape of {list(shape)}"
    )
    return tuple(elements // known if d == -1 else d for d in shape)


def _squeeze(node: TfliteNode) -> Sequence[str]:
    shape, options = node.shape(0), node.options("SqueezeOptions")
    given = [int(v) for v in options.SqueezeDimsAsNumpy()] if options.SqueezeDimsLength() else []
    axes = {node.axis(a, len(shape)) for a in given} or {i for i, d in enumerate(shape) if d == 1}
    return node.done(
        "Reshape", [node.input(0)], {"shape": tuple(d for i, d in enumerate(shape) if i not in axes)}
    )


def _expand_dims(node: TfliteNode) -> Sequence[str]:
    shape = list(node.shape(0))
    shape.insert(node.axis(node.ints(1, "axis")[0], len(shape) + 1), 1)
    return node.done("Reshape", [node.input(0)], {"shape": tuple(shape)})


def _range(node: TfliteNode) -> str:
    dtype = node.constant(0, "start").dtype
    start, limit, delta = (
        node.constant(i, what).reshape(()).item() for i, what in enumerate(("start", "limit", "step"))
    )
    node.refuse_unless(
        delta != 0 and abs((limit - start) / delta) < MOST_ELEMENTS,
        f"a range from {start} to {limit} by {delta}",
    )
    return node.add_constant(np.arange(start, limit, delta, dtype=dtype), tag="range")


def _fill(node: TfliteNode) -> Sequence[str]:
    return node.done("Expand", [node.input(1)], {"shape": node.ints(0, "shape")})


def _like(value: int) -> Handler:
    def handle(node: TfliteNode) -> Sequence[str]:
        dtype, shape = node.tensor(node.input(0)).real.dtype, node.shape(0)
        zero: Array = np.full((1,) * len(shape), value, dtype.numpy)
        return node.done("Expand", [node.add_constant(zero, tag="like")], {"shape": shape})

    return handle


def _broadcast_to(node: TfliteNode) -> Sequence[str]:
    return node.done("Expand", [node.input(0)], {"shape": node.ints(1, "shape")})


def _broadcast_args(node: TfliteNode) -> str:
    """The shape to which two shapes broadcast."""
    shape = np.broadcast_shapes(node.ints(0, "shape"), node.ints(1, "shape"))
    return node.add_constant(np.asarray(shape, node.tensor(node.stored(0)).dtype.numpy), tag="shape")


def _where(node: TfliteNode) -> str:
    """Places of what is true."""
    return node.add_constant(np.argwhere(node.constant(0, "condition")).astype(np.int64), tag="places")


def _unique(node: TfliteNode) -> Sequence[str]:
    """What there is, in the order of the first time, and for each element which of it that is."""
    values, first, inverse = np.unique(node.constant(0, "elements"), return_index=True, return_inverse=True)
    order = np.argsort(first)
    dtype = node.output(1).dtype or DType.I32
    places = np.argsort(order)[inverse].astype(dtype.numpy)
    return [
        node.add_stored(values[order], node.info(0).quant, tag="values"),
        node.add_constant(places.reshape(-1), tag="places"),
    ]


def _bitcast(node: TfliteNode) -> str:
    """The same bits as another type; of constants."""
    dtype, array = node.output().dtype, node.constant(0, "bits")
    node.refuse_unless(
        dtype is not None and dtype.size == array.itemsize, f"bits of {array.dtype} as {node.output().kind}"
    )
    assert dtype is not None
    return node.add_constant(np.ascontiguousarray(array).view(dtype.numpy).reshape(array.shape), tag="bits")


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
        "BROADCAST_ARGS": _broadcast_args,
        "WHERE": _where,
        "UNIQUE": _unique,
        "BITCAST": _bitcast,
    }
)
