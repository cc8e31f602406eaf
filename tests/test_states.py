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
from mace_core.pipeline import load, normalise
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.run.reference import execute
from mace_core.run.steps import STEPS, first_states, run_steps
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


def recipe(folder: Path, file: str) -> list[str]:
    """The lines that the refusal prints for a model whose states the application carries."""
    with pytest.raises(MaceError) as refusal:
        load(deployed(folder, file), Registry.load())
    text = str(refusal.value)
    assert text.endswith("\n    states: reset")
    return text.split("write\n")[1].split("\nor, ", maxsplit=1)[0].splitlines()


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
    """A model deployed as its refusal says, and compiled."""
    folder = tmp_path_factory.mktemp("states")
    model = deployed(folder, request.param, *recipe(folder, request.param))
    return model, compiled(model, folder / "library")


def test_the_printed_lines_give_a_library_that_equals_the_framework_over_60_runs(carried: tuple[Model, native.Model]) -> None:
    model, library = carried
    frontend = Registry.load().frontend(model)
    (image,) = [t for t in library.inputs if not t.name.startswith(("model/", "tfl."))]
    rng = np.random.default_rng(0)
    low, high = (-128, 128) if image.quant else (0, 2)
    samples = {image.name: rng.integers(low, high, (RUNS, *image.shape)).astype(image.dtype.numpy)}
    question = Question(InProcess(model.name, library), model, Registry.load())  # type: ignore[arg-type]
    found, expected, _ = run_steps(question, samples)
    assert len(found) == 3
    for tensor in library.outputs:
        assert len(found[tensor.name]) == RUNS
        judge(tensor, found[tensor.name], expected[tensor.name])
    alone = [frontend.reference(model.files, replace(model, inputs=(), outputs=()))({image.name: x}) for x in samples[image.name]]  # type: ignore[misc]
    fresh = np.stack([next(iter(outputs.values())) for outputs in alone]).astype(np.float64)
    (output,) = [t for t in library.outputs if not t.name.endswith(".next")]
    assert np.abs(fresh - expected[output.name]).max() > (50 if output.quant else 0.2), "the state changes nothing: the test shows nothing"


def test_validation_carries_states_and_finds_a_library_that_forgets_them(carried: tuple[Model, native.Model]) -> None:
    model, library = carried
    found, expected, _ = outcomes(Question(InProcess(model.name, library), model, Registry.load()))  # type: ignore[arg-type]
    assert all(len(array) == STEPS for array in found.values())
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


def test_start_values_are_the_zero_points(carried: tuple[Model, native.Model]) -> None:
    model, library = carried
    for name, start in first_states(model, Registry.load().frontend(model), library.inputs).items():
        (tensor,) = [t for t in library.inputs if t.name == name]
        assert start.shape == tensor.shape
        assert np.unique(start).tolist() == [tensor.quant.zero_point[0] if tensor.quant else 0]


@pytest.mark.parametrize(
    ("states", "problem"),
    [("{a: b}", "'a' is not among input_tensors"), ("{x: b}", "'b' is not among output_tensors"), ("once", "states: 'once'")],
)
def test_pairs_that_name_no_tensor_are_refused_with_a_line(states: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=rf"streams.yml:7.*{problem}"):
        deployed(tmp_path, FILES[0], "    input_tensors: [x]", "    output_tensors: [y]", f"    states: {states}")
