"""Time real models beside their framework and write docs/benchmarks.md: `uv run python benchmarks/models.py`.

Each model is built for this machine through the ordinary build, loaded into this process beside the
framework, and run in turn with it, one thread each, on the same random inputs. The models are looked for
where MACE_MODELS points, else in ../shared/models.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import sections

from mace_core.commands import BuiltModels, compare_speeds
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.results import Failure
from mace_core.run.runners import Native
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu

ROOT = Path(__file__).parents[1]
MODELS = Path(os.environ.get("MACE_MODELS", ROOT.parent / "shared" / "models"))
ROUNDS = 60

TABLE = (
    ("digits", ROOT / "models/digits/digits.onnx", ""),
    ("mnist", MODELS / "onnx2c_mnist/model.onnx", ""),
    ("silero_vad", MODELS / "silero_vad/silero_vad_openvino_16k.onnx", ""),
    ("ocr_angle", MODELS / "rapidocr/ch_ppocr_mobile_v2.0_cls_infer.onnx", "x: 1,3,48,192"),
    ("ocr_text", MODELS / "rapidocr/ch_PP-OCRv4_rec_infer.onnx", "x: 1,3,48,320"),
    ("ultraface", MODELS / "ultraface_rfb/version-RFB-320.onnx", ""),
    (
        "shufflenet_int8",
        MODELS / "onnxzoo_shufflenetv2_int8/shufflenet-v2-12-int8.onnx",
        "input: 1,3,224,224",
    ),
    ("mobilenet_uint8", MODELS / "coral_mobilenet_v2_1.0_224_quant/mobilenet_v2_1.0_224_quant.tflite", ""),
    ("resnet_int8", MODELS / "mlperf_ic/ic_int8.tflite", ""),
    ("keywords_int8", MODELS / "mlperf_kws/kws_int8.tflite", ""),
    ("autoencoder_int8", MODELS / "mlperf_ad/ad_int8.tflite", ""),
    ("lstm_int8", MODELS / "tflm_mnist_lstm/trained_lstm_int8.tflite", ""),
)
"""Name, file, and input with shape where the file leaves it open."""

FRAMEWORKS = {".onnx": "ONNX Runtime", ".tflite": "LiteRT"}

HEADING = "Libraries beside their frameworks"
HEAD = """
Written by `uv run python benchmarks/models.py`; run it again on your own machine. Milliseconds for one inference, median of {rounds}
rounds after a warm-up, one thread, ours and the framework's (one thread, all optimizations; LiteRT with XNNPACK) in one process in
turn. Both include the call from Python. Ratio: ours over the framework's; below 1 is faster. Library: the shared library with its
weights, stripped. The machine: {machine}.

| model | framework | ours ms | framework ms | ratio | arena bytes | library bytes |
|---|---|---|---|---|---|---|
"""


def deployment(folder: Path, name: str, file: Path, port: str) -> Path:
    """A deployment file for one model."""
    tensor, _, shape = port.partition(": ")
    ports = f"      - input_tensors: {tensor}\n        input_shapes: {shape}\n" if port else "      - {}\n"
    path = folder / f"{name}.yml"
    path.write_text(
        f"library_name: {name}\nmodels:\n  {name}:\n    model_file_path: {file}\n    subgraphs:\n{ports}"
    )
    return path


def row(folder: Path, name: str, file: Path, port: str) -> str:
    """Build, run, and write a line of the table."""
    path = deployment(folder, name, file, port)
    command = [sys.executable, "-m", "mace_core.cli", "build", str(path), "--builds", "builds"]
    subprocess.run(command, cwd=folder, check=True)  # noqa: S603  # our own build
    (found,) = compare_speeds(BuiltModels(path, "host", folder / "builds"), ROUNDS)
    if isinstance(found, Failure):
        raise SystemExit(found.problem)
    ours, theirs = found.median / 1e6, statistics.median(found.framework_ns) / 1e6
    arena = BuiltLibrary.open(folder / "builds" / name, "host", Native()).figures(name).arena_bytes
    size = (folder / "builds" / name / "lib/host" / f"lib{name}.so").stat().st_size
    return f"| {name} | {FRAMEWORKS[file.suffix]} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.2f} | {arena} | {size} |\n"


def machine() -> str:
    """Return the processor's name, where the system tells it, and the level of ours that it gets."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, 'unknown')}, level {levels_here(Cpu().levels('host'))[0].name}"


def main() -> None:
    """Write the table of the models that are there."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(Path(folder), name, file, port) for name, file, port in TABLE if file.is_file()]
    text = HEAD.format(rounds=ROUNDS, machine=machine()) + "".join(rows)
    sections.write(HEADING, text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
