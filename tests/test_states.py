"""Streaming models of several frameworks: sessions keep what the framework keeps, run by run and after a reset."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from click.testing import CliRunner
from manifest import MODELS
from streaming_models import SHAPE, write_keras, write_onnx, write_saved_model, write_tflite

from mace_core.cli import main
from mace_core.deployment import Model, load_deployment
from mace_core.errors import MaceError
from mace_core.ir import Array, Tensor
from mace_core.pipeline import load, read
from mace_core.registry import Registry
from mace_core.report import ModelReport, StateReport
from mace_core.run import native
from mace_core.run.framework import Framework
from mace_core.run.reference import execute
from mace_core.run.steps import ROUNDS, STEPS, run_steps
from mace_core.run.validate import outcomes
from mace_core.run.validation_job import ValidationJob
from mace_core.testing.compiled import compile_graphs
from mace_core.testing.requirements import require
from mace_core.transforms import run_phases
from mace_target_cpu import Cpu

RUNS = 60
FLOAT, INTEGER = "tflm_mnist_lstm/trained_lstm_fp32.tflite", "tflm_mnist_lstm/trained_lstm_int8.tflite"
SILERO = "silero_vad/silero_vad_openvino_16k.onnx"
FILES = (FLOAT, INTEGER)

needs_models = pytest.mark.skipif(
    not (MODELS / FLOAT).is_file(), reason=f"no models in {MODELS}; MACE_MODELS names another folder"
)


@dataclass
class InProcess:
    """Stands for a built library: its model, loaded into this process.

    states: descriptions of what its sessions keep.
    forgets: whether a session is reset before every run, or loses what it is handed.
    """

    name: str
    loaded: native.LoadedModel
    states: tuple[StateReport, ...] = ()
    forgets: bool = False

    def model(self, name: str) -> dict[str, list[Tensor]]:
        assert name == self.name
        return {"inputs": self.loaded.inputs, "outputs": self.loaded.outputs}

    def figures(self, name: str) -> ModelReport:
        ends = self.model(name)
        return ModelReport(
            0, 0, 0, 0, tuple(ends["inputs"]), tuple(ends["outputs"]), layers=(), states=self.states
        )

    def run(
        self, name: str, samples: dict[str, Array], threads: int = 1, *, reset: int = 0
    ) -> dict[str, Array]:
        self.loaded.reset()
        each = []
        for i in range(len(next(iter(samples.values())))):
            inputs = {n: a[i] for n, a in samples.items()}
            if self.forgets:
                inputs = {n: np.zeros_like(a) if a.ndim == 2 else a for n, a in inputs.items()}
            if (reset and i % reset == 0) or (self.forgets and self.states):
                self.loaded.reset()
            each.append(self.loaded.run(inputs))
        return {n: np.stack([e[n] for e in each]) for n in each[0]}


def deployed(folder: Path, name: str, file: Path, *lines: str) -> Model:
    """The model of a deployment file with these lines."""
    text = "\n".join(
        [f"library_name: {name}_library", "models:", f"  {name}:", f"    model_file_path: {file}", *lines]
    )
    (folder / f"{name}.yml").write_text(text + "\n")
    return load_deployment(folder / f"{name}.yml").models[0]


def compiled(models: list[Model], folder: Path) -> dict[str, InProcess]:
    """Libraries of models, by name."""
    registry = Registry.load()
    graphs = [run_phases(load(model, registry), registry) for model in models]
    loaded = compile_graphs(Cpu(), graphs, folder)
    kept = {g.name: tuple(StateReport(g.tensors[s.input], s.start_text) for s in g.states) for g in graphs}
    return {name: InProcess(name, library, kept[name]) for name, library in loaded.items()}


Stream: TypeAlias = tuple[Model, InProcess]
Streams: TypeAlias = Mapping[str, Stream]


def question(library: InProcess, model: Model) -> ValidationJob:
    return ValidationJob(library, model, Registry.load())  # type: ignore[arg-type]


def judge(tensor: Tensor, found: Array, expected: Array) -> None:
    """Assert that an output is what the framework gives; integers but for roundings, which states carry on."""
    error = np.abs(found.astype(np.float64) - expected)
    if tensor.quant is None:
        assert error.max() <= 1e-5
        return
    ends = np.iinfo(tensor.dtype.numpy)
    shares = error / (int(ends.max) - int(ends.min))
    assert shares.max() <= 0.02
    assert (shares <= 1 / 255).mean() >= 0.99


def random_steps(tensors: list[Tensor]) -> dict[str, Array]:
    """Samples for so many runs; integers of all values, pictures black and white."""
    rng = np.random.default_rng(0)
    samples = {}
    for tensor in tensors:
        low, high = (-128, 128) if tensor.quant else (0, 2)
        shape = (RUNS, *tensor.shape)
        whole = rng.integers(low, high, shape).astype(tensor.dtype.numpy)
        samples[tensor.name] = (
            whole
            if tensor.quant or "28" in str(tensor.shape)
            else rng.uniform(-1, 1, shape).astype(np.float32)
        )
    return samples


MADE = ("onnx", "tflite")
"""Models that a test makes: convolutional in floats, and in integers of 8 bits."""

TENSORFLOW = ("tensorflow", "keras")
"""Models that TensorFlow makes, which takes ten seconds: convolutional, and recurrent."""

REAL = {"lstm": (FLOAT, ()), "silero": (SILERO, ("    states: {state: stateN}",))}
"""Models of others: recurrent, and convolutional with a recurrent layer."""


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Streams:
    """Streaming models of two frameworks in one library."""
    folder = tmp_path_factory.mktemp("streams")
    require_frameworks("onnxruntime", "ai_edge_litert")
    models = [
        deployed(folder, "onnx", write_onnx(folder / "stream.onnx"), "    states: {cache: cache_out}"),
        deployed(folder, "tflite", write_tflite(folder / "stream.tflite")),
    ]
    models += [
        deployed(folder, name, MODELS / file, *lines)
        for name, (file, lines) in REAL.items()
        if (MODELS / file).is_file()
    ]
    libraries = compiled(models, folder / "library")
    return {model.name: (model, libraries[model.name]) for model in models}


@pytest.fixture(scope="module")
def tensorflow_streams(tmp_path_factory: pytest.TempPathFactory) -> Streams:
    """Streaming models of TensorFlow and Keras in one library."""
    folder = tmp_path_factory.mktemp("tensorflow")
    require_frameworks("tensorflow", "keras")
    models = [
        deployed(folder, "tensorflow", write_saved_model(folder / "saved"), "    platform: tensorflow"),
        deployed(folder, "keras", write_keras(folder / "stream.keras")),
    ]
    libraries = compiled(models, folder / "library")
    return {model.name: (model, libraries[model.name]) for model in models}


def require_frameworks(*names: str) -> None:
    for framework in names:
        require(None if find_spec(framework) else f"{framework} is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MADE, *(pytest.param(name, marks=needs_models) for name in REAL)])
def test_sessions_equal_the_framework_over_60_runs_and_again_after_a_reset(
    name: str, streams: Streams
) -> None:
    check_stream(*streams[name])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TENSORFLOW)
def test_sessions_equal_tensorflow_over_60_runs_and_again_after_a_reset(
    name: str, tensorflow_streams: Streams
) -> None:
    check_stream(*tensorflow_streams[name])


def check_stream(model: Model, library: InProcess) -> None:
    """Run a streaming model beside its framework, twice from the start."""
    assert library.states
    samples = random_steps(library.loaded.inputs)
    actual, expected, _ = run_steps(question(library, model), samples)
    for tensor in library.loaded.outputs:
        assert len(actual[tensor.name]) == ROUNDS * RUNS
        judge(tensor, actual[tensor.name], expected[tensor.name])
        np.testing.assert_array_equal(actual[tensor.name][:RUNS], actual[tensor.name][RUNS:])
    assert _effect(model, samples, expected) > 1e-3, "the states change nothing: the test shows nothing"


def _effect(model: Model, samples: dict[str, Array], expected: dict[str, Array]) -> float:
    """Return by how much the framework's outputs of the first runs differ from those that begin anew."""
    framework = Framework.of(model, Registry.load())
    reference = framework.reference()
    largest = 0.0
    for i in range(1, 6):
        alone = framework.run(reference, {n: a[i] for n, a in samples.items()})
        largest = max(
            largest, *(np.abs(alone[n].astype(np.float64) - a[i]).max() for n, a in expected.items())
        )
    return largest


