"""Random graphs whose nodes are shared out between the GPU and the processor compute what the processor alone does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from opencl_device import measure_error, require_device

from mace_core.api import BuildConfig, Part, Refusal, Region, Target
from mace_core.ir import Graph, Node
from mace_core.levels import with_levels
from mace_core.registry import Registry
from mace_core.run.reference import execute
from mace_core.testing.compiled import generate_library, load_library, merge, random_inputs
from mace_core.testing.strategies import random_graph
from mace_target_opencl.target import Opencl

GRAPHS = 24


class Sampled(Target):
    """Takes two of three of the nodes that the GPU takes, so that regions of both follow each other."""

    name, device = "opencl", "gpu"

    def __init__(self) -> None:
        self.target = Opencl()

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        number = [other.name for other in graph.nodes].index(node.name)
        if number % 3 == 2:
            return Refusal("other", "the test gives it to the processor")
        return self.target.refuses(node, graph)

    def compile(self, region: Region, config: BuildConfig) -> Part:
        return self.target.compile(replace(region, target=self.target), config)

    manifests = Opencl.manifests


@pytest.mark.device
@pytest.mark.exhaustive
def test_random_graphs_on_both_compute_what_the_references_do(tmp_path: Path) -> None:
    require_device()
    cpu = Registry.load().targets["cpu"]
    cpu = with_levels(cpu, cpu.levels("host")[-1:])
    graph = merge("split", [random_graph(seed).with_name(f"g{seed}") for seed in range(GRAPHS)])
    session = load_library(generate_library([Sampled(), cpu], [graph]), tmp_path)["split"]
    assert {device.split(":")[0] for device in session.devices()} == {"opencl", "cpu"}
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        expected, outputs = execute(graph, inputs), session.run(inputs)
        for name in graph.outputs:
            assert measure_error(outputs[name], expected[name]) < 1e-4, name
