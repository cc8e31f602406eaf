"""Real networks, end to end: deployment file, scons, library, runner, beside their golden outputs."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from mace_core.deployment import Model
from mace_core.ir import Array
from mace_core.registry import Registry
from mace_core.run.built import Built
from mace_core.run.similarity import cosine, relative_error
from mace_core.run.validate import LARGEST_ERROR, LEAST_COSINE
from mace_core.testing.requirements import require

ROOT = Path(__file__).parents[1]
MODELS = Path(os.environ.get("MACE_MODELS", ROOT.parent / "shared" / "models"))
ULTRAFACE = MODELS / "ultraface_rfb/version-RFB-320.onnx"
EMULATED_SAMPLES = 2

GOLDEN = {
    "mnist": ("onnx2c_mnist/model.onnx", "onnx2c_mnist/golden_model_onnx.npz", "Input3: 1,1,28,28"),
    "silero_vad": ("silero_vad/silero_vad_openvino_16k.onnx", "silero_vad/golden_silero_vad_openvino_16k_onnx.npz", ""),
    "ocr_angle": (
        "rapidocr/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "rapidocr/golden_ch_ppocr_mobile_v2_0_cls_infer_onnx.npz",
        "x: 1,3,48,192",
    ),
    "ocr_text": ("rapidocr/ch_PP-OCRv4_rec_infer.onnx", "rapidocr/golden_ch_PP_OCRv4_rec_infer_onnx.npz", "x: 1,3,48,320"),
}
CHOICES = ("host", "arm64-v8a", "armeabi-v7a")
NAMES = (*GOLDEN, "ultraface")

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason=f"no models in {MODELS}; MACE_MODELS names another folder")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the deployment of all models lies."""
    path = tmp_path_factory.mktemp("models")
    text = "library_name: real\nmodels:\n"
    for name in NAMES:
        file, _, port = GOLDEN.get(name, (str(ULTRAFACE), "", ""))
        tensor, _, shape = port.partition(": ")
        ports = f"input_tensors: {tensor}\n        input_shapes: {shape}" if port else "{}"
        text += f"  {name}:\n    model_file_path: {MODELS / file}\n    subgraphs:\n      - {ports}\n"
    (path / "real.yml").write_text(text)
    return path


def build(folder: Path, choice: str) -> Built:
    """The library for a choice; built once."""
    (selected,) = Registry.load().select(choice)
    if selected.runner is None:
        pytest.skip(f"nothing executes {choice} here")
    require(selected.runner.missing())
    command = [sys.executable, "-m", "SCons", "-Q", "-j2", "-f", str(files("mace_core") / "SConstruct"), "deployment=real.yml"]
    done = subprocess.run([*command, f"target={choice}"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return Built.at(folder / "builds/real", choice, selected.runner)


def samples(built: Built, name: str) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs and expected outputs by name, each with a leading axis of samples."""
    ports = built.model(name)
    if name == "ultraface":
        reference = Registry.load().frontends["onnx"].reference((ULTRAFACE,), Model(name, (ULTRAFACE,)))
        assert reference is not None, "onnxruntime is a development requirement"
        image = np.random.default_rng(0).uniform(-1, 1, ports["inputs"][0].shape).astype(np.float32)
        return {"input": image[None]}, {n: a[None] for n, a in reference({"input": image}).items()}
    golden = np.load(MODELS / GOLDEN[name][1])
    count = sum(key.startswith("in_0_") for key in golden)
    stack = {k: [[golden[f"{k}_{i}_{s}"] for s in range(count)] for i in range(len(ports[f"{k}puts"]))] for k in ("in", "out")}
    return tuple({t.name: np.stack(a) for t, a in zip(ports[f"{k}puts"], stack[k], strict=True)} for k in ("in", "out"))  # type: ignore[return-value]


@pytest.mark.parametrize("choice", CHOICES)
def test_models_compute_what_their_framework_does(folder: Path, choice: str) -> None:
    built = build(folder, choice)
    for name in NAMES:
        inputs, expected = samples(built, name)
        if choice != "host":
            inputs, expected = ({n: a[:EMULATED_SAMPLES] for n, a in side.items()} for side in (inputs, expected))
        found = built.run(name, inputs)
        for output, array in expected.items():
            shaped = array.reshape(found[output].shape)
            assert cosine(found[output], shaped) > LEAST_COSINE, f"{name}/{output}"
            assert relative_error(found[output], shaped) < LARGEST_ERROR, f"{name}/{output}"


def test_arenas_are_as_small_as_can_be(folder: Path) -> None:
    report = build(folder, "host").report["models"]
    assert isinstance(report, dict)
    ratios = {name: figures["arena_bytes"] / figures["arena_lower_bound"] for name, figures in report.items()}
    assert set(ratios) == set(NAMES)
    assert max(ratios.values()) <= 1.05, ratios


def test_threads_change_no_bit(folder: Path) -> None:
    built = build(folder, "host")
    for name in NAMES:
        inputs, _ = samples(built, name)
        one = built.run(name, {n: a[:1] for n, a in inputs.items()})
        many = built.run(name, {n: a[:1] for n, a in inputs.items()}, threads=3)
        assert all(np.array_equal(one[n], many[n]) for n in one), name
