"""What executes a firmware in place of its board."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mace_core.build_manifest import check_buildable
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_target_max78000.device import MAX78000
from mace_target_max78000.emulator.command import main
from mace_target_max78000.target import Emulator, Max78000


def test_a_project_for_two_cores_is_written_and_refused_by_the_build() -> None:
    """`mace convert` writes it, and its Makefile builds it; no rule links its two programs."""
    plain, two = (
        Model(name, (), keys={"target_options": {"max78000": asked}})
        for name, asked in (("a", {}), ("b", {"riscv": True}))
    )
    first, second = Max78000().manifests("lib", [plain, two], "cortex-m4")
    assert first.refusal == ""
    assert "write it with `mace convert` and build it with its Makefile" in second.refusal
    assert "b/Makefile" in second.generated
    with pytest.raises(MaceError, match=r"b\.elf: a project for the RISC-V core is two programs"):
        check_buildable([first, second])


@pytest.mark.slow
def test_the_emulator_executes_no_module_of_the_working_folder(tmp_path: Path) -> None:
    for module in ("struct", "json", "numpy", "unicorn", "mace_target_max78000"):
        (tmp_path / f"{module}.py").write_text("open('executed', 'w').close()\n")
    command = Emulator("mace_target_max78000").command(Path("bin/absent/mace_run"), [])
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "model/absent.json" in done.stderr, done.stderr  # the first file that its own code opens
    assert not (tmp_path / "executed").exists()


def build_of(folder: Path, report: str) -> Path:
    """Write the report of a build without a firmware; returns its program."""
    program = folder / "bin" / "net" / "mace_run"
    (folder / "model").mkdir()
    program.parent.mkdir(parents=True)
    (folder / "model" / "net.json").write_text(report)
    return program


@pytest.mark.parametrize(
    ("report", "arguments", "problem"),
    [
        ("{", (), "net.json: is no report of a build; build the firmware again"),
        ("[]", (), "net.json: lists no models; build the firmware again"),
        ('{"models": {}}', (), "net.json: lists no models; build the firmware again"),
        (
            json.dumps({"models": {"a": {}, "b": {}}}),
            ("--model", "c"),
            "mace_run: has no model 'c'; name one of a, b",
        ),
        (
            json.dumps({"models": {"a": {}}}),
            (),
            "a.elf: the firmware cannot be read: No such file or directory; build it for this target",
        ),
    ],
)
def test_a_build_that_is_not_whole_is_told_in_one_line(
    report: str, arguments: tuple[str, ...], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(MAX78000, [str(build_of(tmp_path, report)), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(problem), line


@pytest.mark.parametrize(
    "name", ["mace_run", "nothing", ".", "/", "a/b/c.elf", "bin/net/mace_run", "x" * 5000]
)
def test_a_path_that_is_no_program_is_told_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(MAX78000, [name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is no program of a firmware" in line
    assert "name mace_run or mace_benchmark in the folder bin/LIBRARY of a build" in line


@pytest.mark.slow
def test_a_command_that_compiles_nothing_imports_no_compiler() -> None:
    """Every `mace` command makes the targets, so what these import costs each of them."""
    code = """
import sys
from mace_target_max78000 import mace_targets
assert [target.name for target in mace_targets()] == ["max78000"]
names = {name.split(".")[1] for name in sys.modules if name.startswith("mace_target_max78000.")}
print(*sorted(names))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["device", "options", "target", "vendor_options"]
