"""The command that plants faults: every fault changes its file, and leaves it a program."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import faults
import mutate
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("area", ["transforms", "cpu"])
def test_faults_are_repeatable_and_leave_a_program(area: str) -> None:
    chosen = mutate.choose_in_area(ROOT, area, "", 3, 40)
    assert chosen == mutate.choose_in_area(ROOT, area, "", 3, 40)
    assert len(chosen) == 40
    for fault in chosen:
        start, end, text = fault.change
        data = (ROOT / fault.file).read_bytes()
        changed = data[:start] + text.encode() + data[end:]
        assert changed != data
        if fault.file.endswith(".py"):
            assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(data)), fault


def test_messages_and_annotations_are_left_alone() -> None:
    source = b"def f(x: tuple[int, 3]) -> int:\n    if x > 2:\n        raise ValueError(f'{x + 1}', 4)\n    return 5\n"
    changed = {source[start:end] for start, end, _ in faults.python_changes(source)}
    assert changed == {b"x > 2", b"2", b"5"}


def test_decorators_are_left_alone() -> None:
    """A dataclass that is not frozen computes the same; what a decorator of a test says is no fault of the code."""
    source = b"@dataclass(frozen=True)\nclass A:\n    n: int = 3\n\n    @mark(1)\n    def f(self):\n        return 5\n"
    assert {source[start:end] for start, end, _ in faults.python_changes(source)} == {b"3", b"5"}


def changes_of_c(text: str) -> list[tuple[str, str]]:
    """What is changed, and into what, in the order of the text."""
    result = sorted(set(faults.c_changes(text.encode())))
    return [(text[start:end].strip(), new.strip()) for start, end, new in result]


@pytest.mark.parametrize(
    ("text", "operators"),
    [
        ("n = a < b ? a : b;", [">"]),
        ("n = end - i < LANES ? (int32_t)(end - i) : LANES;", ["+", ">", "+"]),
        ("f(x[i] >= best ? x[i] : best)", ["<="]),
        ("return v < low ? low : v > high ? high : v;", [">", "<"]),
        ("n = a < b ? a : c;", ["<="]),
        ("n = 2 * a < b ? a : b;", ["3", "+", "<="]),
        ("n = room < low ? low : room / step;", ["<="]),
        ("n = x && a < b ? a : b;", ["||", "<="]),
    ],
)
def test_of_two_numbers_the_other_extreme_is_planted(text: str, operators: list[str]) -> None:
    """`<=` chooses between equals where the branches are the operands, and only there."""
    assert [new for _, new in changes_of_c(text)] == operators


def test_lengths_of_declared_arrays_are_left_alone() -> None:
    text = "int32_t at[3] = {7}, *last[4];\nfloat x[2];\nf(at[5], y);\nreturn at[6];\n"
    assert [old for old, _ in changes_of_c(text)] == ["7", "5", "6"]


SMALL = "def seen():\n    return 1\n\n\ndef unseen():\n    return 2\n\n\ndef executed():\n    return 3\n\n\ndef idle():\n    return 4\n"
SMALL_TEST = """\
from small import executed, idle, seen

def test_executed():
    idle()
    assert executed()

def test_seen():
    idle()
    assert seen() == 1

def test_that_fails_anyway():
    assert seen() == 5
"""
EQUIVALENTS = """\
- file: plugins/standard/src/small.py
  line: return 4
  change: 4 -> 5
  reason: nobody reads it
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_what_becomes_of_faults_whatever_is_edited_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small checkout with a test that sees one of its four lines; its source goes once the faults are chosen."""
    source, tests = tmp_path / "plugins/standard/src/small.py", tmp_path / "plugins/standard/tests"
    source.parent.mkdir(parents=True)
    source.write_text(SMALL)
    tests.mkdir()
    (tests / "test_small.py").write_text(SMALL_TEST)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/equivalent_faults.yaml").write_text(EQUIVALENTS)
    choose = mutate.choose_in_area

    def choose_then_edit(*words: Any) -> list[faults.Fault]:
        chosen = choose(*words)
        source.write_text("")
        return chosen

    outcomes = tmp_path / "outcomes.json"
    options = [
        "--area",
        "transforms",
        "--jobs",
        "1",
        "--near",
        "--marks",
        "not slow",
        "--json",
        str(outcomes),
    ]
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    monkeypatch.setattr(mutate, "choose_in_area", choose_then_edit)
    monkeypatch.setattr(sys, "argv", ["mutate.py", *options])
    assert mutate.main() == 0
    test = "plugins/standard/tests/test_small.py::test_"
    told = {o["fault"]["before"]: (o["result"], o["detail"]) for o in json.loads(outcomes.read_text())}
    assert told == {
        "1": ("caught", f"{test}seen"),
        "2": ("survived", "0 tests"),  # no test executes it
        "3": ("survived", "2 tests"),
        "4": ("equivalent", "nobody reads it"),
    }
    printed = capsys.readouterr().out
    assert f"fails without a fault: {test}that_fails_anyway" in printed
    assert "2 survivors\nsurvived" in printed
    assert printed.endswith("total             1 of    3 caught   33.3 %  1 without effect\n")


@pytest.mark.parametrize(
    ("text", "function"),
    [("1", 0), ("2", 2), ("3", 2), ("4", 1), ("5", 7), ("6", 0)],
    ids=["default", "body", "body's second line", "after a nested function", "method", "class"],
)
def test_the_function_that_executes_a_change(text: str, function: int) -> None:
    """Lines: a function with a nested one, then a class with a decorated method."""
    nested = "def f(a=1):\n    def g():\n        x = 2\n        return 3\n    return 4\n"
    source = f"{nested}class C:\n    @wrap\n    def h(self):\n        return 5\n    n = 6\n"
    assert faults.function_at(source.encode(), source.index(text)) == function


def test_keywords_that_only_guard_are_left_alone() -> None:
    source = b"zip(a, b, strict=True)\nopen(a, closefd=False)\nfield(repr=False)\n"
    assert {source[start:end] for start, end, text in faults.python_changes(source) if text != "pass"} == {
        b"False"
    }


def test_the_length_that_is_left_to_reshape_is_left_alone() -> None:
    source = b"a = x.reshape(-1)\nb = x.reshape((2, -1), order=3)\nc = x.reshape(y[-4], 5).sum(-6)\n"
    changed = {source[start:end] for start, end, _ in faults.python_changes(source)}
    assert changed == {b"2", b"3", b"4", b"5", b"6"}


def test_faults_without_effect_are_still_in_the_sources() -> None:
    """An entry whose line was changed says nothing any more."""
    for entry in mutate.read_equivalents(ROOT / "tools/equivalent_faults.yaml"):
        lines = (ROOT / entry["file"]).read_text(encoding="utf-8").splitlines()
        assert entry["line"] in [line.strip() for line in lines], entry
        assert len(entry["reason"]) > 20, entry


def test_each_area_lists_stages_that_exist() -> None:
    """A renamed folder or file would leave an area without its tests, and all its faults would survive."""
    listed = {stage for _, stages in mutate.AREAS.values() for stage in stages}
    assert sorted(stage for stage in listed if not (ROOT / stage).exists()) == []


def test_a_file_listed_by_itself_runs_with_its_exhaustive_tests() -> None:
    stages = mutate.stages_of(ROOT, "onnx", near=True)
    marks = mutate.tests_of_stages(ROOT, stages, "not slow and not exhaustive")
    assert marks.pop("frontends/onnx/tests/test_backend_cases.py") == "not slow"
    assert set(marks.values()) == {"not slow and not exhaustive"}
