"""Regions are counted as a build would divide the graph."""

from __future__ import annotations

import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType
from mace_core.lint_regions import count_regions


@pytest.mark.parametrize(
    ("taken", "regions"), [((), 0), ((0,), 1), ((0, 1, 2, 3), 1), ((0, 2), 2), ((0, 1, 3), 2), ((1, 2), 1)]
)
def test_a_chain_is_divided_where_another_target_computes(taken: tuple[int, ...], regions: int) -> None:
    builder = Builder("chain")
    tensor = builder.input("x", DType.F32, (4,))
    for _ in range(4):
        tensor = builder.one("Relu", [tensor])
    graph = builder.finish([tensor])
    assert count_regions(graph, [graph.nodes[number].name for number in taken]) == regions
