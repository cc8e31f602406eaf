"""Fourier transforms, determinants, running products and the norm of a row, against their numpy references."""

from pathlib import Path

import numpy as np
import pytest

from mace_core.ir import Array, Graph
from mace_core.testing.compiled import case, check_graphs
from mace_target_cpu import Cpu
from mace_target_cpu.lower.dft import factors


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def test_factors() -> None:
    for n in (1, 2, 7, 30, 97, 360, 512, 997 * 4, 1 << 20):
        assert np.prod(factors(n), initial=1) == n
    assert factors(480) == (4, 4, 2, 3, 5)


@pytest.mark.slow
@pytest.mark.parametrize("inverse", [False, True])
def test_dft(tmp_path: Path, inverse: bool) -> None:
    graphs: list[Graph] = []
    for length in (1, 2, 5, 6, 8, 27, 60, 127, 400, 512):
        for onesided in (False, True):
            attrs = {"length": length, "inverse": inverse, "onesided": onesided}
            for parts in (1, 2):
                graphs.append(case(f"d{len(graphs)}", "DFT", [zeros(3, length, parts)], attrs))
            graphs.append(case(f"d{len(graphs)}", "DFT", [zeros(2, length + 3, 2, 2)], {**attrs, "axis": 1}))
            graphs.append(
                case(f"d{len(graphs)}", "DFT", [zeros(max(1, length // 2), 3, 1)], {**attrs, "axis": 0})
            )
    check_graphs(Cpu(), graphs, tmp_path, tolerance=2e-5)


@pytest.mark.slow
def test_det(tmp_path: Path) -> None:
    graphs = [
        case(f"d{i}", "Det", [zeros(*s)])
        for i, s in enumerate(((1, 1), (3, 2, 2), (2, 2, 5, 5), (20, 20), (2, 0, 0)))
    ]
    singular = {"x0": np.ones((20, 20), np.float32)}
    check_graphs(Cpu(), graphs, tmp_path, tolerance=2e-4)
    check_graphs(Cpu(), graphs[3:4], tmp_path / "singular", {"d3": singular})


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int32, np.int64])
def test_running(tmp_path: Path, dtype: type[np.generic]) -> None:
    graphs: list[Graph] = []
    inputs: dict[str, dict[str, Array]] = {}
    for op in ("CumProd", "CumSum"):
        for shape, axis in (((7,), 0), ((3, 6, 4), 1), ((3, 6, 4), -1), ((2, 0, 3), 1)):
            x = np.random.default_rng(0).integers(1, 100, shape).astype(dtype)
            for flags in ({}, {"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True}):
                name = f"c{len(graphs)}"
                graphs.append(case(name, op, [x], {"axis": axis, **flags}))
                inputs[name] = {"x0": x}
    check_graphs(Cpu(), graphs, tmp_path, inputs, tolerance=0)


@pytest.mark.slow
def test_rms_norm(tmp_path: Path) -> None:
    graphs: list[Graph] = []
    for shape, axis in (((3, 5), -1), ((2, 3, 64), 2), ((2, 4, 6, 3), 1), ((7, 1), 1), ((0, 4), 1)):
        for scale in (shape[axis:], (1,)):
            constants = (1,) if scale == (1,) else ()
            arrays = [zeros(*shape), np.full(scale, 1.5, np.float32)]
            graphs.append(
                case(
                    f"r{len(graphs)}", "RMSNorm", arrays, {"axis": axis, "epsilon": 1e-3}, constants=constants
                )
            )
    check_graphs(Cpu(), graphs, tmp_path)
