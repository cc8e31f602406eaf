"""The command that plants faults: every fault changes its file, and leaves it a program."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutate_tool", ROOT / "tools/mutate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate_tool"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("area", ["transforms", "cpu"])
def test_faults_are_repeatable_and_leave_a_program(area: str, tool: ModuleType) -> None:
    faults = tool.choose(ROOT, area, "", 3, 40)
    assert faults == tool.choose(ROOT, area, "", 3, 40)
    assert len(faults) == 40
    for fault in faults:
        start, end, text = fault.change
        data = (ROOT / fault.file).read_bytes()
        changed = data[:start] + text.encode() + data[end:]
        assert changed != data
        if fault.file.endswith(".py"):
            assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(data)), fault


def test_messages_and_annotations_are_left_alone(tool: ModuleType) -> None:
    source = b"def f(x: tuple[int, 3]) -> int:\n    if x > 2:\n        raise ValueError(f'{x + 1}', 4)\n    return 5\n"
    changed = {source[start:end] for start, end, _ in tool.python_changes(source)}
    assert changed == {b"x > 2", b"2", b"5"}


def test_decorators_are_left_alone(tool: ModuleType) -> None:
    """A dataclass that is not frozen computes the same; what a decorator of a test says is no fault of the code."""
    source = b"@dataclass(frozen=True)\nclass A:\n    n: int = 3\n\n    @mark(1)\n    def f(self):\n        return 5\n"
    assert {source[start:end] for start, end, _ in tool.python_changes(source)} == {b"3", b"5"}


TEST = "from small import seen\n\n\ndef test_seen():\n    assert seen() == 1\n"


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_survivor_and_a_caught_fault_are_told_apart_whatever_is_edited_meanwhile(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small checkout with a test that sees one of its two lines; its source goes once the faults are chosen."""
    source, tests = tmp_path / "plugins/standard/src/small.py", tmp_path / "plugins/standard/tests"
    source.parent.mkdir(parents=True)
    source.write_text("def seen():\n    return 1\n\n\ndef unseen():\n    return 2\n")
    tests.mkdir()
    (tests / "test_small.py").write_text(TEST)
    choose = tool.choose

    def choose_then_edit(*words: object) -> object:
        faults = choose(*words)
        source.write_text("")
        return faults

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
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "choose", choose_then_edit)
    monkeypatch.setattr(sys, "argv", ["mutate.py", *options])
    assert tool.main() == 0
    told = {o["fault"]["before"]: (o["result"], o["test"]) for o in json.loads(outcomes.read_text())}
    assert told == {"1": ("caught", "plugins/standard/tests/test_small.py::test_seen"), "2": ("survived", "")}


def test_each_area_lists_stages_that_exist(tool: ModuleType) -> None:
    """A renamed folder or file would leave an area without its tests, and all its faults would survive."""
    listed = {stage for _, stages in tool.AREAS.values() for stage in stages}
    assert sorted(stage for stage in listed if not (ROOT / stage).exists()) == []


def test_a_file_listed_by_itself_runs_with_its_exhaustive_tests(tool: ModuleType) -> None:
    trial = tool.Trial("not slow and not exhaustive", near=True)
    folder, file = tool.stages_of(ROOT, "onnx", near=True)
    assert file.endswith(".py")
    assert [trial.marks_of(folder), trial.marks_of(file)] == ["not slow and not exhaustive", "not slow"]
