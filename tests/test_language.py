"""The rules of names, sentences and density: `tools/language.py` finds what breaks them.

`uv run python tools/readability.py --faults PATH` prints the places of a file or folder.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from language import RULES, Source, check
from readability import duplicate_classes, import_cycles, read_imports, read_sources

ROOT = Path(__file__).parents[1]
BROKEN = {
    "riddles": ("told = 1", "def f(what): pass", "for held in ():\n    pass", "class C:\n    now: int"),
    "participles": ("def lowered(): pass", "def told(): pass", "def _along(): pass"),
    "phrases": ('"""A whole number of the maker."""', 'x = "program ended with 3"', "# it heeds the key"),
    "spelling": ("def normalise_axis(): pass", "# the colour of neighbours", 'x = "Synthesise"'),
    "nested-conditionals": ("x = 1 if a else 2 if b else 3", "x = (1 if a else 2) if b else 3"),
    "dense-comprehensions": (
        "x = [b for a in c for b in a]",
        "x = {a for a in c if a if b}",
        "x = [b for a in c if (b := a)]",
    ),
    "long-lines": (f"x = '{'x' * 106}'",),
}
KEPT = {
    "riddles": (
        "kept_names = 1",
        "def f(sorted_files): pass",
        "print(given.x)",
        "def __new__(cls): pass",
        "class CastAttributes:\n    to: str",
    ),
    "participles": ("class C:\n    @property\n    def quantized(self): pass", "def embed(): pass"),
    "phrases": ('"""Return an integer of the vendor."""', "ended = 3"),
    "spelling": ("def normalize_axis(): pass", "# promise, otherwise, precise"),
    "nested-conditionals": ("x = 1 if a else 2", "x = (1 if a else 2, 1 if b else 2)"),
    "dense-comprehensions": ("x = [b for b in [a for a in c if a] if b]", "if (b := a): pass"),
    "long-lines": (f"x = '{'x' * 104}'",),
}


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    """All shipped files. They are let go after these tests: the collector would go through them in every later one."""
    return read_sources(ROOT)


def faults(text: str, folder: Path) -> set[str]:
    file = folder / "module.py"
    file.write_text(text)
    return {fault.rule for fault in check(Source.read(file))}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_finds_what_breaks_it_and_nothing_else(rule: str, tmp_path: Path) -> None:
    for text in BROKEN[rule]:
        assert rule in faults(text, tmp_path), text
    for text in KEPT[rule]:
        assert rule not in faults(text, tmp_path), text


def test_no_shipped_file_breaks_a_rule(sources: list[Source]) -> None:
    assert [str(fault) for source in sources for fault in check(source)] == []


def test_no_public_class_is_defined_twice(sources: list[Source]) -> None:
    assert duplicate_classes(sources) == {}


def test_import_cycles_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "src/package"
    folder.mkdir(parents=True)
    for name, text in (
        ("a", "from package import b"),
        ("b", "import package.c"),
        ("c", "def f():\n    from package.a import x"),
        ("d", "import package.a"),
    ):
        (folder / f"{name}.py").write_text(text)
    read = [Source.read(file) for file in sorted(folder.iterdir())]
    assert import_cycles(read_imports(read)) == [["package.a", "package.b", "package.c"]]
