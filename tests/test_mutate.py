"""The command that plants faults: every fault changes its file, and leaves it a program."""

from __future__ import annotations

import ast
import importlib.util
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


@pytest.mark.slow
@pytest.mark.parametrize("area", ["transforms", "cpu"])
def test_faults_are_repeatable_and_leave_a_program(area: str, tool: ModuleType) -> None:
    faults = tool.choose(area, "", 3, 40)
    assert faults == tool.choose(area, "", 3, 40)
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


@pytest.mark.slow
def test_a_survivor_and_a_caught_fault_are_told_apart(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small checkout of its own, with a test that sees one of its two lines."""
    source = tmp_path / "plugins/standard/src/small.py"
    source.parent.mkdir(parents=True)
    source.write_text("def seen():\n    return 1\n\n\ndef unseen():\n    return 2\n")
    tests = tmp_path / "plugins/standard/tests"
    tests.mkdir()
    (tests / "test_small.py").write_text(
        "from small import seen\n\n\ndef test_seen():\n    assert seen() == 1\n"
    )
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    faults = tool.choose("transforms", "", 1, 9)
    outcomes = tool.run(faults, 1, tool.Trial("not slow", near=True))
    told = {outcome.fault.before: (outcome.result, outcome.test) for outcome in outcomes}
    assert told == {"1": ("caught", "plugins/standard/tests/test_small.py::test_seen"), "2": ("survived", "")}
