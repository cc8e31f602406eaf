"""Random graphs all the way: formed, placed, synthesised.

The simulator, fed with the program's bytes alone, equals the IR's reference.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from automatic_graphs import assert_same, sample_of
from automatic_random import random_graph

from mace_core.ir import Array, Graph
from mace_core.run.reference import execute
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.network import Network
from mace_target_max78000.check import find_faults
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.legalize.pipeline import LegalizedGraph
from mace_target_max78000.options import Options
from mace_target_max78000.place.search import place_layers
from mace_target_max78000.simulate import find_mismatches, replay
from mace_target_max78002.device import MAX78002

COUNT = int(os.environ.get("MACE_RANDOM_NETWORKS", "150"))
"""Graphs for each part; 150 make 300."""


@pytest.mark.sampled(every=15)
@pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
@pytest.mark.parametrize("seed", range(COUNT))
def test_simulator_equals_the_reference(seed: int, device: Chip) -> None:
    graph = random_graph(seed)
    check_placed(assert_same(graph, device, seed), graph, sample_of(graph, seed), device)


def check_placed(formed: LegalizedGraph, graph: Graph, x: Array, device: Chip) -> None:
    sample = formed.network_input.apply(x)
    shape = sample.shape if sample.ndim < 3 or sample.shape[2] > 1 else sample.shape[:2]
    placed = place_layers(formed.layers, shape, device, Options())
    network = Network("random", placed.layers, placed.places, sample.reshape(shape))
    assert [str(fault) for fault in find_faults(network, device, placed.options)] == []
    result = outputs(network, placed.options)
    results = [result[i] for i, layer in enumerate(network.layers) if layer.output]
    expected = execute(graph, {graph.inputs[0]: x})[graph.outputs[0]]
    assert len(results) == 1
    step = formed.powers[[layer.output for layer in formed.layers].index(True)]
    whole = np.rint(expected / 2.0**step) if expected.dtype.kind == "f" else expected
    assert np.array_equal(np.moveaxis(results[0], 0, -1).reshape(-1), whole.reshape(-1).astype(np.int64))
    image = synthesize(network, placed.options, device).image
    assert list(find_mismatches(replay(image), image)) == []
