"""Reads constants of which the file stores only some elements."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tflite

from mace_core.ir import Array, Shape

MAX_BYTES = 1 << 28
"""Limit of a constant's size: few stored elements may claim any shape, and a larger one is damage."""

MAX_ROWS = 1 << 20
"""Limit of the coordinates that the outer dimensions list, where the stored elements are fewer."""

_VECTORS = ("", "Int32Vector", "Uint16Vector", "Uint8Vector")
"""The tables of the union SparseIndexVector, by its number in the schema; 0 is none."""


def dense(values: Array, shape: Shape, table: Any) -> Array:
    """Return all elements, 0 where none is stored; ValueError for coordinates outside of the shape.

    The format's dimensions are those of the tensor and then those of blocks, in the order of their traversal;
    each is either dense or, as in compressed sparse rows, segments of indices
    (tensorflow/lite/schema/schema.fbs, SparsityParameters; "TACO", Kjolstad et al. 2017).
    """
    order, blocks = _integers(table, "TraversalOrder"), _integers(table, "BlockMap")
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocks))) or not all(0 <= b < rank for b in blocks):
        raise ValueError(f"a traversal of {list(order)} with blocks {list(blocks)} of rank {rank}")
    if table.DimMetadataLength() != len(order) or prod(shape) * values.itemsize > MAX_BYTES:
        raise ValueError(f"{table.DimMetadataLength()} sparse dimensions of a shape of {list(shape)}")
    dimensions = [table.DimMetadata(i) for i in range(len(order))]
    sizes, rows = _list_coordinates(dimensions, max(values.size, MAX_ROWS))
    if rows.shape[0] != values.size:
        raise ValueError(f"{values.size} elements at {rows.shape[0]} places")
    if any(sizes[order.index(rank + i)] == 0 for i in range(len(blocks))):
        raise ValueError("blocks of unknown size")
    # From the order of traversal to the order of the tensor's dimensions, those of blocks behind them.
    to_tensor = np.argsort(order)
    coordinates = _join_blocks(rows[:, to_tensor], [sizes[i] for i in to_tensor], blocks, rank)
    return _scatter(values, shape, coordinates)


def _join_blocks(rows: Array, sizes: list[int], blocks: Shape, rank: int) -> list[Array]:
    """Return the coordinates of the stored elements for each axis of the tensor.

    rows: [elements, dimensions].  blocks: the axis that each block divides: an axis is counted in blocks, and
    the block's own dimension counts inside of one.
    """
    coordinates = [rows[:, axis] for axis in range(rank)]
    for number, axis in enumerate(blocks):
        coordinates[axis] = coordinates[axis] * sizes[rank + number] + rows[:, rank + number]
    return coordinates


def _scatter(values: Array, shape: Shape, coordinates: list[Array]) -> Array:
    for positions, size in zip(coordinates, shape, strict=True):
        if positions.size and not 0 <= int(positions.min()) <= int(positions.max()) < size:
            raise ValueError(f"a stored element outside of {list(shape)}")
    elements = np.zeros(shape, values.dtype)
    elements[tuple(coordinates)] = values
    return elements


def _list_coordinates(dimensions: list[Any], limit: int) -> tuple[Shape, Array]:
    """Return the size of every dimension (0 if it is unknown), and the coordinates [elements, dimensions].

    Both are in the order of traversal.  limit: of the number of rows, which a damaged file multiplies at each
    dimension.
    """
    sizes: list[int] = []
    rows = np.zeros((1, 0), np.int64)
    for dimension in dimensions:
        count = len(rows)
        if dimension.Format() == tflite.DimensionType.DENSE:
            size = dimension.DenseSize()
            lengths = np.full(count, size, np.int64)
        else:
            segments = np.asarray(_vector(dimension.ArraySegments(), dimension.ArraySegmentsType()), np.int64)
            indices = np.asarray(_vector(dimension.ArrayIndices(), dimension.ArrayIndicesType()), np.int64)
            lengths, size = np.diff(segments), 0
            if segments.size != count + 1 or segments[0] != 0 or segments[-1] != indices.size:
                raise ValueError(f"{segments.size} segments for {count} rows")
        if (lengths < 0).any() or int(lengths.sum()) > limit:
            raise ValueError(f"more than {limit} places for the elements that are stored")
        if dimension.Format() == tflite.DimensionType.DENSE:
            indices = np.tile(np.arange(size), count)
        rows = np.column_stack([np.repeat(rows, lengths, axis=0), indices])
        sizes.append(size)
    return tuple(sizes), rows


def _integers(table: Any, field: str) -> Shape:
    # The library gives the number 0 for an absent vector.
    if not getattr(table, f"{field}Length")():
        return ()
    return tuple(int(v) for v in getattr(table, f"{field}AsNumpy")())


def _vector(union: Any, kind: int) -> Shape:
    """Return the numbers of a union of vectors."""
    if union is None or not 0 < kind < len(_VECTORS):
        raise ValueError("a sparse dimension without indices")
    vector = getattr(tflite, _VECTORS[kind])()
    vector.Init(union.Bytes, union.Pos)
    return _integers(vector, "Values")
