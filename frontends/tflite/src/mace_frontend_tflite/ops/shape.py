"""Shapes, and constants that depend on shapes or other constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, DType, Shape
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

MAX_RANGE = 1 << 24
"""Limit of the elements of a range, which the size of the file does not limit."""


def _shape_of(node: TfliteNode) -> str:
    dtype = node.output().dtype or DType.I32
    return node.add_constant(np.asarray(node.shape(0), dtype.numpy), tag="shape")


def _rank(node: TfliteNode) -> str:
    return node.add_constant(np.int32(len(node.shape(0))), tag="rank")


def _reshape(node: TfliteNode) -> Sequence[str]:
    # Old files state the shape in the options only, others as an input too; the input counts, as in the
    # kernel.
    if node.has(1):
        shape = node.ints(1, "shape")
    else:
        options = node.options("ReshapeOptions")
        shape = tuple(int(v) for v in options.NewShapeAsNumpy()) if options.NewShapeLength() else ()
    return node.done("Reshape", [node.input(0)], {"shape": complete(node, shape, prod(node.shape(0)))})


def complete(node: TfliteNode, shape: Shape, elements: int) -> Shape:
    """Return a shape of so many elements with the one dimension that is -1 filled in."""
    known = prod(d for d in shape if d != -1)
    node.require_consistent(
        shape.count(-1) <= 1 and min(shape, default=0) >= -1, f"it has a new shape of {list(shape)}"
    )
    if -1 not in shape:
        return shape
    node.require_consistent(
        known > 0 and elements % known == 0, f"it has {elements} elements in a shape of {list(shape)}"
    )
    return tuple(elements // known if d == -1 else d for d in shape)


def _squeeze(node: TfliteNode) -> Sequence[str]:
    shape, options = node.shape(0), node.options("SqueezeOptions")
    stated = [int(v) for v in options.SqueezeDimsAsNumpy()] if options.SqueezeDimsLength() else []
    # No axes at all mean every axis of size 1.
    axes = {node.axis(a, len(shape)) for a in stated} or {i for i, d in enumerate(shape) if d == 1}
    rest = tuple(d for i, d in enumerate(shape) if i not in axes)
    return node.done("Reshape", [node.input(0)], {"shape": rest})


def _expand_dims(node: TfliteNode) -> Sequence[str]:
    shape = list(node.shape(0))
    shape.insert(node.axis(node.ints(1, "axis")[0], len(shape) + 1), 1)
    return node.done("Reshape", [node.input(0)], {"shape": tuple(shape)})


def _range(node: TfliteNode) -> str:
    dtype = node.constant(0, "start").dtype
    numbers = [node.constant(i, meaning) for i, meaning in enumerate(("start", "limit", "step"))]
    start, limit, delta = (number.reshape(()).item() for number in numbers)
    node.require_consistent(
        delta != 0 and abs((limit - start) / delta) < MAX_RANGE,
        f"it has a range from {start} to {limit} by {delta}",
    )
    if dtype.kind != "f":
        return node.add_constant(np.arange(start, limit, delta, dtype=dtype), tag="range")
    # As in the kernel (GetSize in range.cc): the quotient in single precision, rounded up. In double
    # precision that of 0.6 and 0.2 lies above 3, which would make a fourth number.
    first, last, step = (number.reshape(()) for number in numbers)
    count = max(int(np.ceil((last - first) / step)), 0)
    return node.add_constant((first + np.arange(count) * step).astype(dtype), tag="range")


def _fill(node: TfliteNode) -> Sequence[str]:
    return node.done("Expand", [node.input(1)], {"shape": node.ints(0, "shape")})


def _like(value: int) -> Handler:
    def handle(node: TfliteNode) -> Sequence[str]:
        # One element that is expanded: a constant of the full shape would lie in the library.
        dtype, shape = node.tensor(node.input(0)).real.dtype, node.shape(0)
        zero: Array = np.full((1,) * len(shape), value, dtype.numpy)
        return node.done("Expand", [node.add_constant(zero, tag="like")], {"shape": shape})

    return handle


def _broadcast_to(node: TfliteNode) -> Sequence[str]:
    return node.done("Expand", [node.input(0)], {"shape": node.ints(1, "shape")})


def _broadcast_args(node: TfliteNode) -> str:
    """Return the shape to which two shapes broadcast."""
    shape = np.broadcast_shapes(node.ints(0, "shape"), node.ints(1, "shape"))
    return node.add_constant(np.asarray(shape, node.tensor(node.stored_input(0)).dtype.numpy), tag="shape")


def _where(node: TfliteNode) -> str:
    """Return the coordinates of true elements.

    Of a constant, since their number is the shape of the result.
    """
    return node.add_constant(np.argwhere(node.constant(0, "condition")).astype(np.int64), tag="places")


def _unique(node: TfliteNode) -> Sequence[str]:
    """Return the distinct elements of a constant, and for each element the number of its equal one."""
    # numpy sorts the distinct elements, the kernel has them in the order in which they first occur.
    values, first, inverse = np.unique(node.constant(0, "elements"), return_index=True, return_inverse=True)
    order = np.argsort(first)
    dtype = node.output(1).dtype or DType.I32
    places = np.argsort(order)[inverse].astype(dtype.numpy)
    return [
        node.add_stored(values[order], node.info(0).quant, tag="values"),
        node.add_constant(places.reshape(-1), tag="places"),
    ]


def _bitcast(node: TfliteNode) -> str:
    """Return the bits of a constant as another type of the same size."""
    dtype, array = node.output().dtype, node.constant(0, "bits")
    node.require_supported(
        dtype is not None and dtype.size == array.itemsize,
        f"it reads bits of {array.dtype} as {node.output().kind}",
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
