"""Real models that tests compile for an OpenCL device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import load_deployment
from mace_core.ir import Graph
from mace_core.registry import Registry

MODELS = Path(os.environ.get("MACE_MODELS") or Path(__file__).parents[4] / "shared" / "models")
WHOLE = (
    "onnx2c_mnist/model.onnx",
    "mlperf_kws/kws_fp32.tflite",
    "mlperf_ic/ic_fp32.tflite",
    "mlperf_ad/ad_fp32.tflite",
    "ultraface_rfb/version-RFB-320.onnx",
    "silero_vad/silero_vad_16k_sequence.onnx",
    "silero_vad/silero_vad_openvino_16k.onnx",
    "tflm_mnist_lstm/trained_lstm_fp32.tflite",
    "tfls_movie_review/movie_review.tflite",
    "armkws_pb/DNN_S_core.pb",
    "armkws_pb/DS_CNN_S_core.pb",
)
"""Models that the device computes alone."""


SHAPED = {
    "mtcnn_caffe/det1.prototxt": None,
    "mtcnn_caffe/det2.prototxt": None,
    "mtcnn_caffe/det3.prototxt": None,
    "mlperf_ic/ic_frozen.pb": ("x_0", "1,32,32,3"),
    "mlperf_kws/kws_frozen.pb": ("x_0", "1,49,10,1"),
    "rapidocr/ch_ppocr_mobile_v2.0_cls_infer.onnx": ("x", "1,3,48,192"),
    "rapidocr/ch_PP-OCRv4_rec_infer.onnx": ("x", "1,3,48,320"),
}
"""More of these, with the name and the shape of an input whose shape the file leaves open.

UltraFace of Caffe and TensorFlow Lite is the network of `WHOLE` once more, and takes a minute to compile.
"""


def read_graph(name: str, folder: Path) -> Graph:
    """Return a model's graph as targets are asked for it."""
    path = MODELS / name
    if not path.exists():
        pytest.skip(f"no {path}; set MACE_MODELS to the folder of real models")
    lines = ["library_name: m", "models:", "  m:", f"    model_file_path: {path}"]
    if path.suffix == ".prototxt":
        lines.append(f"    weight_file_path: {path.with_suffix('.caffemodel')}")
    if shaped := SHAPED.get(name):
        lines += [
            "    subgraphs:",
            f"      - input_tensors: [{shaped[0]}]",
            f'        input_shapes: ["{shaped[1]}"]',
        ]
    (folder / "m.yml").write_text("\n".join(lines), encoding="utf-8")
    registry = Registry.load()
    (model,) = load_deployment(folder / "m.yml").models
    return compile_model(model, Compilation(registry.select("host")[0], registry)).graph
