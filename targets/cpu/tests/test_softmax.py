"""Softmax and its kin against their numpy references."""

from pathlib import Path

import numpy as np

from mace_core.testing.compiled import case, check_graphs
from mace_target_cpu import Cpu


def test_along_every_axis(tmp_path: Path) -> None:
    graphs = [
        case(f"{op}{i}_{axis}", op, [np.zeros(shape, np.float32)], {"axis": axis})
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for i, shape in enumerate([(3, 7, 19), (2, 1000), (5,), (1, 3)])
        for axis in range(len(shape))
    ]
    check_graphs(Cpu(), graphs, tmp_path)
