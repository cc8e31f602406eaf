"""The vendor's networks as ONNX files: what is formed of the graph computes what the description says, in no more weight memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from as_onnx import write_onnx
from automatic_graphs import compute_layers
from references import MODELS, Reference, references

from mace_core import pipeline
from mace_core.deployment import Model
from mace_core.ir import Graph
from mace_core.registry import Registry
from mace_core.transforms import run_phases
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.network import Eltwise, Layer
from mace_target_max78000.design import quantize_and_legalize
from mace_target_max78000.quantize.plan import QuantizationPolicy

REFERENCES = references((MODELS,))
BITWISE = (Eltwise.OR, Eltwise.XOR)

pytestmark = pytest.mark.skipif(
    not REFERENCES, reason=f"the vendor's networks are not in {MODELS}: set MACE_MODELS"
)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def read(path: Path, registry: Registry) -> Graph:
    return run_phases(pipeline.load(Model("network", (path,)), registry), registry)


def weight_bits(layers: Sequence[Layer]) -> int:
    return sum(layer.weights.values.size * layer.weights.bits for layer in layers if layer.weights)


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("reference", REFERENCES, ids=lambda r: r.name)
def test_same_results(reference: Reference, registry: Registry, tmp_path: Path) -> None:
    network = reference.network
    if any(layer.eltwise in BITWISE for layer in network.layers):
        pytest.skip("operations on the bits of data are none on the real numbers that ONNX has")
    write_onnx(network, tmp_path / "network.onnx")
    formed = quantize_and_legalize(
        read(tmp_path / "network.onnx", registry), reference.device, (), QuantizationPolicy()
    )
    assert not any("random inputs" in note for note in formed.notes)
    sample = network.sample.astype(np.int8)[None]
    split = any(layer.operands > 1 and len(layer.inputs) == 1 for layer in network.layers)
    actual = compute_layers(
        formed, np.moveaxis(sample, 1, -1) if split else sample, reference.device, reference.options
    )
    result = outputs(network, reference.options)
    expected = [result[i] for i, layer in enumerate(network.layers) if layer.output]
    results = [actual[i] for i, layer in enumerate(formed.layers) if layer.output]
    assert len(results) == len(expected)
    for want, got in zip(expected, results, strict=True):
        assert np.array_equal(want.reshape(-1), got.reshape(-1))
    assert len(formed.layers) <= len(network.layers)
    assert weight_bits(formed.layers) <= weight_bits(network.layers)
