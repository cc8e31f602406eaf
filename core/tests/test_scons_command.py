"""How `mace build` starts SCons: with which words and environment, and what it gives back."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from mace_core.cli import main
from mace_core.run import scons_command


@pytest.mark.parametrize(
    ("words", "options"),
    [
        # Without --target SCons reads the ABIs from the deployment file, which nothing else reads then.
        ((), ["-j2", "builds=builds", "fallback=yes"]),
        (("--target", "arm64,host", "--builds", "b", "--jobs", "5", "--no-fallback"),
         ["-j5", "target=arm64,host", "builds=b", "fallback=no"]),
    ],
)  # fmt: skip
def test_build_starts_scons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], options: list[str]
) -> None:
    calls: list[list[str]] = []

    def run(command: list[str], env: dict[str, str], check: bool) -> SimpleNamespace:
        assert (env["MACE_TEST"], "SCONSFLAGS" in env, check) == ("1", False, False)
        calls.append(command)
        return SimpleNamespace(returncode=7)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MACE_TEST", "1")
    monkeypatch.setenv("SCONSFLAGS", "-n")
    monkeypatch.setattr(scons_command, "subprocess", SimpleNamespace(run=run))
    assert CliRunner().invoke(main, ["build", "digits.yml", *words]).exit_code == 7
    ((python, *command),) = calls
    assert python == sys.executable
    assert command[:5] == ["-P", "-m", "SCons", "--no-site-dir", "-Q"]
    assert command[5] == options[0]
    assert command[6] == "-f"
    assert Path(command[7]).name == "SConstruct"
    assert command[8:] == [f"deployment={tmp_path / 'digits.yml'}", *options[1:]]
