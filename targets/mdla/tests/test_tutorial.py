"""The tutorial of docs/mdla.md, from a model to a library for a Genio board, command by command."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_arm64 import arm_compiler

from mace_core.cli import main

PAGE = Path(__file__).parents[3] / "docs/mdla.md"
MODELS = Path(os.environ.get("MACE_MODELS") or Path(__file__).parents[4] / "shared" / "models")


def tutorial() -> tuple[str, list[list[str]]]:
    """The deployment file of the tutorial, and the words of each command."""
    section = PAGE.read_text(encoding="utf-8").split("\n## ")[1]
    assert section.startswith("From a model to a Genio board")
    (deployment,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    lines = re.findall(r"^    (mace .*)$", section, re.MULTILINE)
    return deployment, [shlex.split(line) for line in lines]


def test_the_tutorial_asks_builds_and_reads_the_ledger() -> None:
    _, commands = tutorial()
    assert [words[1] for words in commands] == ["lint", "lint", "lint", "build", "explain", "build"]


@pytest.mark.emulator
@pytest.mark.slow
def test_every_command_of_the_tutorial_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arm_compiler()
    model = MODELS / "mlperf_ic/ic_int8.tflite"
    if not model.exists():
        pytest.skip(f"no {model}; set MACE_MODELS to the folder of real models")
    deployment, commands = tutorial()
    shutil.copy(model, tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vision.yml").write_text(deployment, encoding="utf-8")
    for words in commands:
        result = CliRunner().invoke(main, words[1:])
        assert result.exit_code == 0, f"{shlex.join(words)}\n{result.output}"
    (library,) = tmp_path.rglob("libvision.so")
    # 183 is the machine of 64-bit ARM in the header of an ELF file.
    assert library.read_bytes()[18:20] == (183).to_bytes(2, "little")
    assert b"libneuron_adapter.so" in library.read_bytes()
