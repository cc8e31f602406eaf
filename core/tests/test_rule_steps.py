"""The steps of the rules: what they make and print without SCons."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.rule_steps import FAILED, describe_options, package_step, print_checks, summary_step


def test_a_package_holds_the_files_below_its_folder(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/lib.a").write_text("archive")
    step = package_step("all", tmp_path, [tmp_path / "one/lib.a"])
    assert step.products == ("all.tar.gz",)
    step.run(print)
    with tarfile.open(tmp_path / "all.tar.gz") as archive:
        assert [name for name in archive.getnames() if name.endswith("lib.a")] == ["one/lib.a"]


@pytest.mark.parametrize("name", ["../up", "a b", "", "-x", "$(x)"])
def test_a_package_needs_a_plain_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="not a file name"):
        package_step(name, tmp_path, [])


def test_no_rows_of_checks_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.json").write_text("[]")
    assert print_checks([tmp_path / "rows.json"]) == 0
    capsys.readouterr()


def test_a_model_that_was_not_validated_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"model": "net", "target": "host", "problem": "no data", "passed": False}
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    assert print_checks([tmp_path / "rows.json"]) == FAILED
    assert "net: not validated: no data" in capsys.readouterr().out


def test_a_summary_prints_its_lines_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    summary_step(["one for host: lib", "a\x1b[2Jb"]).run(print)
    assert capsys.readouterr().out == "one for host: lib\na\\x1b[2Jb\n"


def test_help_names_every_abi_and_target() -> None:
    registry = Registry.load()
    text = describe_options(registry)
    assert all(f"    {abi} " in text for abi in registry.abis())
    assert ", ".join(sorted(registry.targets)) in text
