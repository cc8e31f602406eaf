"""Models whose nodes are divided between processor and DSP have the bits of the processor's library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from dsp_session import make_emulator
from hexagon_models import KEYWORDS

from mace_core.api import Refusal
from mace_core.ir import Array, DType, Graph, Node
from mace_core.ops import core_ops
from mace_core.registry import Registry
from mace_core.testing.compiled import generate_library, load_library, merge, random_inputs
from mace_core.testing.samples import sample
from mace_target_hexagon.emulator import STAND_IN
from mace_target_hexagon.target import Hexagon

OPS = ("Add", "Mul", "Relu", "Conv", "MatMul", "MaxPool", "AveragePool", "Pad", "Concat", "Transpose")


class EverySecond(Hexagon):
    """A DSP that leaves every second node to the processor."""

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        number = [n.name for n in graph.nodes].index(node.name)
        if number % 2:
            return Refusal("other", "the test gives it to the processor")
        return super().refuses(node, graph)


def integer_graphs() -> list[Graph]:
    """Return a graph for each op over bytes with and without signs."""
    graphs = [
        sample(op, dtype, quantized=True, zero_point=3)
        for op, dtype in product(core_ops(), (DType.I8, DType.U8))
        if op in OPS
    ]
    return [graph.with_name(f"g{number}_{graph.name}") for number, graph in enumerate(graphs) if graph]


def assert_split_equal(
    graph: Graph, draw_inputs: Callable[[int], dict[str, Array]], folder: Path, patch: pytest.MonkeyPatch
) -> None:
    """Assert that a graph whose nodes are divided gives the bits of the CPU's library.

    draw_inputs: returns the inputs of a run by its number.
    """
    emulator = make_emulator(folder / "emulator")
    ctypes.CDLL(str(emulator.folder / STAND_IN))
    for name, value in emulator.environment([folder / "split"]).items():
        patch.setenv(name, value)
    cpu = Registry.load().targets["cpu"]
    alone = load_library(generate_library([cpu], [graph]), folder / "alone")[graph.name]
    split = load_library(generate_library([EverySecond(), cpu], [graph]), folder / "split")[graph.name]
    devices = split.devices()
    assert any(device.startswith("hexagon: ") for device in devices)
    assert any(device.startswith("cpu: ") for device in devices)
    for number in range(3):
        inputs = draw_inputs(number)
        expected, actual = alone.run(inputs), split.run(inputs)
        for name in graph.outputs:
            assert actual[name].tobytes() == expected[name].tobytes(), name


@pytest.mark.slow
@pytest.mark.exhaustive
def test_half_of_the_nodes_on_the_dsp_give_the_bits_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = merge("merged", integer_graphs())
    assert len(graph.nodes) >= 2 * len(OPS)
    assert_split_equal(graph, lambda seed: random_inputs(graph, seed), tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.emulator
def test_a_whole_model_divided_gives_the_bits_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = KEYWORDS.read_graph(tmp_path)
    assert_split_equal(graph, lambda sample: KEYWORDS.draw_inputs(graph, sample), tmp_path, monkeypatch)
