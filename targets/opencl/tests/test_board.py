"""`mace validate` with the programs on a board, which a script in the place of ssh stands for, and its device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from opencl_device import require_device
from opencl_models import MODELS

SSH = '#!/bin/sh\necho "$3 $4" >> "$SSH_LOG"\nshift 4\nexec sh -c "$1"\n'
DEPLOYMENT = """\
library_name: vision
models:
  digits:
    model_file_path: {model}
    runtime: gpu
"""


def run_mace(folder: Path, *words: str) -> str:
    """Run the command in a folder, with the board in its environment; returns what it prints."""
    environment = {
        **os.environ,
        "MACE_BOARD": "pi@board",
        "PATH": f"{folder}:{os.environ['PATH']}",
        "SSH_LOG": str(folder / "log"),
    }
    command = [sys.executable, "-P", "-m", "mace_core.cli", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.device
@pytest.mark.exhaustive
def test_a_device_of_a_board_is_validated(tmp_path: Path) -> None:
    require_device()
    model = MODELS / "onnx2c_mnist" / "model.onnx"
    if not model.exists():
        pytest.skip(f"no {model}; set MACE_MODELS to the folder of real models")
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH, encoding="utf-8")
    ssh.chmod(0o755)
    (tmp_path / "v.yml").write_text(DEPLOYMENT.format(model=model), encoding="utf-8")
    run_mace(tmp_path, "build", "v.yml", "--target", "host+opencl")
    assert not (tmp_path / "log").exists(), "a build needs no board"
    told = run_mace(tmp_path, "validate", "v.yml", "--target", "host+opencl")
    (row,) = [line for line in told.splitlines() if line.split()[:2] == ["digits", "host+opencl"]]
    assert row.endswith("passed")
    assert (tmp_path / "log").read_text(encoding="utf-8").splitlines()[0] == "-- pi@board"
