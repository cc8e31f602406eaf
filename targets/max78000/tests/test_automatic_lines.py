"""Graphs of lines: what Conv1d takes along on the hardware, and what needs a layer of its own."""

from __future__ import annotations

import numpy as np
import pytest
from automatic_graphs import Writer

from mace_core.run.reference import execute
from mace_frontend_ai8x.network import Operation
from mace_target_max78000.design import design_network
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.options import Options
from mace_target_max78000.project import make_project
from mace_target_max78000.quantize.plan import QuantizationPolicy
from mace_target_max78002.device import MAX78002


@pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
@pytest.mark.parametrize("pooled", ["nothing", "operands", "sum"])
def test_an_element_wise_operation_before_a_convolution_of_lines_is_a_layer_of_its_own(
    device: Chip, pooled: str
) -> None:
    """The hardware combines Conv2d with one, not Conv1d."""
    w = Writer(3)
    x = w.input(24, 8)
    a, b = (w.conv(x, 8, (1,)) for _ in range(2))
    if pooled == "operands":
        a, b = (w.pool(operand, (2,), 2) for operand in (a, b))
    both = w.one("Add", [a, b])
    if pooled == "sum":
        both = w.pool(both, (2,), 2)
    graph = w.graph(w.conv(both, 4, (3,)))
    result = design_network(graph, (), device, Options(), QuantizationPolicy())
    layers = result.network.layers
    assert [layer.operation for layer in layers if layer.eltwise is not None] == [Operation.PASSTHROUGH]
    assert sum(layer.pools for layer in layers) == (pooled != "nothing")
    project = make_project(result.network, result.options, device)
    expected = execute(
        graph, {graph.inputs[0]: result.network.sample.reshape(8, 24).T[None].astype(np.int8)}
    )[graph.outputs[0]]
    assert np.array_equal(project.results[-1].reshape(4, -1).T.reshape(expected.shape), expected)
