"""Real models of int8 and uint8, with inputs that their frameworks were given."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import load_deployment
from mace_core.ir import Array, Graph
from mace_core.registry import Registry
from mace_core.testing.arrays import load_arrays

MODELS = Path(os.environ.get("MACE_MODELS") or Path(__file__).parents[4] / "shared" / "models")


@dataclass(frozen=True)
class RealModel:
    """A model, and the file with inputs that its framework was given.

    samples: an .npz with in_INPUT_SAMPLE, or an .npy with one sample of one input.  keys: further ones of the
    deployment file, a line each; {models} stands for the folder of all.
    """

    file: str
    samples: str
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A name for people."""
        return Path(self.file).stem

    def read_graph(self, folder: Path) -> Graph:
        """Return the graph as targets are asked for it; skip the test where the model is absent."""
        path = MODELS / self.file
        if not path.exists():
            pytest.skip(f"no {path}; set MACE_MODELS to the folder of real models")
        deployment = folder / "m.yml"
        lines = ["library_name: m", "models:", "  m:", f"    model_file_path: {path}"]
        lines += [f"    {key.format(models=MODELS)}" for key in self.keys]
        deployment.write_text("\n".join(lines) + "\n", encoding="utf-8")
        registry = Registry.load()
        (model,) = load_deployment(deployment).models
        graph = compile_model(model, Compilation(registry.select("host")[0], registry)).graph
        # States as plain inputs and outputs, so that what they would be after a run is compared too.
        return replace(graph, states=())

    def draw_inputs(self, graph: Graph, sample: int = 0) -> dict[str, Array]:
        """Return a sample of the framework's inputs, and zeros for the states behind them."""
        tensors = [graph.tensors[name] for name in graph.inputs]
        arrays = {tensor.name: np.zeros(tensor.shape, tensor.dtype.numpy) for tensor in tensors}
        samples = self._load_samples()
        for i, tensor in enumerate(tensors):
            key = f"in_{i}_{sample}"
            if key in samples:
                arrays[tensor.name] = samples[key].astype(tensor.dtype.numpy).reshape(tensor.shape)
        return arrays

    def _load_samples(self) -> dict[str, Array]:
        path = MODELS / self.samples
        return {"in_0_0": np.load(path)} if path.suffix == ".npy" else load_arrays(path)


def describe_ai8x(folder: str, network: str, weights: str, sample: str, shape: str) -> RealModel:
    """Return a network for the MAX7800x, whose weights of 8 bits and fewer a CPU computes too."""
    keys = (
        "platform: ai8x",
        f"weight_file_path: {{models}}/{folder}/{weights}-q.pth.tar",
        "input_tensors: [input]",
        f"input_shapes: ['{shape}']",
    )
    return RealModel(f"{folder}/{network}.yaml", f"{folder}/{sample}.npy", keys)


ANOMALY = RealModel("mlperf_ad/ad_int8.tflite", "mlperf_ad/golden_ad_int8_tflite.npz")
KEYWORDS = RealModel("mlperf_kws/kws_int8.tflite", "mlperf_kws/golden_kws_int8_tflite.npz")
LARGER = (
    KEYWORDS,
    RealModel("mlperf_ic/ic_int8.tflite", "mlperf_ic/golden_ic_int8_tflite.npz"),
    RealModel(
        "tflm_mnist_lstm/trained_lstm_int8.tflite", "tflm_mnist_lstm/golden_trained_lstm_int8_tflite.npz"
    ),
    RealModel(
        "onnxzoo_shufflenetv2_int8/shufflenet-v2-12-int8.onnx",
        "onnxzoo_shufflenetv2_int8/golden_shufflenet_v2_12_int8_onnx.npz",
    ),
    RealModel(
        "coral_mobilenet_v2_1.0_224_quant/mobilenet_v2_1.0_224_quant.tflite",
        "coral_mobilenet_v2_1.0_224_quant/golden_mobilenet_v2_1_0_224_quant_tflite.npz",
    ),
    RealModel(
        "minilm/minilm_l6_int8_dynamic.onnx",
        "minilm/golden_minilm_l6_int8_dynamic_onnx.npz",
        ("input_tensors: [input_ids, attention_mask]", "input_shapes: ['1,8', '1,8']"),
    ),
    describe_ai8x("ai8x/mnist", "mnist-chw-ai85", "ai85-mnist-qat8", "sample_mnist", "1,1,28,28"),
    describe_ai8x("ai8x/cifar-10", "cifar10-nas", "ai85-cifar10-qat8", "sample_cifar-10", "1,3,32,32"),
    describe_ai8x("ai8x/kws20_v3", "kws20-v3-hwc", "ai85-kws20_v3-qat8", "sample_kws_20", "1,128,128"),
    describe_ai8x(
        "ai8x/cats-dogs", "cats-dogs-hwc", "ai85-catsdogs-qat8", "sample_cats_vs_dogs", "1,3,128,128"
    ),
    describe_ai8x(
        "ai8x/svhn_tinierssd", "svhn-tinierssd", "ai85-svhn-tinierssd-qat8", "sample_svhn_74", "1,3,74,74"
    ),
    describe_ai8x(
        "ai8x/camvid_unet",
        "camvid-unet-large-fakept",
        "ai85-camvid-unet-large-fakept",
        "sample_camvid_s352_c3_reduced",
        "1,48,48,48",
    ),
    describe_ai8x(
        "ai8x-more/facedet_tinierssd",
        "ai85-facedet-tinierssd",
        "ai85-facedet-tinierssd-qat8",
        "sample_vggface2_facedetection",
        "1,3,224,168",
    ),
    describe_ai8x("ai8x/kws20_v3_1", "ai87-kws20-v3-hwc", "ai87-kws20_v3-qat8", "sample_kws_20", "1,128,128"),
)
