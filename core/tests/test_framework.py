"""A model beside its framework: order of axes, names, states, and the runs in a row that validation makes of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from mace_core.api import Frontend, Reference
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Tensor
from mace_core.pipeline import load
from mace_core.registry import Registry
from mace_core.run.framework import Framework, FrameworkSession, absence, installation
from mace_core.run.reference import ReferenceSession, execute
from mace_core.run.similarity import Similarity
from mace_core.run.steps import ROUNDS, STEPS, carried_states, run_steps
from mace_core.run.validate import _is_passed as is_passed
from mace_core.run.validate import expectation, min_cosine, outcomes, random_samples
from mace_core.run.validation_job import ValidationJob

START = np.array([[5, 6]], np.float32)


def accumulator(**_: object) -> Graph:
    """y = total + x, and total becomes y."""
    new = Builder("m")
    x = new.input("x", DType.F32, (1, 2))
    total = new.state("total", START)
    (y,) = new.add("Add", [total, x], outputs=["y"])
    new.set_next(total, y)
    return new.finish([y])


def open_loop() -> Graph:
    """The same with ports of the application: y and h1 of x and h0."""
    new = Builder("m")
    x, before = new.input("x", DType.F32, (1, 2)), new.input("h0", DType.F32, (1, 2))
    return new.finish([new.one("Add", [x, before]), new.one("Add", [x, before], outputs=["h1"])], ["y", "h1"])


def picture() -> Graph:
    new = Builder("m")
    x = new.input("x", DType.F32, (1, 3, 4, 5))
    return new.finish([new.one("Relu", [x], outputs=["y"]), new.one("Neg", [x], outputs=["z"])])


class Acme(Frontend):
    """Gives a graph for any file, and computes it with references."""

    name: ClassVar[str] = "acme"
    suffixes: ClassVar[tuple[str, ...]] = (".acme",)
    order: ClassVar[str] = "NCHW"
    needs: ClassVar[str] = "acme[all]"
    is_native: ClassVar[bool] = False

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.is_installed, self.keeps_states, self.gives = True, True, set(graph.port_outputs)
        self.calls: list[dict[str, Array]] = []

    def load(self, files: tuple[Path, ...], model: Model, ops: Mapping[str, Any]) -> Graph:
        return self.graph

    def reference(self, files: tuple[Path, ...], model: Model) -> Reference | None:
        def run(arrays: Mapping[str, Array]) -> dict[str, Array]:
            self.calls.append(dict(arrays))
            values = execute(self.graph, arrays)
            # As some frameworks do, without the axes of length 1 and in double precision.
            return {name: np.squeeze(values[name]).astype(np.float64) for name in self.gives}

        return Reference(run, "Acme 1.0") if self.is_installed else None

    def recurrent(self, files: tuple[Path, ...], model: Model) -> Reference | None:
        session = ReferenceSession(self.graph)
        named = [port.name for port in model.outputs] or list(self.graph.port_outputs)

        def run(arrays: Mapping[str, Array]) -> dict[str, Array]:
            self.calls.append(dict(arrays))
            values = session.run(arrays)
            return {name: values[name] for name in named}

        return Reference(run, "Acme 1.0, recurrent") if self.keeps_states else None


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def setting(tmp_path: Path, registry: Registry, graph: Graph, **model: Any) -> tuple[Acme, Model, Registry]:
    (tmp_path / "m.acme").touch()
    acme = Acme(graph)
    changed = replace(registry, frontends={**registry.frontends, "acme": acme})
    return acme, Model("m", (tmp_path / "m.acme",), **model), changed


class Built:
    """A built library that computes by references."""

    def __init__(self, graph: Graph, outputs: tuple[str, ...] | None = None) -> None:
        self.graph, self.error = graph, 0.0
        self.names = outputs or graph.port_outputs
        self.calls: list[tuple[int, int]] = []

    def model(self, name: str) -> dict[str, list[Tensor]]:
        tensors = self.graph.tensors
        return {
            "inputs": [tensors[n] for n in self.graph.port_inputs],
            "outputs": [tensors[n] for n in self.names],
        }

    def figures(self, name: str) -> Any:
        return SimpleNamespace(states=self.graph.states, layers=(), arena_bytes=7)

    def run(
        self, model: str, samples: Mapping[str, Array], threads: int = 1, *, reset: int = 0
    ) -> dict[str, Array]:
        session, rows = ReferenceSession(self.graph), []
        count = len(next(iter(samples.values())))
        self.calls.append((count, reset))
        for i in range(count):
            if reset and i % reset == 0:
                session.reset()
            rows.append(session.run({name: array[i] for name, array in samples.items()}))
        return {name: np.stack([row[name] for row in rows]) + np.float32(self.error) for name in self.names}


def test_inputs_and_outputs_are_turned_and_named(tmp_path: Path, registry: Registry) -> None:
    ports = {
        "inputs": (Port("x", order="NHWC", alias="image"),),
        "outputs": (Port("z"), Port("y", order="NHWC", alias="map")),
    }
    acme, model, changed = setting(tmp_path, registry, picture(), **ports)
    framework = Framework.of(model, changed)
    image = np.random.default_rng(0).standard_normal((1, 4, 5, 3)).astype(np.float32)
    given = framework.convert_inputs({"image": image})
    np.testing.assert_array_equal(given["x"], image.transpose(0, 3, 1, 2))
    actual = framework.run(framework.reference(), {"image": image})
    assert list(actual) == ["y", "z"] or set(actual) == {"map", "z"}
    np.testing.assert_array_equal(actual["map"], np.maximum(image, 0))
    np.testing.assert_array_equal(actual["z"], -image.transpose(0, 3, 1, 2))
    assert actual["map"].dtype == np.float32
    acme.gives = {"z"}
    with pytest.raises(
        MaceError, match="model 'm': its framework does not give y; name files under validation_outputs_data"
    ):
        framework.run(framework.reference(), {"image": image})
    assert set(framework.run(framework.reference(), {"image": image}, is_partial=True)) == {"z"}
    assert framework.inner(["y"]) is not None


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        (
            "acme[all]",
            "there are no stored outputs, and the framework behind 'acme' is not installed; pip install 'acme[all]', or name files",
        ),
        (
            "",
            "there are no stored outputs, and the frontend 'acme' runs no framework; name files under validation_inputs_data and",
        ),
    ],
)
def test_a_framework_that_is_missing_is_told(
    tmp_path: Path, registry: Registry, needs: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme, model, changed = setting(tmp_path, registry, picture())
    monkeypatch.setattr(Acme, "needs", needs)
    acme.is_installed = False
    with pytest.raises(MaceError) as error:
        Framework.of(model, changed).reference()
    assert said in str(error.value)
    assert installation(acme) == f"pip install '{needs}'"
    assert absence(acme) in said


def test_states_inside_last_until_they_are_reset(tmp_path: Path, registry: Registry) -> None:
    acme, model, changed = setting(tmp_path, registry, accumulator())
    framework = Framework.of(model, changed)
    assert [state.input for state in framework.inside] == ["total"]
    assert framework.paired == ()
    session, one = FrameworkSession(framework), {"x": np.ones((1, 2), np.float32)}
    assert session.runtime == "Acme 1.0, recurrent"
    assert [session.run(one)["y"].tolist() for _ in range(2)] == [[[6, 7]], [[7, 8]]]
    session.reset()
    assert session.run(one)["y"].tolist() == [[6, 7]]
    assert set(acme.calls[-1]) == {"x"}
    assert framework.model_with_states() is model, "the application does not see the next value"


def test_states_that_runs_reset_are_no_recurrence(tmp_path: Path, registry: Registry) -> None:
    acme, model, changed = setting(tmp_path, registry, accumulator(), keys={"states": "reset"})
    acme.keeps_states = False
    session = FrameworkSession(Framework.of(model, changed))
    assert session.runtime == "Acme 1.0"


def test_states_of_the_application_are_shown_by_the_framework(tmp_path: Path, registry: Registry) -> None:
    _, model, changed = setting(tmp_path, registry, accumulator(), keys={"states": "application"})
    framework = Framework.of(model, changed)
    assert framework.paired == ()
    assert {port.name for port in framework.model_with_states().outputs} == {"y", "total.next"}
    assert set(framework.convert_inputs({"x": START, "total": START})) == {"x"}
    named = replace(model, inputs=(Port("x"), Port("total")))
    assert set(Framework.of(named, changed).convert_inputs({"x": START, "total": START})) == {"x", "total"}


def test_paired_states_are_given_to_the_framework_and_taken_back(tmp_path: Path, registry: Registry) -> None:
    acme, model, changed = setting(tmp_path, registry, open_loop(), keys={"states": {"h0": "h1"}})
    framework = Framework.of(model, changed)
    assert [state.input for state in framework.paired] == ["h0"]
    session, one = FrameworkSession(framework), {"x": np.ones((1, 2), np.float32)}
    assert [session.run(one)["y"].tolist() for _ in range(3)] == [[[1, 1]], [[2, 2]], [[3, 3]]]
    session.reset()
    assert session.run(one)["y"].tolist() == [[1, 1]]
    assert acme.calls[1]["h0"].tolist() == [1, 1]


def job(tmp_path: Path, registry: Registry, graph: Graph, **model: Any) -> tuple[Built, ValidationJob]:
    _, described, changed = setting(tmp_path, registry, graph, **model)
    built = Built(load(described, changed))
    return built, ValidationJob(built, described, changed)  # type: ignore[arg-type]


def test_runs_in_a_row_are_compared_twice(tmp_path: Path, registry: Registry) -> None:
    built, described = job(tmp_path, registry, accumulator())
    x = np.arange(6, dtype=np.float32).reshape(3, 1, 2)
    ours, theirs, source = run_steps(described, {"x": x})
    totals = START + np.cumsum(x, axis=0)
    np.testing.assert_array_equal(ours["y"], np.concatenate([totals] * ROUNDS))
    np.testing.assert_array_equal(theirs["y"], ours["y"])
    assert source == "Acme 1.0, recurrent; 3 steps in a row, and again after a reset"
    assert built.calls == [(6, 3)]
    ours, _, source = outcomes(described)
    assert (len(ours["y"]), STEPS, ROUNDS) == (32, 16, 2)
    assert source.endswith("; 16 steps in a row, and again after a reset")


def test_states_that_the_application_carries_are_handed_on(tmp_path: Path, registry: Registry) -> None:
    built, described = job(tmp_path, registry, accumulator(), keys={"states": "application"})
    ports = built.model("m")
    assert carried_states(described.model, ports["inputs"], ports["outputs"]) == {"total": "total.next"}
    x = np.ones((3, 1, 2), np.float32)
    ours, theirs, _ = run_steps(described, {"x": x})
    assert ours["y"][:, 0, 0].tolist() == [6, 7, 8] * 2
    assert built.calls == [(1, 0)] * 6
    np.testing.assert_array_equal(theirs["y"], ours["y"])
    ours, _, _ = outcomes(described)
    assert len(ours["y"]) == 32


def test_carried_states_are_found_by_the_names_of_the_model_file() -> None:
    def tensors(*names: str) -> list[Tensor]:
        return [Tensor(name, DType.F32, (1,)) for name in names]

    model = Model(
        "m", (), inputs=(Port("h", alias="before"),), outputs=(Port("h.next", alias="after"), Port("y"))
    )
    assert carried_states(model, tensors("x", "before"), tensors("y", "after")) == {"before": "after"}
    assert carried_states(model, tensors("x", "h"), tensors("y", "g.next")) == {}


def test_outputs_of_another_size_are_refused(tmp_path: Path, registry: Registry) -> None:
    """The number of boxes that a framework selects depends on the input; a library has room for all."""
    _, model, changed = setting(tmp_path, registry, picture())
    framework = Framework.of(model, changed)
    computed = {"y": np.zeros((1, 3, 4, 4), np.float32), "z": np.zeros((3, 4, 5), np.float32)}
    with pytest.raises(MaceError) as error:
        framework.convert_outputs(computed)
    assert str(error.value) == (
        "model 'm': its framework gives y the shape [1, 3, 4, 4], not [1, 3, 4, 5]: it depends on the input; "
        "name files under validation_outputs_data, or other outputs"
    )


def test_framework_gets_an_input_without_axes_as_an_array(tmp_path: Path, registry: Registry) -> None:
    new = Builder("m")
    rate, x = new.input("rate", DType.I64, ()), new.input("x", DType.I64, (2,))
    acme, model, changed = setting(tmp_path, registry, new.finish([new.one("Mul", [rate, x], outputs=["y"])]))
    framework = Framework.of(model, changed)
    samples = {"rate": np.array([3, 5]), "x": np.array([[1, 2], [3, 4]])}
    framework.run(framework.reference(), {name: array[0] for name, array in samples.items()})
    (call,) = acme.calls
    assert {name: (type(array), array.shape) for name, array in call.items()} == {
        "rate": (np.ndarray, ()),
        "x": (np.ndarray, (2,)),
    }


def test_expectations_come_from_files_or_from_the_framework(tmp_path: Path, registry: Registry) -> None:
    x, y = np.full((2, 1, 3, 4, 5), -2, np.float32), np.zeros((2, 1, 3, 4, 5), np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    stored = {
        "inputs": (Port("x", data=(str(tmp_path / "x.npy"),)),),
        "outputs": (Port("y", data=(str(tmp_path / "y.npy"),)),),
    }
    _, described = job(tmp_path, registry, picture(), **stored)
    result = expectation(described)
    assert (result.source, result.samples["x"].shape, set(result.outputs)) == (
        "stored outputs",
        x.shape,
        {"y"},
    )
    _, described = job(tmp_path, registry, picture(), inputs=stored["inputs"])
    result = expectation(described)
    assert (result.source, result.outputs["y"].tolist()) == ("Acme 1.0", y.tolist())
    _, described = job(tmp_path, registry, picture(), outputs=stored["outputs"])
    with pytest.raises(
        MaceError,
        match="has validation_outputs_data without validation_inputs_data; name the inputs of these outputs",
    ):
        expectation(described)
    _, described = job(tmp_path, registry, picture())
    result = expectation(described)
    assert (len(result.samples["x"]), result.outputs["z"].shape) == (3, (3, 1, 3, 4, 5))
    np.testing.assert_array_equal(result.outputs["z"], -result.samples["x"])


RANDOM: tuple[tuple[Tensor, Port, tuple[float, float]], ...] = (
    (Tensor("x", DType.BOOL, (99,)), Port("x"), (0, 1)),
    (Tensor("x", DType.F32, (99,)), Port("x"), (-1, 1)),
    (Tensor("x", DType.F64, (99,)), Port("x", limits=(3, 5)), (3, 5)),
    (Tensor("p", DType.F16, (99,)), Port("x", alias="p", limits=(3, 5)), (3, 5)),
    (Tensor("x", DType.I8, (9999,)), Port("x"), (-128, 127)),
    (Tensor("x", DType.U8, (9999,)), Port("x"), (0, 255)),
    (Tensor("x", DType.U8, (99,)), Port("x", limits=(-5, 2.5)), (0, 2)),
    (Tensor("x", DType.I8, (999,), Quant.of(0.5)), Port("x", limits=(3, 5)), (-128, 127)),
    (Tensor("x", DType.I16, (9999,), Quant.of(0.5)), Port("x"), (-32768, 32767)),
    (Tensor("x", DType.I32, (99,)), Port("x"), (0, 1)),
    (Tensor("x", DType.I32, (99,)), Port("x", limits=(-2.5, 2.5)), (-2, 2)),
    (Tensor("x", DType.I64, (99,)), Port("x", limits=(7.25, 7.5)), (8, 8)),
    (Tensor("x", DType.I8, (999,)), Port("x", limits=(-1e9, 1e9)), (-128, 127)),
)


@pytest.mark.parametrize(("tensor", "port", "limits"), RANDOM)
def test_random_samples_fill_their_range(tensor: Tensor, port: Port, limits: tuple[float, float]) -> None:
    (samples,) = random_samples(Model("m", (), inputs=(port,)), [tensor]).values()
    assert (samples.shape, samples.dtype) == ((3, *tensor.shape), tensor.dtype.numpy)
    low, high = float(samples.min()), float(samples.max())
    span = limits[1] - limits[0]
    assert limits[0] <= low <= limits[0] + 0.02 * span, "near the least"
    assert limits[1] - 0.02 * span <= high <= limits[1], "near the greatest"
    np.testing.assert_array_equal(samples, *random_samples(Model("m", (), inputs=(port,)), [tensor]).values())


@pytest.mark.parametrize(
    ("keys", "is_quantized", "least"),
    [
        ({}, False, 0.9999), ({"validation_threshold": {"quantize": 0.5, "gpu": 0.75}}, True, 0.5),
        ({"validation_threshold": {"quantize": 0.5, "gpu": 0.75}}, False, 0.75), ({"validation_threshold": {"cpu": 0.5}}, False, 0.9999),
    ],
)  # fmt: skip
def test_the_least_cosine_is_that_of_the_runtime(
    keys: dict[str, object], is_quantized: bool, least: float
) -> None:
    assert min_cosine(Model("m", (), runtimes=("gpu", "cpu"), keys=keys), is_quantized) == least


@pytest.mark.parametrize(
    ("cosine", "error", "keys", "passed"),
    [
        (1.0, 0.0, {}, True), (0.9999, 0.0, {}, False), (0.99991, 0.0, {}, True), (1.0, 1e-3, {}, False), (1.0, 0.99e-3, {}, True),
        (0.6, 9.0, {"validation_threshold": {"cpu": 0.5}}, True), (0.5, 0.0, {"validation_threshold": {"cpu": 0.5}}, False),
        (1.0, 1e-3, {"validation_threshold": {"cpu": 0.9999}}, False),
    ],
)  # fmt: skip
def test_a_model_passes_by_cosine_and_error(
    cosine: float, error: float, keys: dict[str, object], passed: bool
) -> None:
    assert is_passed(Model("m", (), keys=keys), Similarity(cosine, 0, error, 1), False) == passed
