"""A session on a real device: PoCL, or whatever else is installed."""

from __future__ import annotations

import pytest
from opencl_device import load_on_device, measure_error, require_device

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run import native
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs

pytestmark = pytest.mark.device


def small_graph() -> Graph:
    """Two outputs, of which the first is computed from the second; 70 elements are no multiple of a vector."""
    builder = Builder("small")
    x, z = (builder.input(name, DType.F32, (7, 10)) for name in ("x", "z"))
    total = builder.one("Add", [builder.one("Relu", [x]), z])
    return builder.finish([builder.one("Tanh", [total]), total])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> native.LoadedModel:
    require_device()
    return load_on_device([small_graph()], tmp_path_factory.mktemp("small"))["small"]


def test_several_runs_compute_what_the_references_do(session: native.LoadedModel) -> None:
    graph = small_graph()
    for seed in range(3):
        inputs = random_inputs(graph, seed)
        expected, outputs = execute(graph, inputs), session.run(inputs)
        for name in graph.outputs:
            assert measure_error(outputs[name], expected[name]) < 1e-6, name


def test_the_session_names_its_device(session: native.LoadedModel) -> None:
    (device,) = session.devices()
    assert device.startswith("opencl: ")
    assert ", driver " in device
    assert "OpenCL " in device
