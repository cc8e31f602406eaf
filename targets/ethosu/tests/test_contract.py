"""The contract that every target keeps, with LiteRT behind a stub of the vendor's driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import int8_graphs
import numpy as np
import pytest
from npu_stub import Npu, plugged_in

from mace_core.graph_builder import Builder
from mace_core.ir import Graph, State
from mace_core.run.reference import execute
from mace_core.testing import hostile
from mace_core.testing.compiled import compile_graphs, generate_library, load_library, merge
from mace_core.testing.heap import measure_heap
from mace_core.testing.target import LENGTH, TargetContract
from mace_target_ethosu import EthosU


@pytest.fixture(autouse=True, scope="module")
def npu() -> Iterator[Npu]:
    with pytest.MonkeyPatch.context() as patch, plugged_in(patch) as npu:
        yield npu


@pytest.mark.exhaustive  # test_models.py has a real model in the plain run
@pytest.mark.slow
class TestEthosU(TargetContract):
    target = EthosU()
    seeds = 0

    def chain(self) -> Graph:
        return int8_graphs.chain(LENGTH)

    def test_hostile_names_stay_names(self, tmp_path: Path) -> None:
        builder = Builder("names")
        value = int8_graphs.add_input(builder, f"{hostile.NAMES[0]} in")
        for number, name in enumerate(hostile.NAMES):
            value = int8_graphs.convolve(builder, value, number, name)
        graph = builder.finish([value])
        library = generate_library([self.target], [graph])
        assert hostile.escapes(library.files) == []
        model = load_library(library, tmp_path)["names"]
        assert [t.name for t in (*model.inputs, *model.outputs)] == [*graph.inputs, *graph.outputs]
        inputs = {name: _integers(0) for name in graph.inputs}
        (output,) = graph.outputs
        assert np.array_equal(model.run(inputs)[output], execute(graph, inputs)[output])

    def test_sessions_use_the_heap_only_if_a_driver_says_so(
        self, tmp_path: Path, npu: Npu, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LD_PRELOAD", str(npu.library))
        graph = merge("heap", self.accepted_graphs()[:5])
        (use,) = measure_heap(generate_library([self.target], [graph]), tmp_path)
        assert (use.status, use.is_declared, use.requests) == (0, False, 0)

    def test_states_last_from_run_to_run(self, tmp_path: Path) -> None:
        builder = Builder("memory")
        x, before = (int8_graphs.add_input(builder, name) for name in ("x", "before"))
        after, y = (int8_graphs.convolve(builder, tensor, seed) for seed, tensor in enumerate((x, before)))
        graph = builder.finish([y, after], ["y", "after"])
        start = np.full((1, 4, 4, 4), 10, np.int8)
        graph = replace(graph, states=(State("before", "after", start),))
        (model,) = compile_graphs(self.target, [graph], tmp_path).values()
        for _ in range(2):
            value = start
            for seed in range(3):
                expected = execute(graph, {"x": _integers(seed), "before": value})
                assert np.array_equal(model.run({"x": _integers(seed)})["y"], expected["y"])
                value = expected["after"]
            model.reset()


def _integers(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, (1, 4, 4, 4)).astype(np.int8)
