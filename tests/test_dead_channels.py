"""Networks without their dead channels, as compiled code: the same bits."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from manifest import MODELS

from mace_core.api import Transform
from mace_core.deployment import Model
from mace_core.ir import Graph
from mace_core.pipeline import load
from mace_core.registry import Registry
from mace_core.run.reference import execute
from mace_core.testing.compiled import run_merged
from mace_core.transforms import order_phases
from mace_target_cpu import Cpu
from mace_transform_standard.quantize import remove_dead_channels as module

ROOT = Path(__file__).parents[1]


def load_script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec
    assert spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.exhaustive
def test_compiled_networks_keep_every_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    networks = load_script("plugins/standard/tests/test_remove_dead_channels.py")
    benchmark = load_script("benchmarks/dead_channels.py")
    monkeypatch.setattr(benchmark, "BLOCKS", benchmark.BLOCKS[:4])
    monkeypatch.setattr(module, "GRANULE", 1)
    whole = [*(networks.random_network(seed) for seed in range(6)), benchmark.make_network(0)]
    graphs, inputs = [], {}
    for graph in whole:
        shrunk = module.remove_dead_channels(graph)
        assert shrunk is not graph
        graphs += [graph, shrunk.with_name(f"{graph.name}_shrunk")]
        inputs |= dict.fromkeys((graph.name, graphs[-1].name), networks.full_range(graph, 7))
    results = run_merged(Cpu(), graphs, tmp_path, inputs)
    for graph in whole:
        for name, array in results[graph.name].items():
            np.testing.assert_array_equal(results[f"{graph.name}_shrunk"][name], array)


REAL = {
    "coral_mobilenet_v2_1.0_224_quant/mobilenet_v2_1.0_224_quant.tflite": 22,
    "onnxzoo_shufflenetv2_int8/shufflenet-v2-12-int8.onnx": 256,
    "mlperf_ic/ic_int8.tflite": 0,
    "mlperf_kws/kws_int8.tflite": 0,
    "mlperf_ad/ad_int8.tflite": 0,
}
"""Dead channels of models in use."""


def graphs_around(path: Path) -> tuple[Graph, Graph]:
    """A model before and after the transform."""
    registry = Registry.load()
    graph = load(Model(path.stem.replace(".", "_"), (path,)), registry)
    for passes in order_phases(registry):
        for step in passes * passes[0].phase.rounds:
            transform: Transform = step.transform
            if transform.name == "remove-dead-channels":
                return graph, transform.apply(graph)
            graph = transform.apply(graph)
    raise AssertionError("it is not installed")


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("file", REAL)
def test_models_in_use_keep_every_bit(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (MODELS / file).exists():
        pytest.skip(f"{MODELS / file} is not there")
    monkeypatch.setattr(module, "GRANULE", 1)
    networks = load_script("plugins/standard/tests/test_remove_dead_channels.py")
    before, after = graphs_around(MODELS / file)
    assert (after is before) == (REAL[file] == 0)
    if after is not before:
        assert after.notes[-1].startswith(f"{REAL[file]} channels of convolutions")
        inputs = networks.full_range(before, 3)
        expected, actual = execute(before, inputs), execute(after, inputs)
        for name in before.outputs:
            np.testing.assert_array_equal(actual[name], expected[name])
