"""Shapes as `mace init --shape` takes them."""

from __future__ import annotations

import pytest

from mace_core.errors import MaceError
from mace_core.new_deployment import parse_shapes


def test_a_shape_is_read_number_by_number_and_a_scalar_has_none() -> None:
    assert parse_shapes(["image=1,224,3", "a=b=7", "step="]) == {
        "image": (1, 224, 3),
        "a=b": (7,),
        "step": (),
    }


@pytest.mark.parametrize("text", ["x", "=1,2", "x=0", "x=1,,2", "x=-1", "x=1.5", "x=1234567890"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(MaceError, match=r"is not NAME=1,2,3; write the input's name"):
        parse_shapes([text])
