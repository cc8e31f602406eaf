"""Random graphs of integers and halves: the generated C beside the references."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mace_core.ir import DType
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs, run_merged
from mace_core.testing.operator_graphs import random_operators
from mace_core.testing.samples import extreme_inputs
from mace_target_cpu import Cpu

INTEGERS = tuple(dtype for dtype in DType if not dtype.is_float)
HALVES = (DType.F16,)
HALF_TOLERANCE = 2.0**-7
"""Of the largest number: several roundings of half precision, which the kernels make in single precision."""


def check_seeds(seeds: Sequence[int], types: Sequence[DType], folder: Path) -> None:
    """Assert that all graphs of these seeds compute what their references do; integers at their extremes."""
    target = Cpu()
    graphs = [random_operators(seed, types) for seed in seeds]
    accepted = [g for g in graphs if not any(target.refuses(node, g) for node in g.nodes)]
    assert 2 * len(accepted) >= len(graphs)
    make_inputs = random_inputs if types is HALVES else extreme_inputs
    inputs = {graph.name: make_inputs(graph) for graph in accepted}
    results = run_merged(target, accepted, folder, inputs)
    for graph in accepted:
        expected = execute(graph, inputs[graph.name])
        for name in graph.outputs:
            tolerance = 0.0
            if graph.tensors[name].dtype is DType.F16:
                tolerance = HALF_TOLERANCE * float(np.abs(expected[name], dtype=np.float64).max(initial=1))
            place = f"{graph.name}: {name}"
            np.testing.assert_allclose(results[graph.name][name], expected[name], 0, tolerance, err_msg=place)


@pytest.mark.slow
@pytest.mark.parametrize("types", [INTEGERS, HALVES], ids=["integers", "halves"])
def test_a_few_graphs(types: Sequence[DType], tmp_path: Path) -> None:
    check_seeds(range(4), types, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("types", [INTEGERS, HALVES], ids=["integers", "halves"])
@pytest.mark.parametrize("first", range(100, 340, 80))
def test_many_graphs(first: int, types: Sequence[DType], tmp_path: Path) -> None:
    check_seeds(range(first, first + 80), types, tmp_path)
