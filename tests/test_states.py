"""Models that keep states: refused with lines for the deployment file that work word for word, and validated over several runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from manifest import MODELS

from mace_core.deployment import Model, load_deployment
from mace_core.errors import MaceError
from mace_core.ir import Array, Tensor
from mace_core.pipeline import load, normalise, read
from mace_core.registry import Registry
from mace_core.report import ModelReport
from mace_core.run import native
from mace_core.run.reference import execute
from mace_core.run.steps import STEPS, run_steps
from mace_core.run.validate import Question, outcomes
from mace_core.testing.compiled import compile_graphs
from mace_target_cpu import Cpu

RUNS = 60
FILES = ("tflm_mnist_lstm/trained_lstm_fp32.tflite", "tflm_mnist_lstm/trained_lstm_int8.tflite")

pytestmark = pytest.mark.skipif(not (MODELS / FILES[0]).is_file(), reason=f"no models in {MODELS}; MACE_MODELS names another folder")


@dataclass
class InProcess:
    """Stands for a built library: its model, loaded into this process. keep: what happens to a state that is handed to it."""

    name: str
    loaded: native.Model
    forgets: bool = False
    report: dict[str, object] = field(default_factory=dict)

    def model(self, name: str) -> dict[str, list[Tensor]]:
        assert name == self.name
        return {"inputs": self.loaded.inputs, "outputs": self.loaded.outputs}

    def figures(self, name: str) -> ModelReport:
        assert name == self.name
        ends = (tuple(self.loaded.inputs), tuple(self.loaded.outputs))
        return ModelReport(0, 0, 0, 0, *ends, layers=())

    def run(self, name: str, samples: dict[str, Array], threads: int = 1) -> dict[str, Array]:
        count = len(next(iter(samples.values())))
        each = []
        for i in range(count):
            given = {n: a[i] for n, a in samples.items()}
            if self.forgets:
                given = {n: np.zeros_like(a) if a.ndim == 2 else a for n, a in given.items()}
            each.append(self.loaded.run(given))
        return {n: np.stack([e[n] for e in each]) for n in each[0]}


def deployed(folder: Path, file: str, *lines: str) -> Model:
    """The model of a deployment file with these lines."""
    text = "\n".join(["library_name: streams", "models:", "  lstm:", f"    model_file_path: {MODELS / file}", *lines])
    (folder / "streams.yml").write_text(text + "\n")
    return load_deployment(folder / "streams.yml").models[0]


def compiled(model: Model, folder: Path) -> native.Model:
    registry = Registry.load()
    return compile_graphs(Cpu(), [normalise(load(model, registry), registry)], folder)[model.name]


def judge(tensor: Tensor, found: Array, expected: Array) -> None:
    """Assert that an output is what the framework gives; integers but for roundings, which a state carries on from run to run."""
    error = np.abs(found.astype(np.float64) - expected)
    if tensor.quant is None:
        assert error.max() <= 1e-5
        return
    ends = np.iinfo(tensor.dtype.numpy)
    shares = error / (int(ends.max) - int(ends.min))
    assert shares.max() <= 0.02
    assert (shares <= 1 / 255).mean() >= 0.99


@pytest.fixture(scope="module", params=[FILES[0], pytest.param(FILES[1], marks=pytest.mark.slow)], ids=["float", "integer"])
def carried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, native.Model]:
    """A model whose states the application carries, compiled."""
    folder = tmp_path_factory.mktemp("states")
    model = deployed(folder, request.param, "    states: application")
    return model, compiled(model, folder / "library")


def test_a_library_whose_application_carries_the_states_equals_the_framework_over_60_runs(carried: tuple[Model, native.Model]) -> None:
    model, library = carried
    frontend = Registry.load().frontend(model)
    (image,) = [t for t in library.inputs if not t.name.startswith(("model/", "tfl."))]
    rng = np.random.default_rng(0)
    low, high = (-128, 128) if image.quant else (0, 2)
    samples = {image.name: rng.integers(low, high, (RUNS, *image.shape)).astype(image.dtype.numpy)}
    question = Question(InProcess(model.name, library), model, Registry.load())  # type: ignore[arg-type]
    found, expected, _ = run_steps(question, samples)
    for tensor in library.outputs:
        assert len(found[tensor.name]) == 2 * RUNS
        judge(tensor, found[tensor.name], expected[tensor.name])
    alone = [frontend.reference(model.files, replace(model, inputs=(), outputs=()))({image.name: x}) for x in samples[image.name]]  # type: ignore[misc]
    fresh = np.stack([next(iter(outputs.values())) for outputs in alone]).astype(np.float64)
    (output,) = [t for t in library.outputs if not t.name.endswith(".next")]
    assert np.abs(fresh - expected[output.name][:RUNS]).max() > (50 if output.quant else 0.2), (
        "the state changes nothing: the test shows nothing"
    )


def test_validation_carries_states_and_finds_a_library_that_forgets_them(carried: tuple[Model, native.Model]) -> None:
    model, library = carried
    found, expected, _ = outcomes(Question(InProcess(model.name, library), model, Registry.load()))  # type: ignore[arg-type]
    assert all(len(array) == 2 * STEPS for array in found.values())
    for tensor in library.outputs:
        judge(tensor, found[tensor.name], expected[tensor.name])
    lost, expected, _ = outcomes(Question(InProcess(model.name, library, forgets=True), model, Registry.load()))  # type: ignore[arg-type]
    assert any(np.abs(lost[n].astype(float) - expected[n]).max() > np.ptp(expected[n]) / 10 for n in lost)


@pytest.mark.parametrize("file", FILES, ids=["float", "integer"])
def test_states_that_are_reset_equal_the_framework_of_its_first_run(file: str, tmp_path: Path) -> None:
    model = deployed(tmp_path, file, "    states: reset")
    registry = Registry.load()
    graph = load(model, registry)
    reference = registry.frontend(model).reference(model.files, model)
    assert reference is not None
    rng = np.random.default_rng(0)
    for _ in range(3):
        (name,) = graph.inputs
        tensor = graph.tensors[name]
        x = {name: rng.integers(-128 if tensor.quant else 0, 2, tensor.shape).astype(tensor.dtype.numpy)}
        values = execute(graph, x)
        for output, wanted in reference(x).items():
            assert np.abs(values[output].astype(float) - wanted).max() <= (1 if tensor.quant else 1e-5)


def test_start_values_are_the_zero_points() -> None:
    registry = Registry.load()
    for file in FILES:
        graph = read(Model("lstm", (MODELS / file,)), registry)
        assert graph.states
        for state in graph.states:
            tensor = graph.tensors[state.input]
            assert state.start.shape == tensor.shape
            assert np.unique(state.start).tolist() == [tensor.quant.zero_point[0] if tensor.quant else 0]


def test_states_that_are_no_word_and_no_mapping_are_refused_with_a_line(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=r"streams.yml:5.*states: 'once'.*application, reset, or a mapping"):
        deployed(tmp_path, FILES[0], "    states: once")
    with pytest.raises(MaceError, match=r"streams.yml:5.*two states have one output as their next value"):
        deployed(tmp_path, FILES[0], "    states: {a: c, b: c}")