@pytest.mark.slow
def test_validation_finds_a_session_that_forgets(streams: Streams) -> None:
    for name in MADE:
        model, library = streams[name]
        actual, expected, _ = outcomes(question(library, model))
        assert all(len(array) == ROUNDS * STEPS for array in actual.values())
        lost, expected, _ = outcomes(question(replace(library, forgets=True), model))
        assert any(np.abs(lost[n].astype(float) - expected[n]).max() > np.ptp(expected[n]) / 20 for n in lost)


def test_stored_outputs_are_those_of_the_steps_in_a_row(streams: Streams, tmp_path: Path) -> None:
    model, library = streams["onnx"]
    samples = random_steps(library.loaded.inputs)
    np.save(tmp_path / "x.npy", samples["x"])
    np.save(tmp_path / "y.npy", library.run("onnx", samples)["y"])
    lines = ["input_tensors: [x]", "output_tensors: [y]", "states: {cache: cache_out}"]
    lines += ["validation_inputs_data: [x.npy]", "validation_outputs_data: [y.npy]"]
    stored = deployed(tmp_path, "onnx", model.files[0], *(f"    {line}" for line in lines))
    actual, expected, source = outcomes(question(library, stored))
    assert source == "stored outputs"
    np.testing.assert_array_equal(actual["y"], expected["y"])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a deployment file whose library is built."""
    folder = tmp_path_factory.mktemp("built")
    deployed(folder, "stream", write_onnx(folder / "stream.onnx"), "    states: {cache: cache_out}")
    arguments = ["build", str(folder / "stream.yml"), "--builds", str(folder / "builds")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return folder


@pytest.mark.exhaustive
def test_commands_list_states_and_validate_them(built: Path) -> None:
    text = "cache, f32 1 x 4 x 2, at first 0.0"
    header = (built / "builds/stream_library/include/stream_library.h").read_text()
    assert f"states[0], kept by the session: {text}" in header
    assert "cache_out" not in header
    explained = CliRunner().invoke(main, ["explain", str(built / "stream.yml")]).output
    assert "state cache: f32 1 x 4 x 2, at first 0.0" in explained
    checked = CliRunner().invoke(main, ["check", str(built / "stream.yml")]).output
    assert "sessions keep cache:f32[1, 4, 2], at first 0.0" in checked
    arguments = ["validate", str(built / "stream.yml"), "--builds", str(built / "builds"), "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.output)
    assert row["passed"]
    assert row["compared_with"].startswith("ONNX Runtime")
    assert row["compared_with"].endswith(f"; {STEPS} steps in a row, and again after a reset")


def test_a_file_gives_the_values_before_the_first_run(tmp_path: Path) -> None:
    """They are the start of the state in the graph; what does not fit is refused."""
    file = write_onnx(tmp_path / "stream.onnx")
    line = "    states: {cache: {next: cache_out, start: first.npy}}"
    with pytest.raises(MaceError, match=r"start of cache: no such file: .*first\.npy; correct the path"):
        deployed(tmp_path, "stream", file, line)
    first = np.random.default_rng(7).standard_normal((1, 4, 2)).astype(np.float32)
    for wrong in (first[0], first.astype(np.float64)):
        np.save(tmp_path / "first.npy", wrong)
        with pytest.raises(
            MaceError, match=r"first\.npy: holds float.* and the state is .*; save the value before"
        ):
            load(deployed(tmp_path, "stream", file, line), Registry.load())
    (tmp_path / "first.npy").write_text("1 2 3")
    with pytest.raises(MaceError, match="cannot be read as an array"):
        load(deployed(tmp_path, "stream", file, line), Registry.load())
    np.save(tmp_path / "first.npy", first)
    graph = load(deployed(tmp_path, "stream", file, line), Registry.load())
    assert graph.states[0].start.tobytes() == first.tobytes()
    with pytest.raises(MaceError, match=r"stream\.yml:5"):
        deployed(tmp_path, "stream", file, "    states: {cache: {start: first.npy}}")


@pytest.mark.exhaustive
def test_a_command_resets_states_after_so_many_samples(built: Path, tmp_path: Path) -> None:
    """Two sequences of three steps in one file are two sequences, and are one without `--reset`."""
    steps = np.random.default_rng(5).standard_normal((3, *SHAPE)).astype(np.float32)
    np.save(tmp_path / "x.npy", np.concatenate([steps, steps]))
    results = {}
    for reset in (0, 3):
        arguments = ["run", str(built / "stream.yml"), "--builds", str(built / "builds"), f"--reset={reset}"]
        arguments += ["--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path)]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        results[reset] = np.load(tmp_path / "y.npy")
    assert results[3][:3].tobytes() == results[3][3:].tobytes() == results[0][:3].tobytes()
    assert results[0][3:].tobytes() != results[0][:3].tobytes()


@pytest.fixture(
    scope="module", params=[FLOAT, pytest.param(INTEGER, marks=pytest.mark.slow)], ids=["float", "integer"]
)
def carried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """A model whose states the application carries, compiled."""
    folder = tmp_path_factory.mktemp("states")
    model = deployed(folder, "lstm", MODELS / request.param, "    states: application")
    return model, compiled([model], folder / "library")["lstm"]


@pytest.mark.slow
@pytest.mark.sampled(cases="float")
@needs_models
def test_a_library_whose_application_carries_the_states_equals_the_framework(carried: Stream) -> None:
    model, library = carried
    (image,) = [t for t in library.loaded.inputs if not t.name.startswith(("model/", "tfl."))]
    actual, expected, _ = run_steps(question(library, model), random_steps([image]))
    for tensor in library.loaded.outputs:
        assert len(actual[tensor.name]) == ROUNDS * RUNS
        judge(tensor, actual[tensor.name], expected[tensor.name])


@pytest.mark.exhaustive
@needs_models
def test_validation_carries_states_and_finds_a_library_that_forgets_them(carried: Stream) -> None:
    model, library = carried
    actual, expected, _ = outcomes(question(library, model))
    assert all(len(array) == ROUNDS * STEPS for array in actual.values())
    for tensor in library.loaded.outputs:
        judge(tensor, actual[tensor.name], expected[tensor.name])
    lost, expected, _ = outcomes(question(replace(library, forgets=True), model))
    assert any(np.abs(lost[n].astype(float) - expected[n]).max() > np.ptp(expected[n]) / 10 for n in lost)


@pytest.mark.exhaustive
@needs_models
@pytest.mark.slow
def test_sessions_of_a_recurrent_model_of_integers_equal_the_framework(tmp_path: Path) -> None:
    model = deployed(tmp_path, "lstm", MODELS / INTEGER)
    library = compiled([model], tmp_path / "library")["lstm"]
    actual, expected, _ = run_steps(question(library, model), random_steps(library.loaded.inputs))
    for tensor in library.loaded.outputs:
        judge(tensor, actual[tensor.name], expected[tensor.name])
        np.testing.assert_array_equal(actual[tensor.name][:RUNS], actual[tensor.name][RUNS:])


@needs_models
@pytest.mark.parametrize("file", FILES, ids=["float", "integer"])
def test_states_that_are_reset_equal_the_framework_of_its_first_run(file: str, tmp_path: Path) -> None:
    model = deployed(tmp_path, "lstm", MODELS / file, "    states: reset")
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
        for output, expected in reference(x).items():
            assert np.abs(values[output].astype(float) - expected).max() <= (1 if tensor.quant else 1e-5)


@needs_models
def test_start_values_are_the_zero_points() -> None:
    registry = Registry.load()
    for file in FILES:
        graph = read(Model("lstm", (MODELS / file,)), registry)
        assert graph.states
        for state in graph.states:
            tensor = graph.tensors[state.input]
            assert state.start.shape == tensor.shape
            assert np.unique(state.start).tolist() == [tensor.quant.zero_point[0] if tensor.quant else 0]


@needs_models
def test_states_that_are_no_word_and_no_mapping_are_refused_with_a_line(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=r"lstm.yml:5.*states: 'once'.*application, reset, or a mapping"):
        deployed(tmp_path, "lstm", MODELS / FLOAT, "    states: once")
    with pytest.raises(MaceError, match=r"lstm.yml:5.*two states have one output as their next value"):
        deployed(tmp_path, "lstm", MODELS / FLOAT, "    states: {a: c, b: c}")
