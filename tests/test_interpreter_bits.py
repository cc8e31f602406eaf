"""`numerics: tflite-reference` of a deployment file: the bits of LiteRT's reference kernels, at every level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from interpreter_cases import draw_cases
from manifest import MODELS
from tflite_cases import Case, bytes_of, i8, load, random, stored
from tflite_write import Scales, Value

from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import Model
from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.ir import Array, DType, Graph
from mace_core.levels import Level, with_levels
from mace_core.numerics import KEY, Numerics
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.testing.compiled import compile_graphs, host, merge, split_by_graph
from mace_core.testing.processor import levels_here
from mace_core.testing.requirements import require
from mace_frontend_tflite import TfLite
from mace_target_cpu import Cpu

pytest.importorskip("ai_edge_litert", reason="LiteRT is the oracle: pip install ai-edge-litert")

LEVELS = levels_here(Cpu().known_levels("host"))
NETWORKS = {
    "mlperf_ad/ad_int8.tflite": 20,
    "mlperf_kws/kws_int8.tflite": 20,
    "mlperf_ic/ic_int8.tflite": 10,
    "coral_mobilenet_v2_1.0_224_quant/mobilenet_v2_1.0_224_quant.tflite": 2,
}
"""Models of eight bits beside the checkout -> how many random inputs each is run on."""


@dataclass(frozen=True)
class Sample:
    """A case as a graph, inputs for it, and what the interpreter makes of them."""

    case: Case
    graph: Graph
    inputs: Sequence[Mapping[str, Array]]
    outputs: Sequence[Array]


def interpret(file: Path, inputs: Sequence[Mapping[str, Array]]) -> list[Array]:
    """The first output for each input, of LiteRT's reference kernels and no others."""
    reference = TfLite().reference((file,), Model(file.stem, (file,)))
    assert reference is not None
    assert "reference kernels" in reference.runtime
    return [next(iter(reference.run(arrays).values())) for arrays in inputs]


def make_samples(folder: Path, cases: Sequence[Case], count: int) -> list[Sample]:
    """Cases with `count` random inputs each."""
    samples = []
    for number, case in enumerate(cases):
        name = f"{case.name}_{case.outputs[0].dtype.value}_{number}"
        (folder / name).mkdir()
        rng, written = np.random.default_rng(number), case.written()
        values = [v for v in written.values if v.name in written.inputs]
        inputs = [{v.name: random(rng, v, case.low, case.high) for v in values} for _ in range(count)]
        graph = replace(load(folder / name, written), name=name, numerics=Numerics.FIXED_POINT)
        samples.append(Sample(case, graph, inputs, interpret(folder / name / "case.tflite", inputs)))
    return samples


def run_samples(samples: Sequence[Sample], level: Level, folder: Path) -> None:
    """Assert that the kernels of a level compute the bits of the interpreter."""
    graph = merge("merged", [s.graph for s in samples])
    model = compile_graphs(with_levels(Cpu(), [level]), [graph], folder)["merged"]
    for number in range(len(samples[0].inputs)):
        inputs = {f"{s.graph.name}/{n}": a for s in samples for n, a in s.inputs[number].items()}
        results = model.run(inputs)
        for sample in samples:
            (result,) = split_by_graph(results, sample.graph).values()
            expected = sample.outputs[number]
            assert result.dtype == expected.dtype, sample.graph.name
            differ = np.flatnonzero(result.reshape(-1) != expected.reshape(-1))
            assert not differ.size, f"{sample.graph.name}: {differ.size} of {expected.size} differ"


@pytest.mark.slow
def test_operators_have_the_bits_of_the_interpreter(tmp_path: Path) -> None:
    samples = make_samples(tmp_path, list(draw_cases(seed=1, count=1)), 2)
    assert len(samples) > 40
    # A constant would agree with anything; few functions of few random numbers are one.
    varied = [s for s in samples if len(np.unique(s.outputs[0])) > 1]
    assert len(varied) > 0.9 * len(samples)
    run_samples(samples, LEVELS[0], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: str(level.name))
def test_operators_at_every_level(level: Level, tmp_path: Path) -> None:
    run_samples(make_samples(tmp_path, list(draw_cases(seed=2, count=12)), 3), level, tmp_path)


@cache
def registry() -> Registry:
    return Registry.load()


def load_network(file: Path, numerics: Numerics, level: Level, folder: Path) -> native.LoadedModel:
    """A model in a library for one level."""
    model = Model("net", (file,), keys={KEY: numerics.value})
    choice = replace(registry().select("host")[0], cpu_features=(str(level.name),))
    plan = compile_model(model, Compilation(choice, registry())).plan
    only = replace(level, available="", probe=None)
    library = shared_library(code.library("numerics", [plan], [only]), host(), folder)
    return native.load(library, "numerics")["net"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: str(level.name))
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_the_bits_of_the_interpreter(name: str, level: Level, tmp_path: Path) -> None:
    file = MODELS / name
    require(None if file.exists() else f"{file} is missing: set MACE_MODELS to the folder of models")
    model = load_network(file, Numerics.FIXED_POINT, level, tmp_path)
    (port,), (output,) = model.inputs, model.outputs
    rng, limits = np.random.default_rng(5), np.iinfo(port.dtype.numpy)
    shape, dtype = port.shape, port.dtype.numpy
    inputs = [
        {port.name: rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)}
        for _ in range(NETWORKS[name])
    ]
    for given, expected in zip(inputs, interpret(file, inputs), strict=True):
        np.testing.assert_array_equal(model.run(given)[output.name], expected)


def test_what_is_not_imitated_is_refused(tmp_path: Path) -> None:
    """Sixteen-bit results of a product, and functions that no table has."""
    wide = Value("", DType.I16, (2, 5), scales=Scales((0.01,), (0,)))
    product = Case("wide", "FULLY_CONNECTED", [i8(2, 7), stored(bytes_of(5, 7), 0.1)], outputs=(wide,))
    smooth = Case("smooth", "EXP", [i8(2, 7)], outputs=(i8(2, 7),))
    for case, reason in (
        (product, "MatMul of i8 and i8 to i16 is not imitated"),
        (smooth, "no integer kernel for Exp by numerics: tflite-reference"),
    ):
        folder = tmp_path / case.name
        folder.mkdir()
        graph = replace(load(folder, case.written()), numerics=Numerics.FIXED_POINT)
        refusals = [r.reason for node in graph.nodes if (r := Cpu().refuses(node, graph))]
        assert any(reason in text for text in refusals), refusals
        plain = replace(graph, numerics=Numerics.SINGLE_ROUNDING)
        assert not [node for node in plain.nodes if Cpu().refuses(node, plain)]


def test_constant_of_a_batch_product_is_refused(tmp_path: Path) -> None:
    operands = [i8(2, 3, 7), stored(bytes_of(2, 7, 5), 0.1)]
    fields = {"AdjX": False, "AdjY": False}
    case = Case("batch", "BATCH_MATMUL", operands, ("BatchMatMulOptions", fields), (i8(2, 3, 5),), version=2)
    keys = {KEY: Numerics.FIXED_POINT.value, "states": "reset"}
    with pytest.raises(MaceError, match="multiplies by a quantized constant with numerics: tflite-reference"):
        load(tmp_path, case.written(), model=Model("case", (tmp_path / "case.tflite",), keys=keys))
