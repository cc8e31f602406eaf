"""Lines of a deployment file that a message asks for: YAML reads them as they are meant."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mace_core.errors import MaceError
from mace_core.hints import is_complete, lines, refuse_shapes, shape_lines


@pytest.mark.parametrize(
    "name", ["x", "image_1", "no", "Yes", "1st", "495", "a:b", "a, b", "", "y", "null", "x'\"", "[0]"]
)
def test_yaml_reads_the_same_name(name: str) -> None:
    if name:
        assert yaml.safe_load(lines("input", [name, "other"])) == {"input_tensors": [name, "other"]}


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=12))
def test_yaml_reads_any_name(name: str) -> None:
    assert yaml.safe_load(lines("output", [name])) == {"output_tensors": [name]}


def test_shapes_stand_with_their_symbols() -> None:
    text = shape_lines({"a": (1, "batch", None), "b": None, "c": ()})
    assert yaml.safe_load(text) == {"input_tensors": ["a", "b", "c"], "input_shapes": ["1,batch,?", "?", ""]}


@pytest.mark.parametrize(
    ("dims", "complete"), [((1, 2), True), ((), True), ((1, None), False), ((1, "n"), False), (None, False)]
)
def test_is_complete(dims: tuple[int, ...] | None, complete: bool) -> None:
    assert is_complete(dims) is complete


def test_the_lines_end_the_message_where_a_shape_is_open() -> None:
    with pytest.raises(MaceError) as error:
        refuse_shapes("m", ["first", "second"], {"x": (1, None)})
    text = str(error.value)
    assert text.startswith(
        "m: first\nm: second; write in the deployment file, each name and ? replaced by a number:"
    )
    assert yaml.safe_load(text[text.index("\n  input") :]) == {
        "input_tensors": ["x"],
        "input_shapes": ["1,?"],
    }


def test_known_shapes_are_not_repeated_and_no_fault_is_no_error() -> None:
    with pytest.raises(MaceError) as error:
        refuse_shapes("m", ["first"], {"x": (1, 2)})
    assert str(error.value) == "m: first"
    refuse_shapes("m", [], {"x": None})
