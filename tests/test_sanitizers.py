"""Generated C and the runtime under the address and undefined-behaviour sanitizers, on the shipped and on the real models."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from mace_core.api import Compiler
from mace_core.deployment import load_deployment
from mace_core.pipeline import Job, build
from mace_core.registry import Registry
from mace_core.run.built import Built
from mace_core.run.compile import program
from mace_core.run.runners import Native
from mace_core.testing.requirements import require

ROOT = Path(__file__).parents[1]
MODELS = Path(os.environ.get("MACE_MODELS", ROOT.parent / "shared" / "models"))
FILES = {
    "mnist": ("onnx2c_mnist/model.onnx", ""),
    "silero_vad": ("silero_vad/silero_vad_openvino_16k.onnx", ""),
    "ocr_angle": ("rapidocr/ch_ppocr_mobile_v2.0_cls_infer.onnx", "x: 1,3,48,192"),
    "ocr_text": ("rapidocr/ch_PP-OCRv4_rec_infer.onnx", "x: 1,3,48,320"),
    "ultraface": ("ultraface_rfb/version-RFB-320.onnx", ""),
}
FLAGS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(autouse=True)
def no_leak_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """mace_run keeps its memory until it ends, by design; the library itself allocates nothing that it could leak."""
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")


def clean(deployment: Path, folder: Path, library: str) -> None:
    """Build with the sanitizers and run every model on random input, with one thread and with three; a finding ends the program."""
    require(None if shutil.which("gcc") else "gcc is not installed: apt-get install gcc")
    registry = Registry.load()
    sources = build(Job(load_deployment(deployment), registry.select("host")[0]), registry)
    gcc = Compiler(("gcc",), ("ar",))
    tool = program("mace_run", sources, gcc, folder, (*FLAGS, f"-DMACE_LIBRARY={library}"))
    built = Built(tool.parent, Native(), json.loads(json.dumps(sources.report)))
    rng = np.random.default_rng(0)
    models = sources.report["models"]
    assert isinstance(models, dict)
    for name in models:
        inputs = {t.name: rng.uniform(-1, 1, (1, *t.shape)).astype(t.dtype.numpy) for t in built.model(name)["inputs"]}
        for threads in (1, 3):
            found = built.run(name, inputs, threads)
            assert all(np.isfinite(a).all() for a in found.values()), name


def test_digits(tmp_path: Path) -> None:
    clean(ROOT / "models/digits/digits.yml", tmp_path, "digits")


@pytest.mark.skipif(not MODELS.is_dir(), reason=f"no models in {MODELS}; MACE_MODELS names another folder")
def test_real_models(tmp_path: Path) -> None:
    text = "library_name: real\nmodels:\n"
    for name, (file, port) in FILES.items():
        tensor, _, shape = port.partition(": ")
        ports = f"input_tensors: {tensor}\n        input_shapes: {shape}" if port else "{}"
        text += f"  {name}:\n    model_file_path: {MODELS / file}\n    subgraphs:\n      - {ports}\n"
    (tmp_path / "real.yml").write_text(text)
    clean(tmp_path / "real.yml", tmp_path, "real")
