"""Ops that only copy against their numpy references."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from mace_core.levels import Level
from mace_core.testing.compiled import case, check_graphs, with_levels
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu

LEVELS = levels_here(Cpu().levels("host"))


@pytest.mark.slow
@pytest.mark.sampled(cases="i8|f4")
@pytest.mark.parametrize("dtype", ["f4", "u1", "i8", "f2"])
def test_transposes(tmp_path: Path, dtype: str) -> None:
    graphs = [
        case(f"t{i}_{j}", "Transpose", [np.zeros(shape, dtype)], {"perm": perm})
        for i, shape in enumerate([(3, 17, 40), (2, 3, 4, 5), (1, 7, 1, 3)])
        for j, perm in enumerate(permutations(range(len(shape))))
    ]
    graphs.append(case("five", "Transpose", [np.zeros((2, 3, 4, 2, 3), dtype)], {"perm": (0, 2, 1, 4, 3)}))
    check_graphs(Cpu(), graphs, tmp_path)


@pytest.mark.slow
def test_cuts(tmp_path: Path) -> None:
    x = np.zeros((4, 5, 6), np.float32)
    graphs = [
        case("middle", "Slice", [x], {"starts": (1, 0, 2), "sizes": (2, 5, 3), "steps": (1, 1, 1)}),
        case("backwards", "Slice", [x], {"starts": (3, 4, 5), "sizes": (4, 2, 3), "steps": (-1, -2, -2)}),
        case("nothing", "Slice", [x], {"starts": (0, 0, 0), "sizes": (4, 0, 6), "steps": (1, 1, 1)}),
        case("parts", "Split", [x], {"axis": 1, "sizes": (1, 3, 1)}, outputs=3),
        case("rows", "Split", [x], {"axis": 0, "sizes": (2, 2)}, outputs=2),
        case("last", "Split", [x], {"axis": 2, "sizes": (5, 1)}, outputs=2),
    ]
    check_graphs(Cpu(), graphs, tmp_path)


@pytest.mark.slow
def test_joins_and_repeats(tmp_path: Path) -> None:
    x = np.zeros((2, 3, 4), np.float32)
    graphs = [case(f"c{axis}", "Concat", [x, x[:, :, :], x], {"axis": axis}) for axis in range(3)]
    graphs += [
        case("uneven", "Concat", [x, np.zeros((2, 1, 4), "f4")], {"axis": 1}),
        case("tile", "Tile", [x], {"repeats": (2, 1, 3)}),
        case("expand", "Expand", [np.zeros((3, 1), "f4")], {"shape": (2, 3, 4)}),
        case("scalar", "Expand", [np.zeros((), "f4")], {"shape": (2, 3)}),
    ]
    check_graphs(Cpu(), graphs, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS, ids=[level.name for level in LEVELS])
def test_runs_of_every_length_are_joined(level: Level, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    widths = (*range(1, 72), 95, 96, 97, 127, 128, 129, 255, 256, 257, 300)
    parts = [rng.integers(0, 256, (3, width)).astype(np.uint8) for width in widths]
    graph = case("runs", "Concat", parts, {"axis": 1})
    check_graphs(with_levels(Cpu(), [level]), [graph], tmp_path)
