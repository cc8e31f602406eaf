"""Candidates for products and windows: a tuning file chooses a tile or a group, which computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from opencl_device import measure_error, require_device

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import case, generate_library, load_library, merge, random_inputs
from mace_core.tuning import Tuning, TuningEntry
from mace_target_opencl.target import Opencl

TILES = {"tile128": (128, 1), "tile64": (64, 1), "tile32": (32, 1), "split32": (32, 4)}
NAMES = ("auto", "plain", *TILES, "split", "rows1", "rows8", "group4", "group32", "driver")
GROUPS = {"plain": (16, 4, 1), "group4": (4, 16, 1), "group32": (32, 2, 1), "driver": (0, 0, 0)}
WINDOW = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}


def product_graph() -> Graph:
    """A product that every candidate takes: enough groups for a tile, and multiples of four."""
    weights = np.random.default_rng(0).normal(0, 0.2, (64, 512)).astype(np.float32)
    return case("m", "MatMul", [np.zeros((512, 64), np.float32), weights], constants=(1,))


def pool_graph() -> Graph:
    builder = Builder("m")
    x = builder.input("x", DType.F32, (2, 9, 7, 64))
    return builder.finish([builder.one("MaxPool", [x], {**WINDOW, "kernel": (3, 3)})])


def conv_graph() -> Graph:
    """A convolution that every candidate takes."""
    builder, rng = Builder("m"), np.random.default_rng(0)
    x = builder.input("x", DType.F32, (1, 20, 20, 16))
    w = builder.weight("w", rng.normal(0, 0.2, (32, 3, 3, 16)).astype(np.float32))
    return builder.finish([builder.one("Conv", [x, w], WINDOW)])


def choose(candidate: str) -> Tuning:
    return Tuning(Path("t.yml"), (TuningEntry(candidate, 1, node=product_graph().nodes[0].name),))


@pytest.mark.parametrize("candidate", NAMES)
def test_a_tuning_file_chooses_the_kernel(candidate: str) -> None:
    program = Opencl().lower(product_graph(), tuning=choose(candidate))
    (call,) = program.calls
    params = call.kernel.params
    assert call.kernel.name.startswith("tile_" if candidate in ("auto", *TILES) else "product_")
    if candidate in TILES:
        assert (params["tile_columns"], params["splits"]) == TILES[candidate]
    if candidate == "split":
        assert (params["splits"], call.args["local_size"]) == (16, (16, 16, 1))
    if candidate.startswith("rows"):
        assert call.kernel.params["rows"] == int(candidate.removeprefix("rows"))
    if candidate in GROUPS:
        assert call.args["local_size"] == GROUPS[candidate]
    (selection,) = program.selections
    assert tuple(selection.choices[0].costs) == NAMES


@pytest.mark.parametrize("candidate", GROUPS)
def test_a_tuning_file_chooses_the_groups_of_windows(candidate: str) -> None:
    graph = pool_graph()
    name = "auto" if candidate == "plain" else candidate
    tuning = Tuning(Path("t.yml"), (TuningEntry(name, 1, node=graph.nodes[0].name),))
    (call,) = Opencl().lower(graph, tuning=tuning).calls
    assert call.args["local_size"] == GROUPS[candidate]


def test_a_product_that_no_tile_takes_has_fewer_candidates() -> None:
    graph = case("m", "MatMul", [np.zeros((5, 7), np.float32), np.ones((7, 3), np.float32)], constants=(1,))
    (selection,) = Opencl().lower(graph).selections
    assert tuple(selection.choices[0].costs) == tuple(name for name in NAMES if name not in TILES)
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
def test_each_candidate_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One library has a node for each candidate of each op."""
    require_device()
    samples = {"product": product_graph(), "conv": conv_graph(), "pool": pool_graph()}
    graphs, entries = [], []
    for kind, graph in samples.items():
        (selection,) = Opencl().lower(graph).selections
        for candidate in selection.choices[0].costs:
            graphs.append(graph.with_name(f"{kind}_{candidate}"))
            entries.append((f"{kind}_{candidate}", candidate))
    merged = merge("all", graphs)
    (names,) = ([node.name for node in merged.nodes],)
    pairs = zip(names, entries, strict=True)
    tuning = Tuning(Path("t.yml"), tuple(TuningEntry(c, 1, node=name) for name, (_, c) in pairs))
    monkeypatch.setattr("mace_target_opencl.target.tuning_of", lambda *_: tuning)
    kernels = {call.kernel.name for call in Opencl().lower(merged, tuning=tuning).calls}
    assert len(kernels) > 16, "candidates differ"
    model = load_library(generate_library([Opencl()], [merged]), tmp_path)["all"]
    inputs = random_inputs(merged)
    expected, outputs = execute(merged, inputs), model.run(inputs)
    errors = {name: measure_error(outputs[name], expected[name]) for name in merged.port_outputs}
    assert max(errors.values()) < 1e-5, errors


def test_a_reason_that_all_candidates_have_is_told_once() -> None:
    graph = case("m", "MatMul", [np.zeros((4, 4)), np.ones((4, 4))], constants=(1,))
    refusal = Opencl().refuses(graph.nodes[0], graph)
    assert refusal is not None
    assert refusal.reason == "no OpenCL kernel computes MatMul of f64"
