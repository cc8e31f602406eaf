"""Random graphs that the GPU and the processor share compute what the processor alone does.

`pytest -m "device and fuzz"` tries 1,000 of them, or as many as MACE_FUZZ says.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from zlib import crc32

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
"""Graphs of one library: a compiler starts once for all of them."""


class Sampled(Target):
    """Takes two of three of the nodes that the GPU takes, so that regions of both follow each other."""

    name, device = "opencl", "gpu"

    def __init__(self) -> None:
        self.target = Opencl()

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        # By the name, which begins with the graph's: equal graphs are shared out differently.
        if crc32(node.name.encode()) % 3 == 2:
            return Refusal("other", "the test gives it to the processor")
        return self.target.refuses(node, graph)

    def compile(self, region: Region, config: BuildConfig) -> Part:
        return self.target.compile(replace(region, target=self.target), config)

    manifests = Opencl.manifests


def check_graphs(first: int, folder: Path) -> None:
    """Compare graphs that both compute with the processor's library, and with the references."""
    require_device()
    cpu = Registry.load().targets["cpu"]
    cpu = with_levels(cpu, cpu.levels("host")[-1:])
    graph = merge(
        "split", [random_graph(seed).with_name(f"g{seed}") for seed in range(first, first + GRAPHS)]
    )
    session = load_library(generate_library([Sampled(), cpu], [graph]), folder / "split")["split"]
    alone = load_library(generate_library([cpu], [graph]), folder / "alone")["split"]
    assert {device.split(":")[0] for device in session.devices()} == {"opencl", "cpu"}
    assert {device.split(":")[0] for device in alone.devices()} == {"cpu"}
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        expected, outputs, others = execute(graph, inputs), session.run(inputs), alone.run(inputs)
        for name in graph.outputs:
            assert measure_error(outputs[name], expected[name]) < 1e-4, name
            assert measure_error(outputs[name], others[name]) < 1e-4, name


@pytest.mark.device
@pytest.mark.exhaustive
def test_random_graphs_on_both_compute_what_the_processor_does(tmp_path: Path) -> None:
    check_graphs(0, tmp_path)


@pytest.mark.device
@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(0, int(os.environ.get("MACE_FUZZ", "1000")), GRAPHS))
def test_many_random_graphs_on_both(first: int, tmp_path: Path) -> None:
    check_graphs(first, tmp_path)
