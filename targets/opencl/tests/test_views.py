"""Views: the place of each element of a result in the tensor that it is read from."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mace_core.ir import Array
from mace_target_opencl.views import View, dense

SHAPES = st.lists(st.integers(1, 4), max_size=5).map(tuple)


def evaluate(view: View, elements: int) -> list[int]:
    """Return the place of each element, by the C expression that kernels contain."""
    text = re.sub(r"\(int\)|(?<=\d)u", "", str(view.locate("i"))).replace("/", "//")
    return [eval(text, {"i": i}) for i in range(elements)]


def places(shape: tuple[int, ...]) -> Array:
    return np.arange(prod(shape)).reshape(shape)


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.data())
def test_a_transposed_tensor_is_found_by_its_strides(shape: tuple[int, ...], data: st.DataObject) -> None:
    perm = data.draw(st.permutations(range(len(shape))))
    view = View.of((shape[axis], dense(shape)[axis]) for axis in perm)
    assert evaluate(view, prod(shape)) == places(shape).transpose(perm).reshape(-1).tolist()


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.data())
def test_an_operand_is_broadcast_as_numpy_does_it(out: tuple[int, ...], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(out)))
    shape = tuple(data.draw(st.sampled_from([1, size])) for size in out[start:])
    expected = np.broadcast_to(places(shape), out).reshape(-1).tolist()
    assert evaluate(View.broadcast(shape, out), prod(out)) == expected


def test_negative_strides_walk_back_from_the_offset() -> None:
    assert evaluate(View.of([(3, -2), (2, 1)], offset=4), 6) == [4, 5, 2, 3, 0, 1]


def test_neighbors_that_one_stride_serves_are_one_axis() -> None:
    assert View.of([(2, 12), (3, 4), (1, 7), (4, 1)]) == View((24,), (1,))
    assert View.of([(1, 5), (1, 5)]) == View((), ())


@pytest.mark.parametrize(
    ("view", "can_load"),
    [
        (View((8,), (1,)), True),
        (View((3, 4), (4, 1)), True),
        (View((2, 6), (0, 1)), False),
        (View((4, 8), (1, 0)), True),
        (View((8,), (2,)), False),
        (View((), ()), True),
    ],
)
def test_four_elements_are_loaded_at_once_where_they_lie_in_a_row(view: View, can_load: bool) -> None:
    assert view.can_load(4) is can_load


def test_only_all_elements_in_their_order_are_an_identity() -> None:
    assert View((5,), (1,)).is_identity
    assert View((), ()).is_identity
    assert not View((5,), (1,), 2).is_identity
    assert not View((5,), (0,)).is_identity
    assert not View((2, 3), (1, 2)).is_identity
