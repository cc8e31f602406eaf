"""Candidates for products: a tuning file chooses a tile, which computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from opencl_device import measure_error, require_device

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import case, generate_library, load_library, random_inputs
from mace_core.tuning import Tuning, TuningEntry
from mace_target_opencl.target import Opencl

KERNELS = {"auto": "tile_", "plain": "product_", "tile64": "tile_", "tile32": "tile_"}


def product_graph() -> Graph:
    """A product that every candidate takes: enough groups for a tile, and multiples of four."""
    weights = np.random.default_rng(0).normal(0, 0.2, (64, 512)).astype(np.float32)
    return case("m", "MatMul", [np.zeros((512, 64), np.float32), weights], constants=(1,))


def choose(candidate: str) -> Tuning:
    return Tuning(Path("t.yml"), (TuningEntry(candidate, 1, node=product_graph().nodes[0].name),))


@pytest.mark.parametrize("candidate", KERNELS)
def test_a_tuning_file_chooses_the_kernel(candidate: str) -> None:
    program = Opencl().lower(product_graph(), tuning=choose(candidate))
    (call,) = program.calls
    assert call.kernel.name.startswith(KERNELS[candidate])
    if candidate.startswith("tile"):
        assert call.kernel.params["tile_columns"] == int(candidate.removeprefix("tile"))
    (selection,) = program.selections
    assert [*selection.choices[0].costs] == [*KERNELS]


def test_a_product_that_no_tile_takes_has_fewer_candidates() -> None:
    graph = case("m", "MatMul", [np.zeros((5, 7), np.float32), np.ones((7, 3), np.float32)], constants=(1,))
    (selection,) = Opencl().lower(graph).selections
    assert [*selection.choices[0].costs] == ["auto", "plain"]
    assert "multiples of 4" in selection.refused["tile64"]


def test_without_a_file_each_product_has_the_kernel_of_the_target() -> None:
    builder = Builder("m")
    x = builder.input("x", DType.F32, (512, 64))
    w = builder.weight("w", np.ones((64, 512), np.float32))
    v = builder.weight("v", np.ones((512, 3), np.float32))
    graph = builder.finish([builder.one("MatMul", [builder.one("MatMul", [x, w]), v])])
    assert [call.kernel.name.partition("_")[0] for call in Opencl().lower(graph).calls] == ["tile", "product"]


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize("candidate", KERNELS)
def test_each_candidate_computes_the_product(
    candidate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_device()
    graph, target = product_graph(), Opencl()
    monkeypatch.setattr("mace_target_opencl.target.tuning_of", lambda *_: choose(candidate))
    model = load_library(generate_library([target], [graph]), tmp_path)["m"]
    inputs = random_inputs(graph)
    (name,) = graph.outputs
    assert measure_error(model.run(inputs)[name], execute(graph, inputs)[name]) < 1e-5
