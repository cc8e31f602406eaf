"""Shapes of inputs whose values a deployment file states."""

from __future__ import annotations

import pytest

from mace_core.ir import Shape
from mace_frontend_onnx.input_values import _with_one_open_axis


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ((), ()),
        ((2, 3), (2, 3)),
        ((-1,), (-1,)),
        ((-1, 3), (-1, 3)),
        ((3, -1), (3, -1)),
        ((-1, -1), (1, -1)),
        ((-1, 3, -1), (1, 3, -1)),
        ((-1, -1, 3), (1, 1, 3)),
        ((0, -1, -1), (0, 1, -1)),
    ],
)
def test_of_several_open_axes_the_last_one_alone_may_be_open(shape: Shape, found: Shape) -> None:
    assert _with_one_open_axis(shape) == found
