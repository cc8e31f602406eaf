"""Firmware from a deployment file: built by SCons, executed without its board."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import mace
from manifest import MODELS, entries

from mace_core.registry import Registry
from mace_core.testing.requirements import require

DIGITS = Path(__file__).parents[1] / "models" / "digits"
PARTS = ("max78000", "max78002")
SAMPLES = 3


@pytest.fixture(autouse=True)
def compiler() -> None:
    chains = Registry.load().abis()["cortex-m4"]
    require(
        None
        if any(chain.missing("cortex-m4") is None for chain in chains)
        else "no compiler for cortex-m4: pip install ziglang"
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    shutil.copytree(DIGITS, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("builds"))
    for name in ("test_inputs.npy", "test_outputs.npy"):
        np.save(folder / name, np.load(folder / name)[:SAMPLES])
    return folder


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", PARTS)
def test_digits_from_model_to_results(part: str, project: Path) -> None:
    built = mace(project, "build", "digits.yml", "--target", part)
    assert "linking" in built
    (row,) = json.loads(mace(project, "validate", "digits.yml", "--target", part, "--json"))
    assert row["passed"]
    assert row["cosine"] > 0.999
    assert "compiling" not in mace(project, "build", "digits.yml", "--target", part)


FLOATS = ("input_1", "Identity")
STORED = ("input_1_int8", "Identity_int8")


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("model", "ports", "part"),
    [
        ("ic_fp32", FLOATS, "max78000"),
        ("ic_int8", STORED, "max78000"),
        ("kws_fp32", FLOATS, "max78000"),
        ("kws_fp32", FLOATS, "max78002"),
        ("ad_fp32", FLOATS, "max78000"),
    ],
)
def test_models_that_nobody_laid_out(model: str, ports: tuple[str, str], part: str, tmp_path: Path) -> None:
    """The MLPerf Tiny networks as they are: quantised, placed, compiled and executed.

    Beside the model's own results.
    """
    entry = next((e for e in entries() if e.file.endswith(f"{model}.tflite")), None)
    if entry is None:
        pytest.skip(f"no models in {MODELS}; MACE_MODELS names another folder")
    for kind, name in (("in_", "inputs"), ("out_", "outputs")):
        np.save(
            tmp_path / f"{name}.npy",
            np.concatenate([a for n, a in entry.golden.items() if n.startswith(kind)]),
        )
    (tmp_path / "net.yml").write_text(
        f"library_name: net\nmodels:\n  net:\n    model_file_path: {MODELS / entry.file}\n    subgraphs:\n"
        f"      - input_tensors: {ports[0]}\n        output_tensors: {ports[1]}\n"
        "        validation_inputs_data: inputs.npy\n        validation_outputs_data: outputs.npy\n"
    )
    mace(tmp_path, "build", "net.yml", "--target", part)
    (row,) = json.loads(mace(tmp_path, "validate", "net.yml", "--target", part, "--json"))
    assert row["cosine"] > 0.995


@pytest.mark.exhaustive
def test_layers_are_compared_as_far_as_firmware_shows_them(project: Path) -> None:
    """Every tensor as it was read, and what the firmware computes: its results."""
    mace(project, "build", "digits.yml", "--target", "max78000")
    rows = json.loads(mace(project, "validate", "digits.yml", "--target", "max78000", "--layers", "--json"))
    computed = [row for row in rows if row["stage"] == "computed"]
    assert len(computed) == 1
    assert all(row["passed"] for row in rows)


@pytest.mark.slow
def test_explain_shows_the_memory_map(project: Path) -> None:
    text = mace(project, "explain", "digits.yml", "--target", "max78000")
    assert "Weight memory" in text
    assert "processors" in text


@pytest.mark.exhaustive
def test_a_corrupted_weight_fails_the_known_answer_test(project: Path) -> None:
    mace(project, "build", "digits.yml", "--target", "max78000")
    firmware = project / "builds/digits/bin/max78000/digits.elf"
    data = bytearray(firmware.read_bytes())
    weights = (project / "builds/digits/gen/max78000/digits/weights.h").read_text()
    first, second = (
        int(word, 16).to_bytes(4, "little") for word in re.findall(r"0x([0-9a-f]{8})", weights)[1:3]
    )
    at = data.index(first + second)
    data[at] ^= 0x80
    firmware.write_bytes(data)
    command = [sys.executable, "-m", "mace_core.cli", "validate", "digits.yml", "--target", "max78000"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    firmware.unlink()
    assert done.returncode == 2
    assert "known-answer test" in done.stderr


@pytest.mark.slow
def test_every_fault_of_a_model_at_once(tmp_path: Path) -> None:
    """Two layers that the accelerator lacks: both are named, and nothing is written."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    conv = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first"),
        helper.make_node("Sin", ["a"], ["b"], name="curve"),
        helper.make_node("Exp", ["b"], ["c"], name="growth"),
        helper.make_node("Relu", ["c"], ["y"], name="last"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])
    model = helper.make_model(
        helper.make_graph(nodes, "strange", [x], [y], [conv]), opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(model, tmp_path / "strange.onnx")
    (tmp_path / "strange.yml").write_text(
        "library_name: strange\nmodels:\n  strange:\n    model_file_path: strange.onnx\n"
    )
    command = [sys.executable, "-m", "mace_core.cli", "check", "strange.yml", "--target", "max78000"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "curve" in done.stderr
    assert "growth" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["strange.onnx", "strange.yml"]
