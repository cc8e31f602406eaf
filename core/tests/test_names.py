"""Names of libraries and models as C has them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mace_core.deployment.names import MAX_LENGTH, c_name, refusal


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("digits", "digits"),
        ("mobile-net v2.0", "mobile_net_v2_0"),
        ("2nd", "net_2nd"),
        ("_Reserved", "net_Reserved"),
        ("__x", "net__x"),
        ("_x", "_x"),
        ("größe", "gr__e"),
        ("a;b\n", "a_b_"),
    ],
)
def test_what_c_does_not_take_is_an_underscore(written: str, name: str) -> None:
    assert c_name(written) == name


@settings(max_examples=200, deadline=None)
@given(st.text(min_size=1, max_size=30))
def test_every_name_is_an_identifier_that_is_not_the_compilers(written: str) -> None:
    name = c_name(written)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
    assert not re.match(r"__|_[A-Z]", name)
    assert c_name(name) == name


@pytest.mark.parametrize("name", ["mace", "MACE", "Mace_Run", "con", "LPT1", "x" * (MAX_LENGTH + 1)])
def test_names_that_others_bear_are_refused(name: str) -> None:
    assert refusal(name)


@pytest.mark.parametrize("name", ["digits", "int", "mace2", "com10", "x" * MAX_LENGTH])
def test_other_names_are_taken(name: str) -> None:
    assert refusal(name) is None
