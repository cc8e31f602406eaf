"""Float graphs quantized for the target: what is lost, beside the float model, of models that nobody laid out by hand."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from automatic_graphs import compute_layers

from mace_core import pipeline
from mace_core.deployment import Model
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.ops.conv import ClampAttributes
from mace_core.registry import Registry
from mace_core.run.reference import execute
from mace_core.transforms import run_phases
from mace_frontend_ai8x.network import Network
from mace_target_max78000.check import find_faults
from mace_target_max78000.design import quantize_and_legalize
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.legalize.boundary import cut_tail
from mace_target_max78000.legalize.pipeline import LegalizedGraph, legalize_graph, split_long_bias
from mace_target_max78000.legalize.tensors import find_exponent, is_native
from mace_target_max78000.options import Options
from mace_target_max78000.place.search import place_layers
from mace_target_max78000.quantize.plan import QuantizationPolicy, calibrate, is_quantized
from mace_target_max78000.simulate import find_mismatches, replay
from mace_target_max78002.device import MAX78002

ROOT = Path(__file__).parents[3]
MODELS = Path(os.environ.get("MACE_MODELS", ROOT.parent / "shared" / "models"))
DIGITS = ROOT / "models" / "digits"
DEVICES = pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
ROUNDED = Options(avg_pool_rounding=True)
EIGHT = QuantizationPolicy()


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def read(path: Path, registry: Registry) -> Graph:
    if not path.exists():
        pytest.skip(f"{path.name} is not beside the checkout: set MACE_MODELS")
    return run_phases(pipeline.load(Model("network", (path,)), registry), registry)


def results(formed: LegalizedGraph, x: Array, device: Chip) -> Array:
    """What the layers that are outputs give, as real numbers."""
    result = zip(formed.layers, formed.powers, compute_layers(formed, x, device, ROUNDED), strict=True)
    return np.concatenate([value.reshape(-1) * 2.0**step for layer, step, value in result if layer.output])


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@DEVICES
def test_digits_lose_no_accuracy(device: Chip, registry: Registry) -> None:
    graph = read(DIGITS / "digits.onnx", registry)
    pictures, labels = (
        np.load(DIGITS / "test_inputs.npy").reshape(-1, 1, 1, 8, 8),
        np.load(DIGITS / "test_labels.npy"),
    )
    formed = quantize_and_legalize(graph, device, [{"image": x} for x in pictures[:16]], QuantizationPolicy())
    assert_runs(formed, formed.network_input.apply(pictures[0]), device)
    right = [results(formed, x, device).argmax() == label for x, label in zip(pictures, labels, strict=True)]
    exact = [
        execute(graph, {"image": x})[graph.outputs[0]].argmax() == label
        for x, label in zip(pictures, labels, strict=True)
    ]
    assert np.mean(right) >= np.mean(exact) - 0.003
    assert "the application computes Softmax of the results" in formed.notes


@dataclass(frozen=True)
class Tiny:
    """A model of MLPerf Tiny.

    error: what may be lost, as a share of what it computes before Softmax.  layers: of each part.
    """

    name: str
    error: float
    layers: int


TINY = (Tiny("ic", 0.08, 15), Tiny("kws", 0.08, 11), Tiny("ad", 0.05, 10))


def assert_runs(formed: LegalizedGraph, sample: Array, device: Chip) -> None:
    """The layers find their places, and the simulator, fed with the program's bytes alone, finds what they compute."""
    shape = sample.shape if sample.shape[-1] > 1 else sample.shape[:2]
    placed = place_layers(split_long_bias(formed, device).layers, shape, device, ROUNDED)
    network = Network("network", placed.layers, placed.places, sample.reshape(shape))
    assert [str(fault) for fault in find_faults(network, device, placed.options)] == []
    image = synthesize(network, placed.options, device).image
    assert list(find_mismatches(replay(image), image)) == []


