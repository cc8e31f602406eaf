"""Composed operators against numpy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from mace_core.decompositions import (
    Steps,
    StridedSlice,
    apply,
    batch_to_space,
    nearest_places,
    nearest_resize,
    same_paddings,
    space_to_batch,
)
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.resize import ResizeAttributes, axis_taps
from mace_core.ops.slice import SliceAttributes
from mace_core.run.reference import execute


def run(steps: Steps, x: Array) -> Array:
    new = Builder("steps")
    graph = new.finish([apply(steps, new.input("x", DType.of(x), x.shape), new.one)])
    return execute(graph, {"x": x})[graph.outputs[0]]


def test_space_to_batch_takes_every_other_pixel() -> None:
    x = np.arange(2 * 5 * 6 * 3, dtype=np.float32).reshape(2, 5, 6, 3)
    actual = run(space_to_batch(x.shape, (2, 3), ((1, 0), (0, 0))), x)
    padded = np.pad(x, ((0, 0), (1, 0), (0, 0), (0, 0)))
    np.testing.assert_array_equal(
        actual, np.concatenate([padded[:, i::2, j::3] for i in range(2) for j in range(3)])
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


def test_same_padding_gives_as_many_windows_as_strides_fit() -> None:
    """By TensorFlow's definition: the least padding with which ceil(size / stride) windows fit, more of it at the end."""
    for size, reach, stride in product(range(1, 9), range(1, 6), range(1, 5)):
        ((before,), (after,)) = same_paddings((size,), (reach,), (stride,))
        windows = -(-size // stride)
        total = next(n for n in range(20) if size + n >= reach + (windows - 1) * stride)
        assert (before, after) == (total // 2, total - total // 2), (size, reach, stride)


def picked(how: StridedSlice, size: int) -> list[int]:
    """The elements of range(size) that the steps keep."""
    ((_, cut), (_, shaped)) = how.steps((size,))
    assert isinstance(cut, SliceAttributes)
    assert isinstance(shaped, ReshapeAttributes)
    assert shaped.shape == cut.sizes
    ((start, count, step),) = zip(cut.starts, cut.sizes, cut.steps, strict=True)
    assert count == 0 or (0 <= start < size and 0 <= start + (count - 1) * step < size)
    return [start + i * step for i in range(count)]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_every_slice_of_a_few_elements_is_pythons(size: int) -> None:
    ends = range(-size - 1, size + 2)
    for begin, end, stride in product(ends, ends, (-3, -1, 1, 2)):
        for first, last in product((False, True), repeat=2):
            how = StridedSlice((begin,), (end,), (stride,), begin_mask=int(first), end_mask=int(last))
            expected = list(range(size))[None if first else begin : None if last else end : stride]
            assert picked(how, size) == expected, how


@pytest.mark.parametrize("index", range(-4, 4))
def test_one_index_is_in_range_or_refused(index: int) -> None:
    how = StridedSlice((0, index), (0, 0), (1, 1), begin_mask=1, end_mask=1, shrink_mask=2)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    if -3 <= index < 3:
        np.testing.assert_array_equal(run(how.steps(x.shape), x), x[:, index])
    else:
        with pytest.raises(ValueError, match=f"index {index} of 3 elements"):
            how.steps(x.shape)


MASKS = (
    (StridedSlice((0, 0, 1), (0, 0, 2), (1, 1, 1), ellipsis_mask=2, shrink_mask=1), np.s_[0, ..., 1:2]),
    (StridedSlice((0, 1), (0, 2), (1, 1), ellipsis_mask=1, new_axis_mask=1), np.s_[..., 1:2]),
    (StridedSlice((0, 0), (0, 0), (1, 1), new_axis_mask=3, shrink_mask=1), np.s_[None, None]),
    (
        StridedSlice((1, 0, 0), (2, 0, 0), (1, 1, 1), new_axis_mask=2, begin_mask=2, end_mask=4),
        np.s_[1:2, None, 0:],
    ),
    (StridedSlice((0, 0, 0, 0), (1, 1, 1, 1), (1, 1, 1, 1), ellipsis_mask=4), np.s_[0:1, 0:1, ..., 0:1]),
    (StridedSlice((), (), ()), np.s_[()]),
)


@pytest.mark.parametrize(("how", "key"), MASKS)
def test_masks_are_items_between_the_brackets(how: StridedSlice, key: tuple[object, ...]) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(run(how.steps(x.shape), x), x[key])  # type: ignore[index]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (StridedSlice((0, 0), (1, 1), (1, 0)), "a stride of 0"),
        (StridedSlice((0,) * 3, (1,) * 3, (1,) * 3), "3 positions and 0 ellipses of a rank of 2"),
        (
            StridedSlice((0,) * 2, (1,) * 2, (1,) * 2, ellipsis_mask=3),
            "0 positions and 2 ellipses of a rank of 2",
        ),
    ],
)
def test_slices_that_mean_nothing_are_refused(how: StridedSlice, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        how.steps((5, 5))


@pytest.mark.parametrize("rest", [(), (3,), (3, 2)])
@pytest.mark.parametrize(
    ("block", "pads"), [((1,), ((0, 0),)), ((3,), ((2, 1),)), ((2, 1), ((0, 0), (1, 1)))]
)
def test_space_and_batch_of_every_rank(
    block: tuple[int, ...], pads: tuple[tuple[int, int], ...], rest: tuple[int, ...]
) -> None:
    shape = (2, *(6 for _ in block), *rest)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    there = run(space_to_batch(shape, block, pads), x)
    padded = np.pad(x, ((0, 0), *pads, *((0, 0) for _ in rest)))
    parts = [
        padded[(slice(None), *(slice(i, None, b) for i, b in zip(at, block, strict=True)))]
        for at in np.ndindex(block)
    ]
    np.testing.assert_array_equal(there, np.concatenate(parts))
    np.testing.assert_array_equal(run(batch_to_space(there.shape, block, pads), there), x)


@pytest.mark.parametrize(
    ("function", "shape", "block", "pads", "said"),
    [
        (space_to_batch, (1, 4, 4), (0, 2), ((0, 0), (0, 0)), r"blocks of \[0, 2\] with 2 paddings"),
        (space_to_batch, (1, 4, 4), (2, 2), ((0, 0),), r"blocks of \[2, 2\] with 1 paddings"),
        (space_to_batch, (1, 4), (2, 2), ((0, 0), (0, 0)), r"blocks of \[2, 2\] with 2 paddings"),
        (space_to_batch, (1, 4), (), (), r"blocks of \[\] with 0 paddings"),
        (space_to_batch, (1, 4, 4), (2, 2), ((1, 0), (0, 0)), r"\[5, 4\] in blocks of \[2, 2\]"),
        (batch_to_space, (4, 4, 4), (0, 2), ((0, 0), (0, 0)), r"a batch of 4 in blocks of \[0, 2\]"),
        (batch_to_space, (4, 4, 4), (2, 2), ((0, 0),), r"a batch of 4 in blocks of \[2, 2\]"),
        (batch_to_space, (4, 4), (2, 2), ((0, 0), (0, 0)), r"a batch of 4 in blocks of \[2, 2\]"),
        (batch_to_space, (6, 4, 4), (2, 2), ((0, 0), (0, 0)), r"a batch of 6 in blocks of \[2, 2\]"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(
    function: Callable[..., Steps], shape: tuple[int, ...], block: tuple[int, ...], pads: object, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        function(shape, block, pads)


OPTIONS = ((False, False), (False, True), (True, False))


@pytest.mark.parametrize(("corners", "centers"), OPTIONS)
def test_resize_stands_only_for_the_elements_that_the_kernels_select(corners: bool, centers: bool) -> None:
    """Both round in single precision, each in its own order: some sizes fall to another element."""
    equal = 0
    sizes = list(product(range(2, 60, 3), range(1, 150, 7)))
    for size, resized in sizes:
        attrs = ResizeAttributes((1, resized), (1.0, resized / size))
        resize = nearest_resize(attrs, (1, size), corners, centers)
        if resize:
            taps = axis_taps(resize, 1, size).indices[:, 0]
            np.testing.assert_array_equal(taps, nearest_places(size, resized, corners, centers))
            equal += 1
    assert 0.9 * len(sizes) < equal < len(sizes)


@pytest.mark.parametrize(
    ("size", "resized", "options", "place", "expected"),
    [
        # 41 * 2 / 82 is 1, but 2 / 82 rounds down in single precision.
        (2, 82, OPTIONS[0], 41, 0),
        (2, 82, OPTIONS[0], 42, 1),
        (4, 75, OPTIONS[2], 74, 3),
        (5, 3, OPTIONS[1], 2, 4),
        (5, 1, OPTIONS[2], 0, 0),
    ],
)
def test_nearest_places(
    size: int, resized: int, options: tuple[bool, bool], place: int, expected: int
) -> None:
    places = nearest_places(size, resized, *options)
    assert len(places) == resized
    assert places[place] == expected


def test_nothing_is_resized_to_nothing() -> None:
    assert nearest_resize(ResizeAttributes((1, 0), (1.0, 0.0)), (1, 4), False, False) is None
    assert nearest_places(4, 0, False, False).size == 0
