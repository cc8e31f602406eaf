"""Compares the results of real models on an OpenCL device with those of the numpy references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from opencl_device import measure_error, require_device
from opencl_models import SHAPED, WHOLE, read_graph

from mace_core.compilation import Compilation, compile_graph
from mace_core.deployment import Model
from mace_core.registry import Registry
from mace_core.run.reference import execute
from mace_core.testing.compiled import generate_library, load_library, random_inputs
from mace_target_opencl.target import Opencl

pytestmark = pytest.mark.slow

LIMIT = 1e-4
"""Of the range of an output, which the sums of a convolution in another order stay within."""


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*WHOLE, *SHAPED])
def test_a_model_computes_what_its_reference_does(name: str, tmp_path: Path) -> None:
    require_device()
    graph = read_graph(name, tmp_path)
    sources = generate_library([Opencl()], [graph])
    session = load_library(sources, tmp_path)[graph.name]
    assert len(session.devices()) == 1
    starts = {state.input: state.start for state in graph.states}
    inputs = {**random_inputs(graph), **starts}
    expected, outputs = execute(graph, inputs), session.run(inputs)
    for output in graph.port_outputs:
        assert np.isfinite(outputs[output]).all()
        assert measure_error(outputs[output], expected[output]) < LIMIT, output


def test_a_whole_model_is_copied_at_its_edges_alone(tmp_path: Path) -> None:
    """One region, a copy for each input and output, and no other."""
    graph = read_graph(WHOLE[0], tmp_path)
    registry = Registry.load()
    compiled = compile_graph(Model("m", ()), graph, Compilation(registry.select("host+opencl")[0], registry))
    report = compiled.report()
    assert [part.target for part in report.parts] == ["opencl"]
    assert {transfer.tensor for transfer in report.transfers} == {*graph.inputs, *graph.outputs}
    assert len(report.transfers) == len(graph.inputs) + len(graph.outputs)
