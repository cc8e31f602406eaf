"""What tests of real builds share: a model that compiles at once, its deployment file, a compiler that does not optimize, and SCons."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[1]


def write_model(path: Path, scale: float = 1.0) -> None:
    """A 3 x 3 convolution whose filters are all `scale`."""
    weight = numpy_helper.from_array(np.full((2, 1, 3, 3), scale, np.float32), "w")
    ports = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [1, 1, 6, 6]), ("y", [1, 2, 4, 4]))
    ]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], "conv")], "net", ports[:1], ports[1:], [weight]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def write_deployment(folder: Path, library: str) -> Path:
    """The model NAME.onnx, its validation data and NAME.yml in a folder; gives the last."""
    write_model(folder / f"{library}.onnx")
    np.save(folder / "x.npy", np.ones((1, 1, 6, 6), np.float32))
    np.save(folder / "y.npy", np.full((1, 2, 4, 4), 9, np.float32))
    (folder / f"{library}.yml").write_text(
        f"library_name: {library}\nmodels:\n  net:\n    model_file_path: {library}.onnx\n    subgraphs:\n"
        "      - input_tensors: x\n        output_tensors: y\n"
        "        validation_inputs_data: x.npy\n        validation_outputs_data: y.npy\n"
    )
    return folder / f"{library}.yml"


def quick_environment(folder: Path) -> dict[str, str]:
    """An environment whose C compiler is that of this machine without optimization, which takes most of a build's time."""
    compiler = folder / "quick-cc"
    usual = next(path for name in ("cc", "gcc", "clang") if (path := shutil.which(name)))
    compiler.write_text(f'#!/bin/sh\nexec {usual} "$@" -O0\n')
    compiler.chmod(0o755)
    return {**os.environ, "CC": str(compiler)}


def run(command: list[str], folder: Path, environment: Mapping[str, str], status: int = 0) -> str:
    """What the command prints; fails the test unless it ends with the status."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


SCONS = [sys.executable, "-m", "SCons"]
MACE = [sys.executable, "-m", "mace_core.cli"]
