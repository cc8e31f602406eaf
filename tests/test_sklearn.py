"""scikit-learn pipelines through skl2onnx, the ONNX frontend and compiled C, beside scikit-learn and ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from sklearn_pipelines import PIPELINES, Pipeline, Trained, trained

from mace_core.deployment import Model, Port
from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.io_spec import apply_io_spec
from mace_core.ir import Array, Graph
from mace_core.plan import plan_calls
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.testing.compiled import host, with_quick_flags
from mace_core.testing.processor import levels_here
from mace_core.transforms import run_phases
from mace_core.verify import verify
from mace_frontend_onnx import Onnx
from mace_target_cpu import Cpu

pytestmark = pytest.mark.slow

TOLERANCE = 2e-5
"""Of the largest probability or value: what sums of single precision in another order may differ by."""


def read(case: Trained, folder: Path, outputs: tuple[Port, ...] = (), rows: int | None = None) -> Graph:
    """The graph of a trained pipeline for its samples."""
    path = folder / "m.onnx"
    path.write_bytes(case.file.SerializeToString())
    shape = (rows or len(case.x), *case.x.shape[1:])
    model = Model("m", (path,), inputs=(Port(case.file.graph.input[0].name, shape),), outputs=outputs)
    registry = Registry.load()
    return run_phases(
        verify(apply_io_spec(Onnx().load((path,), model, registry.ops), model, "NCHW")), registry
    )


@pytest.fixture(scope="module")
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, tuple[Trained, native.LoadedModel]]:
    """Every pipeline that is tested in this run as a model of one compiled library."""
    folder = tmp_path_factory.mktemp("sklearn")
    cases, placed = {}, []
    for number, name in enumerate(_selected_pipelines(request.session)):
        case = trained(name)
        graph = read(case, folder).with_name(f"model{number}")
        refused = [why for node in graph.nodes if (why := Cpu().refuses(node, graph))]
        assert not refused, f"{name}: {refused}"
        program = Cpu().lower(graph)
        placed.append(plan_calls(program))
        cases[name] = case
    sources = with_quick_flags(code.library("pipelines", placed, levels_here(Cpu().levels("host"))[:1]))
    models = native.load(shared_library(sources, host(), folder, ()), "pipelines")
    return {name: (case, models[f"model{number}"]) for number, (name, case) in enumerate(cases.items())}


def _selected_pipelines(session: pytest.Session) -> list[str]:
    tests = [item for item in session.items if isinstance(item, pytest.Function)]
    selected = {item.callspec.params["name"] for item in tests if item.function is test_pipeline}
    return [name for name in PIPELINES if name in selected]


def by_onnxruntime(case: Trained) -> dict[str, Array]:
    """What ONNX Runtime computes; maps as columns, sequences as tensors with numbered names."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        case.file.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: dict[str, Array] = {}
    values = session.run(None, {session.get_inputs()[0].name: case.x})
    for described, value in zip(session.get_outputs(), values, strict=True):
        if isinstance(value, list) and isinstance(value[0], dict):
            found[described.name] = np.array([list(row.values()) for row in value], np.float32)
        elif isinstance(value, list):
            sources = next(node.input for node in case.file.graph.node if described.name in node.output)
            found |= dict(zip(sources, value, strict=True))
        else:
            found[described.name] = value
    return found


def difference(found: Array, wanted: Array) -> float:
    """The largest difference beside the largest value."""
    wide = np.asarray(wanted, np.float64)
    return float(
        np.abs(found.astype(np.float64).reshape(wide.shape) - wide).max() / max(1.0, np.abs(wide).max())
    )


@pytest.mark.exhaustive  # scikit-learn takes long to import; the operators have quick tests beside the frontend
@pytest.mark.parametrize("name", PIPELINES)
def test_pipeline(name: str, library: Mapping[str, tuple[Trained, native.LoadedModel]]) -> None:
    case, compiled = library[name]
    actual = compiled.run({compiled.inputs[0].name: case.x})
    labels, *others = actual.values()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = case.model.predict(case.x)
        probabilities = case.model.predict_proba(case.x) if hasattr(case.model, "predict_proba") else None
    if expected.dtype.kind == "i":
        np.testing.assert_array_equal(labels.reshape(expected.shape), expected)
    else:
        assert difference(labels, expected) < TOLERANCE
    if isinstance(probabilities, list):
        for mine, theirs in zip(others, probabilities, strict=True):
            assert difference(mine, theirs) < TOLERANCE
    elif probabilities is not None:
        assert (
            difference(np.column_stack(others) if len(others) > 1 else others[0], probabilities) < TOLERANCE
        )
    for output, value in by_onnxruntime(case).items():
        assert difference(actual[output], value) < TOLERANCE, output
        assert actual[output].dtype == value.dtype


def test_enough_kinds() -> None:
    assert len(PIPELINES) >= 60


@cache
def with_text() -> Trained:
    return trained("text", Pipeline(PIPELINES["forest"].make, "text"))


def test_text_labels_are_refused_with_the_lines_to_write(tmp_path: Path) -> None:
    with pytest.raises(MaceError) as error:
        read(with_text(), tmp_path)
    assert str(error.value).splitlines() == [
        "m.onnx: output 'output_label' is text, which a library does not give; write in the deployment file the others:",
        "  output_tensors: [output_probability]",
        "or take the index of its text in ('setosa', 'versicolor', 'virginica') instead:",
        "  output_tensors: [output_label, output_probability]",
        "  output_data_types: [int64, float32]",
    ]
