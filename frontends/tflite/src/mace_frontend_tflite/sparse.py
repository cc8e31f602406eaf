"""Constants that hold only some of their elements."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tflite

from mace_core.ir import Array, Shape

MOST_BYTES = 1 << 28
"""A constant that says of itself that it is larger, with so few elements stored, is damage."""

MOST_ROWS = 1 << 20
"""Places on the way to the elements that are stored, beside those of the elements."""

_VECTORS = ("", "Int32Vector", "Uint16Vector", "Uint8Vector")


def dense(values: Array, shape: Shape, table: Any) -> Array:
    """All elements, those that are not stored being 0; ValueError for what leads outside.

    The format's dimensions are those of the tensor and then those of blocks, in the order of their traversal;
    each is either dense or, as in compressed sparse rows, segments of indices
    (tensorflow/lite/schema/schema.fbs, SparsityParameters; "TACO", Kjolstad et al. 2017).
    """
    order, blocks = _integers(table, "TraversalOrder"), _integers(table, "BlockMap")
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocks))) or not all(0 <= b < rank for b in blocks):
        raise ValueError(f"a traversal of {list(order)} with blocks {list(blocks)} of rank {rank}")
    if table.DimMetadataLength() != len(order) or prod(shape) * values.itemsize > MOST_BYTES:
        raise ValueError(f"{table.DimMetadataLength()} sparse dimensions of a shape of {list(shape)}")
    sizes, places = _walk([table.DimMetadata(i) for i in range(len(order))], max(values.size, MOST_ROWS))
    if places.shape[0] != values.size:
        raise ValueError(f"{values.size} elements at {places.shape[0]} places")
    if any(sizes[order.index(rank + i)] == 0 for i in range(len(blocks))):
        raise ValueError("blocks of unknown size")
    return _put(values, shape, _Traversal(order, blocks, sizes, places))


class _Traversal:
    """Where the stored elements lie. places: [elements, dimensions], in the order of traversal."""

    def __init__(self, order: Shape, blocks: Shape, sizes: Shape, places: Array) -> None:
        self.blocks = blocks
        back = np.argsort(order)
        self.places, self.sizes = places[:, back], [sizes[i] for i in back]


def _put(values: Array, shape: Shape, at: _Traversal) -> Array:
    rank = len(shape)
    coordinates = [at.places[:, i] for i in range(rank)]
    for number, axis in enumerate(at.blocks):
        coordinates[axis] = coordinates[axis] * at.sizes[rank + number] + at.places[:, rank + number]
    if any(
        c.size and not 0 <= int(c.min()) <= int(c.max()) < d for c, d in zip(coordinates, shape, strict=True)
    ):
        raise ValueError(f"a stored element outside of {list(shape)}")
    made = np.zeros(shape, values.dtype)
    made[tuple(coordinates)] = values
    return made


def _walk(dimensions: list[Any], most: int) -> tuple[Shape, Array]:
    """The size of every dimension (0 if it is unknown) and the places of the elements.

    most: how many there may be at once.
    """
    sizes: list[int] = []
    places = np.zeros((1, 0), np.int64)
    for dimension in dimensions:
        count = len(places)
        if dimension.Format() == tflite.DimensionType.DENSE:
            size = dimension.DenseSize()
            lengths = np.full(count, size, np.int64)
        else:
            segments = np.asarray(_vector(dimension.ArraySegments(), dimension.ArraySegmentsType()), np.int64)
            indices = np.asarray(_vector(dimension.ArrayIndices(), dimension.ArrayIndicesType()), np.int64)
            lengths, size = np.diff(segments), 0
            if segments.size != count + 1 or segments[0] != 0 or segments[-1] != indices.size:
                raise ValueError(f"{segments.size} segments for {count} rows")
        if (lengths < 0).any() or int(lengths.sum()) > most:
            raise ValueError(f"more than {most} places for the elements that are stored")
        if dimension.Format() == tflite.DimensionType.DENSE:
            indices = np.tile(np.arange(size), count)
        places = np.column_stack([np.repeat(places, lengths, axis=0), indices])
        sizes.append(size)
    return tuple(sizes), places


def _integers(table: Any, field: str) -> Shape:
    return (
        tuple(int(v) for v in getattr(table, f"{field}AsNumpy")())
        if getattr(table, f"{field}Length")()
        else ()
    )


def _vector(union: Any, kind: int) -> Shape:
    """The numbers of a union of vectors."""
    if union is None or not 0 < kind < len(_VECTORS):
        raise ValueError("a sparse dimension without indices")
    made = getattr(tflite, _VECTORS[kind])()
    made.Init(union.Bytes, union.Pos)
    return _integers(made, "Values")