def recorded(tiny: Tiny, kind: str, graph: Graph) -> list[dict[str, Array]]:
    with np.load(MODELS / f"mlperf_{tiny.name}" / f"golden_{tiny.name}_{kind}_tflite.npz") as file:
        shape = graph.tensors[graph.inputs[0]].shape
        return [{graph.inputs[0]: file[k].reshape(shape)} for k in sorted(file.files) if k.startswith("in_")]


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@DEVICES
@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.name)
def test_mlperf_tiny(tiny: Tiny, device: Chip, registry: Registry) -> None:
    graph = read(MODELS / f"mlperf_{tiny.name}" / f"{tiny.name}_fp32.tflite", registry)
    samples = recorded(tiny, "fp32", graph)
    formed = quantize_and_legalize(graph, device, samples, QuantizationPolicy())
    assert len(formed.layers) == tiny.layers
    assert_runs(formed, formed.network_input.apply(samples[0][graph.inputs[0]]), device)
    inner, _ = cut_tail(graph)
    errors = []
    for sample in samples:
        exact = execute(inner, sample)[inner.outputs[0]].reshape(-1)
        errors.append(
            np.linalg.norm(results(formed, sample[graph.inputs[0]], device) - exact) / np.linalg.norm(exact)
        )
    assert np.mean(errors) < tiny.error


@pytest.mark.slow
@pytest.mark.sampled(cases="kws")
@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.name)
def test_quantized_models_of_other_scales(tiny: Tiny, registry: Registry) -> None:
    """Bytes with zero points, as TensorFlow Lite has them, become real numbers and bytes in steps of powers of two."""
    graph = read(MODELS / f"mlperf_{tiny.name}" / f"{tiny.name}_int8.tflite", registry)
    real = read(MODELS / f"mlperf_{tiny.name}" / f"{tiny.name}_fp32.tflite", registry)
    inner, _ = cut_tail(real)
    samples = recorded(tiny, "fp32", real)
    fed = [{graph.inputs[0]: s[real.inputs[0]]} for s in samples]
    formed = quantize_and_legalize(graph, MAX78000, fed, QuantizationPolicy())
    exact = execute(inner, samples[0])[inner.outputs[0]].reshape(-1)
    result = results(formed, samples[0][real.inputs[0]], MAX78000)
    assert result @ exact > 0.97 * np.linalg.norm(result) * np.linalg.norm(exact)


