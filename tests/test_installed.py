"""Single wheels in a clean environment: what the workspace hides, such as files left out of a wheel, shows here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from mace_core.testing.requirements import require

ROOT = Path(__file__).parents[1]
KINDS = ("frontends", "targets", "toolchains", "plugins")


def run(*command: str, folder: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheels of core and all plugins, and nothing of the workspace."""
    require(None if shutil.which("uv") else "uv is not installed: pip install uv")
    folder = tmp_path_factory.mktemp("installed")
    for package in (ROOT / "core", *(p for kind in KINDS for p in sorted((ROOT / kind).iterdir()) if (p / "pyproject.toml").is_file())):
        run("uv", "build", "-q", "--wheel", "--out-dir", str(folder / "wheels"), str(package), folder=folder)
    run("uv", "venv", "-q", str(folder / "venv"), folder=folder)
    python = str(folder / "venv/bin/python")
    run("uv", "pip", "install", "-q", "--python", python, *map(str, (folder / "wheels").glob("*.whl")), folder=folder)
    return folder


def test_every_plugin_is_there_and_ready(clean: Path) -> None:
    listed = json.loads(run(str(clean / "venv/bin/mace"), "plugins", "--json", folder=clean))
    names = {p["distribution"] for p in listed}
    assert names == {"mace-core"} | {f"mace-{_kind(k)}-{p.name}" for k in KINDS for p in (ROOT / k).iterdir() if p.is_dir()}


def test_a_model_becomes_c_there(clean: Path) -> None:
    out = clean / "out"
    run(str(clean / "venv/bin/mace"), "convert", str(ROOT / "models/digits/digits.yml"), "--output", str(out), folder=clean)
    assert (out / "digits.h").is_file()
    assert (out / "digits_digits_weights.bin").stat().st_size > 20_000


def test_the_matrix_feeds_the_workflow(clean: Path) -> None:
    matrix = json.loads(run(str(clean / "venv/bin/mace"), "matrix", "--json", folder=clean))
    assert "host" in matrix["target"]
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert workflow["jobs"]["build"]["strategy"]["matrix"]["target"] == "${{ fromJSON(needs.matrix.outputs.target) }}"
    assert any("mace matrix --json" in step.get("run", "") for step in workflow["jobs"]["matrix"]["steps"])


def _kind(folder: str) -> str:
    return {"plugins": "transform"}.get(folder, folder.removesuffix("s"))
