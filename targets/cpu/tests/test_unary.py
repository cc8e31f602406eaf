"""Element-wise ops of one input against their numpy references."""

from pathlib import Path

import numpy as np

from mace_core.testing.compiled import case, check_graphs
from mace_target_cpu import Cpu


def test_unary(tmp_path: Path) -> None:
    x = np.zeros((2, 3, 5), np.float32)
    check_graphs(Cpu(), [case("relu", "Relu", [x])], tmp_path)
