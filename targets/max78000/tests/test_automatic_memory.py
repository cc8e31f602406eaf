"""The vendor's networks as ONNX files, from graph to program: no more memory than by hand, and the simulator finds the known answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from as_onnx import write_onnx
from references import MODELS, Reference, references

from mace_core import pipeline
from mace_core.deployment import Model
from mace_core.registry import Registry
from mace_core.transforms import run_phases
from mace_frontend_ai8x.network import Eltwise
from mace_target_max78000.design import design_network
from mace_target_max78000.encode import synthesize
from mace_target_max78000.image import Image
from mace_target_max78000.quantize.plan import QuantizationPolicy
from mace_target_max78000.report import analyze_program
from mace_target_max78000.simulate import find_mismatches, replay

BITWISE = (Eltwise.OR, Eltwise.XOR)
FLAT = ("test-flatten-fc-quant8", "test-mlpflattennopool12to2")
"""Single linear layers whose input ONNX joins before any axis is known to be channels: they take up to 84 bytes of data more."""
REFERENCES = references((MODELS,))
# A bypass has no weights to store.
PLACED = [r for r in REFERENCES if not r.name.startswith((*FLAT, "test-bypass"))]

pytestmark = pytest.mark.skipif(
    not REFERENCES, reason=f"the vendor's networks are not in {MODELS}: set MACE_MODELS"
)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def weight_words(image: Image) -> int:
    return sum(chunk.count for chunk in image.kernels)


@pytest.mark.slow
@pytest.mark.sampled(every=21)
@pytest.mark.parametrize("reference", PLACED, ids=lambda r: r.name)
def test_no_more_memory_than_by_hand(reference: Reference, registry: Registry, tmp_path: Path) -> None:
    network, device, options = reference.network, reference.device, reference.options
    if any(layer.eltwise in BITWISE for layer in network.layers):
        pytest.skip("operations on the bits of data are none on the real numbers that ONNX has")
    write_onnx(network, tmp_path / "network.onnx")
    graph = run_phases(pipeline.load(Model("network", (tmp_path / "network.onnx",)), registry), registry)
    tensor = graph.tensors[graph.inputs[0]]
    data = np.random.default_rng(0).uniform(-1, 1, tensor.shape).astype(tensor.dtype.numpy)
    ours = design_network(graph, [{tensor.name: data}], device, options, QuantizationPolicy())
    by_hand, made = synthesize(network, options, device), synthesize(ours.network, ours.options, device)
    assert list(find_mismatches(replay(made.image), made.image)) == []
    assert weight_words(made.image) <= weight_words(by_hand.image)
    assert (
        analyze_program(ours.network, made, ours.options).data_bytes
        <= analyze_program(network, by_hand, options).data_bytes
    )
