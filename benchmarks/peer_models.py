"""The models that peers.py measures: generated image networks, MLPerf Tiny, small ones, others by name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("MACE_MODELS", ROOT.parent / "shared" / "models"))


BFLOAT = "bfloat16"


@dataclass(frozen=True)
class PeerModel:
    """A model with the files in which it exists; at least one.

    dtype: "float32", "int8", or "bfloat16": a file of floats, whose products runtimes compute in bfloat16.
    set: "image", "tiny" or "small", which are measured unless names are given, or "more".
    port: input and shape, "NAME: 1,3,224,224", where a file leaves it open.
    network: its name in imagenet.py, which writes the files.
    """

    name: str
    dtype: str
    set: str
    onnx: Path | None = None
    tflite: Path | None = None
    port: str = ""
    network: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files; that which ours is built from comes first."""
        return tuple(file for file in (self.onnx, self.tflite) if file)


IMAGE_NETWORKS = ("mobilenet_v1", "mobilenet_v2", "squeezenet", "resnet18", "resnet50", "vww")
TINY = {"ic": "mlperf_ic", "kws": "mlperf_kws", "ad": "mlperf_ad"}
STORED = (
    PeerModel("digits", "float32", "small", onnx=ROOT / "models/digits/digits.onnx"),
    PeerModel("mnist", "float32", "small", onnx=SHARED / "onnx2c_mnist/model.onnx"),
    PeerModel("lstm_int8", "int8", "small", tflite=SHARED / "tflm_mnist_lstm/trained_lstm_int8.tflite"),
    PeerModel("silero_vad", "float32", "more", onnx=SHARED / "silero_vad/silero_vad_openvino_16k.onnx"),
    PeerModel(
        "ocr_angle",
        "float32",
        "more",
        onnx=SHARED / "rapidocr/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        port="x: 1,3,48,192",
    ),
    PeerModel(
        "ocr_text",
        "float32",
        "more",
        onnx=SHARED / "rapidocr/ch_PP-OCRv4_rec_infer.onnx",
        port="x: 1,3,48,320",
    ),
    PeerModel("ultraface", "float32", "more", onnx=SHARED / "ultraface_rfb/version-RFB-320.onnx"),
    PeerModel(
        "shufflenet_int8",
        "int8",
        "more",
        onnx=SHARED / "onnxzoo_shufflenetv2_int8/shufflenet-v2-12-int8.onnx",
        port="input: 1,3,224,224",
    ),
    PeerModel(
        "mobilenet_uint8",
        "int8",
        "more",
        tflite=SHARED / "coral_mobilenet_v2_1.0_224_quant/mobilenet_v2_1.0_224_quant.tflite",
    ),
)


def list_models(folder: Path) -> tuple[PeerModel, ...]:
    """Return all models; the generated ones lie in the folder once `prepare` has written them."""
    models: list[PeerModel] = []
    for network in IMAGE_NETWORKS:
        for suffix, dtype in (("", "float32"), ("_int8", "int8")):
            stem = folder / f"{network}{suffix}"
            kind = "tiny" if network == "vww" else "image"
            onnx, tflite = stem.with_suffix(".onnx"), stem.with_suffix(".tflite")
            models.append(PeerModel(stem.name, dtype, kind, onnx, tflite, network=network))
        floats = models[-2]
        models.append(replace(floats, name=f"{floats.name}_bf16", dtype=BFLOAT, set="more"))
    for name, place in TINY.items():
        for suffix, dtype in (("fp32", "float32"), ("int8", "int8")):
            own = name if suffix == "fp32" else f"{name}_int8"
            models.append(PeerModel(own, dtype, "tiny", tflite=SHARED / place / f"{name}_{suffix}.tflite"))
    return (*models, *STORED)


def choose_models(models: Iterable[PeerModel], names: list[str]) -> list[PeerModel]:
    """Return the models of these names or sets, "float32" and "int8" too; without names all but "more".

    SystemExit with all names for one that is unknown.
    """
    every = list(models)
    known = {word for model in every for word in (model.name, model.set, model.dtype)} | {"all"}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"--model {','.join(unknown)}: unknown; choose of {', '.join(sorted(known))}")
    if not names:
        return [model for model in every if model.set != "more"]
    return [
        model for model in every if "all" in names or {model.name, model.set, model.dtype}.intersection(names)
    ]


def prepare(model: PeerModel) -> str:
    """Write the files of a generated model that are missing; return why it cannot be measured, or ""."""
    if model.network and not all(file.is_file() for file in model.files):
        import imagenet

        imagenet.write_network(model.network, model.files[0].parent)
    absent = [str(file) for file in model.files if not file.is_file()]
    return f"{', '.join(absent)} not there; set MACE_MODELS" if absent else ""
