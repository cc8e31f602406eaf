"""Composed operators against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.decompositions import Steps, StridedSlice, apply, batch_to_space, same_paddings, space_to_batch
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType
from mace_core.run.reference import execute


def run(steps: Steps, x: Array) -> Array:
    new = Builder("steps")
    graph = new.finish([apply(steps, new.input("x", DType.of(x), x.shape), new.one)])
    return execute(graph, {"x": x})[graph.outputs[0]]


def test_space_to_batch_takes_every_other_pixel() -> None:
    x = np.arange(2 * 5 * 6 * 3, dtype=np.float32).reshape(2, 5, 6, 3)
    found = run(space_to_batch(x.shape, (2, 3), ((1, 0), (0, 0))), x)
    padded = np.pad(x, ((0, 0), (1, 0), (0, 0), (0, 0)))
    np.testing.assert_array_equal(
        found, np.concatenate([padded[:, i::2, j::3] for i in range(2) for j in range(3)])
    )


def test_batch_to_space_undoes_it() -> None:
    x = np.arange(2 * 5 * 6 * 3, dtype=np.float32).reshape(2, 5, 6, 3)
    there = run(space_to_batch(x.shape, (2, 3), ((1, 0), (0, 0))), x)
    np.testing.assert_array_equal(run(batch_to_space(there.shape, (2, 3), ((1, 0), (0, 0))), there), x)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (StridedSlice((1, 0), (4, 3), (2, 1)), lambda x: x[1:4:2, 0:3]),
        (StridedSlice((-1,), (0,), (-2,), end_mask=1), lambda x: x[-1::-2]),
        (StridedSlice((0, 2), (0, 0), (1, 1), begin_mask=1, end_mask=1, shrink_mask=2), lambda x: x[:, 2]),
        (
            StridedSlice((0, 0, 1), (0, 0, 3), (1, 1, 1), ellipsis_mask=1, new_axis_mask=2),
            lambda x: x[..., None, 1:3],
        ),
        (StridedSlice((3, 0), (1, 0), (1, 1), end_mask=2), lambda x: x[3:1]),
    ],
)
def test_strided_slices_are_numpys(how: StridedSlice, expected: object) -> None:
    x = np.arange(5 * 4 * 3, dtype=np.float32).reshape(5, 4, 3)
    assert callable(expected)
    np.testing.assert_array_equal(run(how.steps(x.shape), x), expected(x))


def test_what_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="in blocks of"):
        space_to_batch((1, 5, 5, 1), (2, 2), ((0, 0), (0, 0)))
    with pytest.raises(ValueError, match="in blocks of"):
        batch_to_space((3, 5, 5, 1), (2, 2), ((0, 0), (0, 0)))
    with pytest.raises(ValueError, match="index 9 of 5 elements"):
        StridedSlice((9,), (10,), (1,), shrink_mask=1).steps((5,))


def test_same_padding_puts_the_odd_one_last() -> None:
    assert same_paddings((5, 6), (3, 4), (2, 1)) == ((1, 1), (1, 2))
