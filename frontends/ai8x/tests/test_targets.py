"""Targets register themselves by entry points; the frontend finds them by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from mace_frontend_ai8x import targets
from mace_frontend_ai8x.cli import main


def test_installed_targets_have_what_the_frontend_asks_for() -> None:
    assert sorted(targets.list_described_targets()) == ["max78000", "max78002"]
    for name in targets.list_described_targets():
        target = targets.load_described_target(name)
        assert target is not None
        assert callable(target.add_limit_faults)
        assert callable(target.make_project)
        assert target.__name__.lower() == name


def test_a_target_that_is_not_installed_is_none() -> None:
    assert targets.load_described_target("max78001") is None


@pytest.mark.parametrize(
    ("device", "remedy"),
    [
        ("MAX78001", "name one of those that are installed: none"),
        ("MAX78002", "pip install mace-target-max78002"),
    ],
)
def test_the_tool_says_what_to_install(
    device: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "entry_points", lambda group: [])
    files = ["--config-file", "net.yaml", "--checkpoint-file", "net.pth.tar", "--test-dir", str(tmp_path)]
    told = CliRunner().invoke(main, ["synthesize", "--device", device, *files, "--prefix", "net"])
    assert told.exit_code == 2
    assert told.output == f"mace-ai8x: --device: no target for {device!r} is installed; {remedy}\n"
    assert list(tmp_path.iterdir()) == []
