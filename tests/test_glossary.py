"""The glossary: each term once, defined at a place that exists, in words that the project uses."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/glossary.md"
ROW = re.compile(r"^\| (?P<term>[^|]+) \| (?P<meaning>[^|]+) \| `(?P<place>[\w.]+)` \| (?P<others>[^|]+) \|$")
REQUIRED = {
    *("build", "model", "library", "deployment", "choice", "target", "part", "region", "plan", "session"),
    *("driver", "level", "kernel", "call", "lowering", "candidate", "transform", "phase", "port", "state"),
    *("manifest", "place", "layer", "unit", "project"),
}


def rows() -> list[re.Match[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    written = [line for line in lines if line.startswith("| ") and not line.startswith("| Term")]
    matches = [ROW.match(line) for line in written]
    assert None not in matches, written[matches.index(None)]
    return [match for match in matches if match]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["term"])
def test_a_term_is_defined_where_the_glossary_says(row: re.Match[str]) -> None:
    module, _, name = row["place"].rpartition(".")
    defined = getattr(import_module(module), name)
    assert defined.__doc__, f"{row['place']} has no docstring"


def test_each_term_stands_once() -> None:
    terms = [row["term"].lower() for row in rows()]
    assert sorted(terms) == sorted(set(terms))


def test_the_words_that_meant_several_things_are_terms() -> None:
    text = " ".join(f"{row['term']} {row['others']}".lower() for row in rows())
    assert [word for word in sorted(REQUIRED) if not re.search(rf"\b{word}\b", text)] == []


def test_names_in_the_page_exist_in_the_code() -> None:
    """Class names that rows mention besides the place of definition."""
    source = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "core/src").glob("**/*.py"))
    for name in re.findall(r"`(?:\w+\.)?([A-Z]\w+)`", PAGE.read_text(encoding="utf-8")):
        if name not in ("MACE_ABI",):
            assert re.search(rf"^\s*(?:class {name}\b|{name} = )", source, re.MULTILINE), name


def test_the_glossary_is_linked() -> None:
    assert "](glossary.md)" in (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
