"""What a deployment file's schema accepts, in words, and lists that lie inside mappings."""

from __future__ import annotations

from pathlib import Path

import pytest

from mace_core.deployment.faults import Faults
from mace_core.deployment.schema import Part, Schema, describe_expected
from mace_core.deployment.values import Document


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"x-expects": "a file", "enum": ["a"]}, "a file"),
        ({"enum": ["a"]}, "a"),
        ({"enum": ["a", "b"]}, "a or b"),
        ({"enum": ["a", 3, ""]}, "a, 3 or nothing"),
        ({}, "text"),
    ],
)
def test_accepted_values_in_words(part: Part, words: str) -> None:
    assert describe_expected(part) == words


def test_items_of_a_list_inside_mappings() -> None:
    document = Document(
        {"a": {"b": [{"c": 1}, 2], "d": {}}, "b": [{"e": 5}]}, {}, Schema({}), Faults(Path("x"))
    )
    assert document.items("a", "b") == ({"c": 1},)
    assert document.items("a", "d") == document.items("none", "b") == ()
