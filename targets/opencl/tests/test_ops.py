"""Ops on shapes and attributes that the sample graphs of the contract do not have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from odd_cases import build_odd_graph
from opencl_device import load_on_device, require_device

from mace_core.attributes import Attribute
from mace_core.ir import DType
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.testing.compiled import assert_close, case, random_inputs
from mace_core.testing.samples import sample
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

MIN_OPS = 128


def test_most_ops_have_kernels() -> None:
    target = Opencl()
    graphs = {
        name: sample(name, DType.F32) or sample(name, DType.BOOL) or sample(name, DType.I32)
        for name in core_ops()
    }
    accepted = [
        n for n, g in graphs.items() if g and all(target.refuses(node, g) is None for node in g.nodes)
    ]
    assert len(accepted) >= MIN_OPS, sorted({*graphs} - {*accepted})


@pytest.mark.parametrize(("count", "deep"), [(8, 4), (9, 1)])
def test_rows_that_are_cut_off_are_loaded_as_they_are_aligned(count: int, deep: int) -> None:
    graph = case("dft", "DFT", [np.zeros((3, count, 2), np.float32)], {"length": 6})
    (call,) = Opencl().lower(graph).calls
    assert call.kernel.params["deep"] == deep


@pytest.mark.parametrize(
    ("shape", "attrs", "reason"),
    [
        ((2, 8, 3, 1), {"length": 8, "axis": 1}, "transforms another axis"),
        ((1, 4096, 2), {"length": 4096}, "has more than 4194304 numbers"),
    ],
)
def test_a_transform_without_a_small_matrix_is_refused(
    shape: tuple[int, ...], attrs: dict[str, Attribute], reason: str
) -> None:
    graph = case("dft", "DFT", [np.zeros(shape, np.float32)], attrs)
    refusal = Opencl().refuses(graph.nodes[0], graph)
    assert refusal is not None
    assert reason in refusal.reason


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize("checks", [False, True], ids=["plain", "checked"])
def test_ops_of_odd_shapes_compute_what_the_references_do(checks: bool, tmp_path: Path) -> None:
    """A check build fails where a kernel reads or writes outside of a tensor."""
    require_device()
    graph = build_odd_graph()
    target = Opencl(OpenclOptions(checks_bounds=checks))
    model = load_on_device([graph], tmp_path, target)["odd"]
    inputs = random_inputs(graph)
    expected, outputs = execute(graph, inputs), model.run(inputs)
    for name in graph.outputs:
        assert_close(outputs[name], expected[name], name, 1e-4)
