"""Every kind of model file, without `platform`, through the build and beside its own framework."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import mace

from mace_core.testing.requirements import require

KERAS = """
import keras
layers = keras.layers
net = keras.Sequential([
    keras.Input((16, 16, 3)), layers.Conv2D(8, 3, padding="same", activation="relu"), layers.BatchNormalization(), layers.MaxPool2D(),
    layers.Flatten(), layers.Dense(10, activation="softmax"),
])
net.export("saved", verbose=False)
net.save("net.keras")
net.save("net.h5")
"""
TORCH = """
import torch
nn = torch.nn
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10), nn.Softmax(1)).eval()
image = torch.zeros(1, 3, 16, 16)
torch.export.save(torch.export.export(net, (image,)), "net.pt2")
torch.jit.save(torch.jit.trace(net, image), "net.pt")
"""
SHAPED = '{input_tensors: x, input_shapes: "1,3,16,16", output_tensors: y}'


def made(folder: Path, framework: str, script: str) -> None:
    """Let a framework write its files."""
    require(
        None
        if find_spec(framework)
        else f"{framework} is not installed: uv sync --group frameworks, and pip install torch"
    )
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        env=quiet,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def validated(folder: Path, files: dict[str, str]) -> None:
    """Build a library of files, each with its subgraph, and compare with the frameworks."""
    models = "".join(
        f"  m{i}: {{model_file_path: {file}, subgraphs: [{how}]}}\n"
        for i, (file, how) in enumerate(files.items())
    )
    (folder / "all.yml").write_text(f"library_name: all\nmodels:\n{models}")
    mace(folder, "build", "all.yml")
    rows = json.loads(mace(folder, "validate", "all.yml", "--json"))
    assert [row["passed"] for row in rows] == [True] * len(files)
    assert all(row["cosine"] > 0.9999 for row in rows)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_keras_and_saved_models(tmp_path: Path) -> None:
    made(tmp_path, "keras", KERAS)
    validated(tmp_path, {"saved": "{}", "net.keras": "{}", "net.h5": "{}"})
    (data,) = (tmp_path / "saved/variables").glob("*.data-*")
    changed = bytearray(data.read_bytes())
    changed[-40:] = bytes(40)
    data.write_bytes(changed)
    assert "generating all" in mace(tmp_path, "build", "all.yml"), (
        "another checkpoint in the folder is another model"
    )


@pytest.mark.slow
@pytest.mark.exhaustive
def test_exported_and_scripted_modules(tmp_path: Path) -> None:
    made(tmp_path, "torch", TORCH)
    validated(tmp_path, {"net.pt2": "{}", "net.pt": SHAPED})


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("name", ["model.bin", "folder"])
def test_what_no_frontend_claims_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir() if name == "folder" else (tmp_path / name).write_bytes(b"?")
    (tmp_path / "all.yml").write_text(
        f"library_name: all\nmodels:\n  m: {{model_file_path: {name}, subgraphs: [{{}}]}}\n"
    )
    arguments = [sys.executable, "-m", "mace_core.cli", "check", "all.yml"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert (
        f"model 'm': 0 frontends claim '{name}'; set `platform:` to one of ai8x, caffe, keras, nnef, onnx, pytorch"
        in done.stderr
    )
