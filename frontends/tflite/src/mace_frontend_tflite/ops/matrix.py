"""Diagonals of matrices, counts of boundaries, and the angle of a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.importer.elementary import atan2_choice
from mace_core.ir import Array
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

MAX_PLACES = 1 << 24
"""Limit of the elements of a constant that a handler here adds, which the size of the file does not limit."""


def _diagonal(node: TfliteNode, rows: int, columns: int) -> str:
    node.require_supported(rows * columns <= MAX_PLACES, f"it has a diagonal of {rows} by {columns}")
    return node.add_constant(np.eye(rows, columns, dtype=bool), tag="diagonal")


def _matrix_diag(node: TfliteNode) -> Sequence[str]:
    """Add matrices with the last axis as their diagonal."""
    *outer, size = node.shape(0)
    x = node.input(0)
    rows = node.emit("Reshape", [x], {"shape": (*outer, 1, size)}, tag="rows")
    zero = node.add_constant(np.zeros((), node.tensor(x).real.dtype.numpy), tag="zero")
    return node.done("Where", [_diagonal(node, size, size), rows, zero])


def _matrix_set_diag(node: TfliteNode) -> Sequence[str]:
    """Add MATRIX_SET_DIAG(x, diagonal)."""
    *outer, rows, columns = node.shape(0)
    size = min(rows, columns)
    # The axis that is as long as the diagonal numbers its elements; the other one is broadcast.
    shape = (*outer, size, 1) if rows <= columns else (*outer, 1, size)
    values = node.emit("Reshape", [node.input(1)], {"shape": shape}, tag="values")
    return node.done("Where", [_diagonal(node, rows, columns), values, node.input(0)])


def _bucketize(node: TfliteNode) -> Sequence[str]:
    """Add the number of boundaries that are not above an element."""
    options, shape = node.options("BucketizeOptions"), node.shape(0)
    boundaries: Array = np.asarray(options.BoundariesAsNumpy(), np.float32).reshape(-1)
    # The boundaries are floats in the format, whatever the type of the elements is.
    x = node.emit("Cast", [node.input(0)], {"to": "f32"}, tag="numbers")
    each = node.emit("Reshape", [x], {"shape": (*shape, 1)}, tag="each")
    reached = node.emit(
        "GreaterEqual", [each, node.add_constant(boundaries, tag="boundaries")], tag="reached"
    )
    counted = node.emit("Cast", [reached], {"to": "i32"}, tag="counted")
    return node.done("ReduceSum", [counted], {"axes": (len(shape),), "keepdims": False})


def _atan2(node: TfliteNode) -> Sequence[str]:
    """Add ATAN2(y, x): the angle of the point (x, y)."""
    return node.done("Where", atan2_choice(node, node.input(0), node.input(1)))


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "MATRIX_DIAG": _matrix_diag,
        "MATRIX_SET_DIAG": _matrix_set_diag,
        "BUCKETIZE": _bucketize,
        "ATAN2": _atan2,
    }
)
