"""Trained models of others against the outputs of ONNX Runtime."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mace_core.deployment import Model, Port
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.testing.arrays import load_arrays
from mace_core.verify import verify
from mace_frontend_onnx import Onnx

MODELS = Path(os.environ.get("MACE_MODELS") or Path(__file__).parents[4] / "shared" / "models")


@dataclass(frozen=True)
class Case:
    """A model; `golden` holds in_<input>_<sample> and out_<output>_<sample>.

    cosine, error: the least cosine and greatest difference; integers round, so that the last step depends on
    the machine.
    """

    file: str
    golden: str = ""
    inputs: tuple[tuple[str, tuple[int, ...]], ...] = ()
    cosine: float = 0.999999
    error: float = 3e-5


CASES = (
    # Outputs of some 1000s.
    Case("onnx2c_mnist/model.onnx", "onnx2c_mnist/golden_model_onnx.npz", error=2e-3),
    Case("ultraface_rfb/version-RFB-320.onnx"),
    Case("silero_vad/silero_vad_openvino_16k.onnx", "silero_vad/golden_silero_vad_openvino_16k_onnx.npz"),
    Case(
        "silero_vad/silero_vad_16k_sequence.onnx",
        "silero_vad/golden_silero_vad_16k_sequence_onnx.npz",
        (("input", (133, 576)),),
    ),
    Case(
        "rapidocr/ch_PP-OCRv4_rec_infer.onnx",
        "rapidocr/golden_ch_PP_OCRv4_rec_infer_onnx.npz",
        (("x", (1, 3, 48, 320)),),
    ),
    Case(
        "rapidocr/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "rapidocr/golden_ch_ppocr_mobile_v2_0_cls_infer_onnx.npz",
        (("x", (1, 3, 48, 192)),),
    ),
    Case("onnxzoo_shufflenetv2_int8/shufflenet-v2-12-int8.onnx", cosine=0.999, error=0.5),
    Case(
        "minilm/minilm_l6_int8_dynamic.onnx",
        "minilm/golden_minilm_l6_int8_dynamic_onnx.npz",
        (("input_ids", (1, 8)), ("attention_mask", (1, 8))),
        cosine=0.999,
        error=0.02,
    ),
)


@pytest.mark.sampled(cases="^(?!.*shufflenet)")
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.file)
def test_model(case: Case) -> None:
    path = MODELS / case.file
    if not path.is_file():
        pytest.skip(f"no {path}; set MACE_MODELS to the folder of real models")
    model = Model("m", (path,), inputs=tuple(Port(name, shape) for name, shape in case.inputs))
    graph = verify(Onnx().load((path,), model, core_ops()))
    if case.golden:
        golden = load_arrays(MODELS / case.golden)
        arrays = {name: golden[f"in_{i}_0"] for i, name in enumerate(graph.inputs)}
        expected = {name: golden[f"out_{i}_0"] for i, name in enumerate(graph.outputs)}
    else:
        rng = np.random.default_rng(1)
        arrays = {name: rng.random(graph.tensors[name].shape, np.float32) for name in graph.inputs}
        run = Onnx().reference((path,), model)
        assert run is not None
        expected = dict(run(arrays))
    values = execute(graph, arrays)
    for name in graph.outputs:
        actual, wanted = values[name].astype(np.float64).ravel(), expected[name].astype(np.float64).ravel()
        assert actual @ wanted / np.linalg.norm(actual) / np.linalg.norm(wanted) >= case.cosine
        assert np.abs(actual - wanted).max() <= case.error
