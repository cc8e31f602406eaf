"""Real models, read and transformed as a target sees them, are written and computed by LiteRT as before."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tflite
from writer_oracle import check_graph, model_graph, outputs, random_inputs, run, verify

from mace_tflite_writer import refuses, write_tflite
from mace_tflite_writer.rewrites import legalize, refuses_after_rewrites

MODELS = Path(os.environ.get("MACE_MODELS") or Path(__file__).parents[4] / "shared" / "models")

SAME_OPERATORS = (
    "mlperf_ic/ic_int8.tflite",
    "mlperf_ic/ic_fp32.tflite",
    "mlperf_kws/kws_int8.tflite",
    "mlperf_ad/ad_int8.tflite",
    "mlperf_ad/ad_fp32.tflite",
    pytest.param(
        "coral_mobilenet_v2_1.0_224_quant/mobilenet_v2_1.0_224_quant.tflite", marks=pytest.mark.exhaustive
    ),
)
"""TensorFlow Lite models whose written file has the operators of the original."""

OTHERS = (
    "mlperf_kws/kws_fp32.tflite",
    "mlperf_kws/kws_frozen.pb",
    "mlperf_ic/ic_frozen.pb",
    "armkws_pb/DS_CNN_S_core.pb",
    "onnx2c_mnist/model.onnx",
)

REWRITTEN = {
    "ultraface_rfb/version-RFB-320.onnx": {"attribute": 6},
    "ultraface_rfb/version-RFB-320_without_postprocessing.tflite": {"attribute": 6},
    "onnxzoo_shufflenetv2_int8/shufflenet-v2-12-int8.onnx": {"attribute": 1, "quantization": 73},
}
"""Models that the format states after rewrites alone -> how many nodes it refuses before, by reason."""


NAMES = {code: name for name, code in vars(tflite.BuiltinOperator).items() if name.isupper()}


def model(name: str) -> Path:
    path = MODELS / name
    if not path.exists():
        pytest.skip(f"no {path}; set MACE_MODELS to the folder of real models")
    return path


@pytest.mark.parametrize("name", SAME_OPERATORS)
def test_a_written_model_gives_the_same_bits(name: str) -> None:
    graph = model_graph(model(name))
    assert [refuses(node, graph) for node in graph.nodes] == [None] * len(graph.nodes)
    content = write_tflite(graph)
    verify(content)
    assert content == write_tflite(graph)
    inputs = random_inputs(graph)
    written, original = (outputs(run(data, inputs)) for data in (content, model(name).read_bytes()))
    for actual, expected in zip(written, original, strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("name", OTHERS)
def test_each_operator_of_a_written_model_computes_its_node(name: str) -> None:
    check_graph(model_graph(model(name)))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", REWRITTEN)
def test_a_rewritten_model_has_an_operator_for_each_node(name: str) -> None:
    graph = model_graph(model(name))
    refusals = Counter(refusal.code for node in graph.nodes if (refusal := refuses(node, graph)))
    assert refusals == REWRITTEN[name]
    assert [refuses_after_rewrites(node, graph) for node in graph.nodes] == [None] * len(graph.nodes)
    content = check_graph(legalize(graph))
    if name.endswith(".tflite"):
        inputs = random_inputs(graph)
        written, original = (outputs(run(data, inputs)) for data in (content, model(name).read_bytes()))
        for actual, expected in zip(written, original, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


def versions(content: bytes) -> dict[str, set[int]]:
    """The operators of a file with their versions."""
    model = tflite.Model.GetRootAs(content)
    result: dict[str, set[int]] = {}
    for i in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(i)
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        result.setdefault(NAMES[number], set()).add(code.Version())
    return result


@pytest.mark.parametrize("name", [name for name in SAME_OPERATORS if isinstance(name, str)])
def test_versions_are_those_of_the_converter(name: str) -> None:
    path = model(name)
    original, written = versions(path.read_bytes()), versions(write_tflite(model_graph(path)))
    # The original fuses the activations of sums, which are nodes of their own here.
    assert {code: written[code] for code in written if code != "RELU"}.items() <= original.items()
