"""MatMulInteger against its reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.testing.compiled import case, check_graphs
from mace_target_cpu import Cpu

SHAPES = {
    "one": ((3, 33), (33, 21)),
    "row": ((1, 8), (8, 5)),
    "batch": ((2, 5, 7), (2, 7, 3)),
    "broadcast": ((2, 5, 7), (7, 17)),
    "vector": ((9,), (9, 4)),
    "whole": ((13, 64), (64, 33)),
    "wide": ((30, 66), (66, 143)),
}


@pytest.mark.slow
@pytest.mark.parametrize("constant", [True, False])
def test_products(constant: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    graphs, given = [], {}
    for name, (a, b) in SHAPES.items():
        for left, right in ((np.int8, np.uint8), (np.uint8, np.int8)):
            arrays = [
                rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, s).astype(t)
                for t, s in ((left, a), (right, b))
            ]
            arrays += [np.array(7, left), np.array(3, right)]
            graph = case(
                f"{name}_{left.__name__}", "MatMulInteger", arrays, constants=(1, 3) if constant else ()
            )
            graphs.append(graph)
            given[graph.name] = {n: arrays[int(n[1:])] for n in graph.inputs}
    check_graphs(Cpu(), graphs, tmp_path, given)
