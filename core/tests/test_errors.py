"""The errors that people see: one line for each fault, whatever is in a name."""

from __future__ import annotations

import pytest

from mace_core.errors import MaceError, PluginError


def test_a_message_is_place_problem_remedy() -> None:
    assert str(MaceError("file.yml:3", "has no value", "write one")) == "file.yml:3: has no value; write one"
    assert str(MaceError("file.yml:3", "has no value")) == "file.yml:3: has no value"
    assert str(MaceError("", "has no value", "write one")) == "has no value; write one"


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[2Jcleared", "a\rb", "bell\a"])
def test_a_name_cannot_look_like_another_message(name: str) -> None:
    text = str(MaceError(name, "is wrong"))
    assert len(text.splitlines()) == 1
    assert text.isprintable()


def test_several_faults_are_a_line_each() -> None:
    error = MaceError.of(str(MaceError(place, "is wrong")) for place in ("a", "b"))
    assert str(error).splitlines() == ["a: is wrong", "b: is wrong"]
    assert error.relocate("elsewhere") == str(error), "each fault has its own place"


def test_the_place_can_be_told_better() -> None:
    assert MaceError("inner", "is wrong", "correct it").relocate("outer") == "outer: is wrong; correct it"


def test_a_plugins_error_is_one_of_ours() -> None:
    with pytest.raises(MaceError, match="plugin 1: does not load"):
        raise PluginError("plugin 1", "does not load")
