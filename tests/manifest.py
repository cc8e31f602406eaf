"""The real models beside the checkout, as deployments and expectations."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mace_core.ir import Array, Tensor
from mace_core.testing.arrays import load_arrays

ROOT = Path(__file__).parents[1]
MODELS = Path(os.environ.get("MACE_MODELS", ROOT.parent / "shared" / "models"))

SHAPES: Mapping[str, Mapping[str, str]] = {
    "onnx2c_mnist/model.onnx": {"Input3": "1,1,28,28"},
    "silero_vad/silero_vad_16k_sequence.onnx": {"input": "133,576"},
    "onnxzoo_shufflenetv2_int8/shufflenet-v2-12-int8.onnx": {"input": "1,3,224,224"},
    "rapidocr/ch_PP-OCRv4_rec_infer.onnx": {"x": "1,3,48,320"},
    "rapidocr/ch_ppocr_mobile_v2.0_cls_infer.onnx": {"x": "1,3,48,192"},
    "minilm/minilm_l6_int8_dynamic.onnx": {"input_ids": "1,8", "attention_mask": "1,8"},
    "armkws_pb/DS_CNN_S_core.pb": {"Mfcc": "1,49,10"},
    "armkws_pb/DNN_S_core.pb": {"Mfcc": "1,25,10"},
    "mlperf_ic/ic_frozen.pb": {"x_0": "1,32,32,3"},
}
"""Inputs whose shapes the files leave open."""

STATEFUL = ("tflm_mnist_lstm/",)
"""Models with states inside, whose golden outputs come from runs that begin with the states' start values."""

LARGE = ("rec_infer", "shufflenet", "minilm", "mobilenet_v2", "sequence")
"""Models that take an emulator too long."""


@dataclass(frozen=True)
class Entry:
    """A row of the manifest."""

    file: str
    golden_file: str | None
    samples: int
    note: str

    @property
    def name(self) -> str:
        """A name that a deployment file may give it."""
        return (
            re.sub(r"[^a-z0-9]+", "_", Path(self.file).with_suffix("").name.lower())
            + "_"
            + Path(self.file).suffix[1:]
        )

    @property
    def files(self) -> list[Path]:
        """The files of the model: a Caffe network has two."""
        file = MODELS / self.file
        return [file.with_suffix(".prototxt"), file] if file.suffix == ".caffemodel" else [file]

    @property
    def outputs(self) -> list[str]:
        """The outputs that the manifest names."""
        named = re.search(r"out(?:puts)?=(\S+)", self.note)
        return [n.removesuffix(":0") for n in re.findall(r"[\w:./-]+", named[1])] if named else []

    @property
    def large(self) -> bool:
        """Whether it takes an emulator too long."""
        return any(part in self.file for part in LARGE)

    def yaml(self) -> str:
        """The model's part of a deployment file."""
        first, *rest = self.files
        lines = [
            f"  {self.name}:",
            f"    model_file_path: {first}",
            *(f"    weight_file_path: {file}" for file in rest),
        ]
        ports = SHAPES.get(self.file, {})
        if self.file.startswith(STATEFUL):
            lines.append("    states: reset")
        lines += [
            "    subgraphs:",
            "      - input_tensors: " + json.dumps(list(ports)),
            "        input_shapes: " + json.dumps([*ports.values()]),
        ]
        if not ports:
            lines[-2:] = (
                ["      - {}"]
                if not self.outputs
                else ["      - output_tensors: " + json.dumps(self.outputs)]
            )
        elif self.outputs:
            lines.append("        output_tensors: " + json.dumps(self.outputs))
        return "\n".join(lines) + "\n"

    @cached_property
    def golden(self) -> Mapping[str, Array]:
        """Inputs and outputs of the framework, by kind, number and sample."""
        assert self.golden_file is not None
        return load_arrays(MODELS / self.golden_file)

    def inputs(self, tensors: list[Tensor]) -> dict[str, Array]:
        """The samples of this shape, by input, each with a leading axis of samples."""
        return {
            t.name: np.stack([self.golden[f"in_{i}_{s}"] for s in self._fitting(tensors)])
            for i, t in enumerate(tensors)
        }

    def expected(self, inputs: list[Tensor], outputs: list[Tensor]) -> dict[str, Array]:
        """What the framework's plain kernels gave for them, where they are told apart, else what it gave."""
        results = {}
        for i, tensor in enumerate(outputs):
            kind = "ref" if f"ref_{i}_0" in self.golden else "out"
            results[tensor.name] = np.stack([self.golden[f"{kind}_{i}_{s}"] for s in self._fitting(inputs)])
        return results

    def _fitting(self, tensors: list[Tensor]) -> list[int]:
        return [
            s
            for s in range(self.samples)
            if all(self.golden[f"in_{i}_{s}"].size == t.elements for i, t in enumerate(tensors))
        ]


def entries() -> Iterator[Entry]:
    """Every row of the manifest; none where it is absent."""
    if not (MODELS / "manifest.json").is_file():
        return
    for row in json.loads((MODELS / "manifest.json").read_text(encoding="utf-8")):
        yield Entry(row["file"], row["golden"], row["samples"], row["note"])