@dataclass
class Net:
    """A float network of random weights."""

    build: Builder
    random: np.random.Generator

    @classmethod
    def over(cls, *shape: int) -> tuple[Net, str]:
        net = cls(Builder("net"), np.random.default_rng(0))
        return net, net.build.input("x", DType.F32, (1, *shape))

    def conv(
        self, x: str, channels: int, kernel: int = 3, scales: Array | None = None, **attrs: float
    ) -> str:
        width = self.build.shape(x)[-1]
        w = self.random.normal(size=(channels, kernel, kernel, width)) / math.sqrt(kernel * kernel * width)
        w *= (np.ones(channels) if scales is None else scales)[:, None, None, None]
        pad = (kernel // 2,) * 2
        complete = {"strides": (1, 1), "dilations": (1, 1), "pads_before": pad, "pads_after": pad, **attrs}
        bias = self.build.weight("b", self.random.normal(size=channels).astype(np.float32) * 0.1)
        return self.build.one("Conv", [x, self.build.weight("w", w.astype(np.float32)), bias], complete)

    def samples(self, count: int = 4) -> list[dict[str, Array]]:
        shape = self.build.shape("x")
        return [{"x": self.random.normal(size=shape).astype(np.float32)} for _ in range(count)]


def quantize(graph: Graph, samples: Sequence[dict[str, Array]], policy: QuantizationPolicy = EIGHT) -> Graph:
    """The graph as `quantize_and_legalize` has it before layers are formed, with the bits that are asked for."""
    return (
        graph if is_quantized(graph) else calibrate(graph, samples, policy).round_weights(policy.bits).graph
    )


def loss(graph: Graph, samples: list[dict[str, Array]], policy: QuantizationPolicy) -> float:
    formed = legalize_graph(quantize(graph, samples, policy), MAX78000)
    errors = []
    for sample in samples:
        exact = np.moveaxis(execute(graph, sample)[graph.outputs[0]][0], -1, 0).reshape(-1)
        errors.append(np.linalg.norm(results(formed, sample["x"], MAX78000) - exact) / np.linalg.norm(exact))
    return float(np.mean(errors))


def test_quantized_graph_is_native_and_stays_as_it_is() -> None:
    net, x = Net.over(8, 8, 3)
    graph = net.build.finish([net.conv(net.conv(x, 8, low=0.0), 4)])
    result = quantize(graph, net.samples())
    assert all(is_native(result.tensors[t]) for node in result.nodes[:-1] for t in node.outputs)
    assert result.tensors[result.outputs[0]].quant is None
    assert all(find_exponent(result.tensors[node.inputs[1]].quant) is not None for node in result.nodes)
    assert quantize(result, ()) is result


def test_reference_of_the_quantized_graph_is_the_hardwares() -> None:
    net, x = Net.over(8, 8, 3)
    samples = net.samples()
    result = quantize(net.build.finish([net.conv(net.conv(x, 8, low=0.0), 4)]), samples)
    formed = legalize_graph(result, MAX78000)
    stored = formed.network_input.apply(samples[0]["x"]).transpose(1, 2, 0)[None].astype(np.int8)
    exact = np.moveaxis(execute(result, {"x": stored})[result.outputs[0]][0], -1, 0).reshape(-1)
    assert np.array_equal(results(formed, stored, MAX78000), exact)


def test_channels_of_unlike_size_are_equalised() -> None:
    net, x = Net.over(8, 8, 3)
    scales = np.exp2(np.linspace(-6, 2, 16))
    graph = net.build.finish([net.conv(net.conv(x, 16, scales=scales, low=0.0), 4)])
    samples = net.samples()
    assert loss(graph, samples, QuantizationPolicy(equalize=True)) <= loss(
        graph, samples, QuantizationPolicy(equalize=False)
    )


@pytest.mark.parametrize("limit", [6.0, 1.0, 5.0])
def test_limits_above_become_the_hardwares(limit: float) -> None:
    net, x = Net.over(8, 8, 3)
    graph = net.build.finish([net.conv(net.conv(x, 8, low=0.0, high=limit), 4)])
    result = quantize(graph, net.samples())
    node = result.nodes[0]
    quant = result.tensors[node.outputs[0]].quant
    assert quant is not None
    assert node.attributes(ClampAttributes).high >= 127 * quant.scale[0] * (1 - 1e-6)
    assert loss(graph, net.samples(), QuantizationPolicy()) < 0.05


def test_bits_by_the_name_of_the_node() -> None:
    net, x = Net.over(8, 8, 3)
    graph = net.build.finish([net.conv(net.conv(x, 8, low=0.0), 4)])
    names = [node.name for node in graph.nodes]
    policy = QuantizationPolicy(bits={names[0]: 4, names[1]: 2})
    widths = [
        layer.weights.bits
        for layer in legalize_graph(quantize(graph, net.samples(), policy), MAX78000).layers
        if layer.weights
    ]
    assert widths == [4, 2]


@pytest.mark.slow
def test_weights_are_narrowed_until_they_fit() -> None:
    net, x = Net.over(4, 4, 64)
    for _ in range(4):
        x = net.conv(x, 192, low=0.0)
    graph = net.build.finish([net.conv(x, 8, 1)])
    bits = {
        d.name: [
            w.bits
            for w in weights(
                quantize_and_legalize(graph, d, net.samples(1), QuantizationPolicy(equalize=False))
            )
        ]
        for d in (MAX78000, MAX78002)
    }
    assert bits["MAX78002"] == [8] * 5
    assert min(bits["MAX78000"]) < 8
    assert max(bits["MAX78000"]) > min(bits["MAX78000"])


def weights(formed: LegalizedGraph) -> list[Array]:
    return [layer.weights for layer in formed.layers if layer.weights]  # type: ignore[misc]


def test_without_samples_a_note_says_so() -> None:
    net, x = Net.over(8, 8, 3)
    formed = quantize_and_legalize(
        net.build.finish([net.conv(x, 4)]), MAX78000, (), QuantizationPolicy(limits=(0.0, 1.0))
    )
    assert any("random inputs" in note for note in formed.notes)


def test_a_mean_over_a_large_window_is_taken_in_two_steps() -> None:
    net, x = Net.over(25, 5, 3)
    attrs: Mapping[str, object] = {
        "kernel": (25, 5),
        "strides": (25, 5),
        "pads_before": (0, 0),
        "pads_after": (0, 0),
        "dilations": (1, 1),
    }
    graph = net.build.finish([net.conv(net.build.one("AveragePool", [net.conv(x, 8, low=0.0)], attrs), 4, 1)])
    formed = quantize_and_legalize(graph, MAX78000, net.samples(), QuantizationPolicy())
    assert [layer.pool.size for layer in formed.layers if layer.pool] == [(5, 5), (5, 1)]
