"""Sparse constants: their dimensions, blocks and limits, against the dense arrays that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tflite
from tflite_write import Sparsity, Value, Written, write

from mace_core.ir import Shape
from mace_frontend_tflite import source, sparse

Dimension = int | tuple[Sequence[int], Sequence[int]]


def table(
    folder: Path, order: Sequence[int], blocks: Sequence[int], dimensions: Sequence[Dimension]
) -> object:
    """The table of a file that describes a sparse constant so."""
    value = Value("w", shape=(1,), data=np.zeros(1, np.float32), sparsity=Sparsity(order, blocks, dimensions))
    file = folder / "case.tflite"
    file.write_bytes(write(Written([value], [], [], [])))
    return source.read(file).subgraphs[0].tensors[0].sparsity


ROWS: Dimension = ([0, 2, 2, 3], [1, 3, 0])
"""Of three rows the first has elements in columns 1 and 3, the last one in column 0."""


CONSTANTS: tuple[tuple[Shape, Sparsity, list[object]], ...] = (
    ((3, 4), Sparsity((0, 1), (), (3, ROWS)), [[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 0]]),
    ((4, 3), Sparsity((1, 0), (), (3, ROWS)), [[0, 0, 3], [1, 0, 0], [0, 0, 0], [2, 0, 0]]),
    ((2, 2), Sparsity((0, 1), (), (2, 2)), [[1, 2], [3, 4]]),
    ((3,), Sparsity((0,), (), (([0, 2], [0, 2]),)), [1, 0, 2]),
    # Blocks of 2 columns: the first row has the second block, the second row the first.
    ((2, 4), Sparsity((0, 1, 2), (1,), (2, ([0, 1, 2], [1, 0]), 2)), [[0, 0, 1, 2], [3, 4, 0, 0]]),
    # Blocks of 2 rows and 2 columns, of which there is one, the last.
    (
        (4, 4),
        Sparsity((0, 1, 2, 3), (0, 1), (2, ([0, 0, 1], [1]), 2, 2)),
        [[0] * 4, [0] * 4, [0, 0, 1, 2], [0, 0, 3, 4]],
    ),
)


@pytest.mark.parametrize(("shape", "described", "expected"), CONSTANTS)
def test_constant(shape: Shape, described: Sparsity, expected: list[object], tmp_path: Path) -> None:
    values = np.arange(1, np.count_nonzero(expected) + 1, dtype=np.float32)
    result = table(tmp_path, described.order, described.blocks, described.dimensions)
    dense = sparse.dense(values, shape, result)
    assert dense.dtype == np.float32
    np.testing.assert_array_equal(dense, expected)


@pytest.mark.parametrize(
    ("order", "blocks", "dimensions", "message"),
    [
        ((0, 0), (), (3, ROWS), r"a traversal of \[0, 0\] with blocks \[\] of rank 2"),
        ((0,), (), (3,), r"a traversal of \[0\] with blocks \[\] of rank 2"),
        ((0, 1, 2), (2,), (3, ROWS, 1), r"with blocks \[2\] of rank 2"),
        ((0, 1, 2), (-1,), (3, ROWS, 1), r"with blocks \[-1\] of rank 2"),
        ((0, 1), (), (3,), r"1 sparse dimensions of a shape of \[3, 4\]"),
        ((0, 1), (), (3, 4), "3 elements at 12 places"),
        ((0, 1), (), (2, ROWS), "4 segments for 2 rows"),
        ((0, 1), (), (3, ([1, 2, 2, 3], [1, 3, 0])), "4 segments for 3 rows"),
        ((0, 1), (), (3, ([0, 2, 2, 2], [1, 3, 0])), "4 segments for 3 rows"),
        ((0, 1), (), (3, ([0, 3, 2, 3], [1, 3, 0])), "more than 1048576 places"),
        ((0, 1), (), (3, ([0, 2, 2, 3], [1, 4, 0])), r"a stored element outside of \[3, 4\]"),
        ((0, 1), (), (3, ([0, 2, 2, 3], [1, -1, 0])), r"a stored element outside of \[3, 4\]"),
        ((0, 1, 2), (1,), (3, ROWS, ([0, 1, 2, 3], [0, 0, 0])), "blocks of unknown size"),
    ],
)
def test_constant_that_fits_nothing_is_refused(
    order: Shape, blocks: Shape, dimensions: Sequence[Dimension], message: str, tmp_path: Path
) -> None:
    described = table(tmp_path, order, blocks, dimensions)
    with pytest.raises(ValueError, match=message):
        sparse.dense(np.ones(3, np.float32), (3, 4), described)


class Dense:
    """A dense dimension."""

    def __init__(self, size: int) -> None:
        self.size = size

    def Format(self) -> int:  # noqa: N802  # the schema's names
        return int(tflite.DimensionType.DENSE)

    def DenseSize(self) -> int:  # noqa: N802
        return self.size


@pytest.mark.parametrize(("limit", "fits"), [(12, True), (11, False)])
def test_places_are_limited(limit: int, fits: bool) -> None:
    if fits:
        sizes, rows = sparse._list_coordinates([Dense(4), Dense(3)], limit)
        assert sizes == (4, 3)
        assert rows.tolist() == [[i, j] for i in range(4) for j in range(3)]
        return
    with pytest.raises(ValueError, match="more than 11 places for the elements that are stored"):
        sparse._list_coordinates([Dense(4), Dense(3)], limit)


def test_limits_of_the_format() -> None:
    """The bounds on what a few stored elements may claim; tests above cross smaller ones."""
    assert (sparse.MAX_BYTES, sparse.MAX_ROWS) == (2**28, 2**20)


@pytest.mark.parametrize(("count", "fits"), [(8, True), (9, False)])
def test_bytes_are_limited(count: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mace_frontend_tflite.sparse.MAX_BYTES", 32)
    described = table(tmp_path, (0,), (), (([0, 1], [2]),))
    if fits:
        assert sparse.dense(np.ones(1, np.float32), (count,), described).tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
        return
    with pytest.raises(ValueError, match=r"1 sparse dimensions of a shape of \[9\]"):
        sparse.dense(np.ones(1, np.float32), (count,), described)
