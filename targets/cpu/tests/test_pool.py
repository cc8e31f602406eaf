"""Pools: windows at every edge, channels that fill no vector, element types, empty windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.ir import Array, Graph
from mace_core.testing.compiled import case, check_graphs, run_merged, with_levels
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.isa import CpuLevel

LEVELS = levels_here(Cpu().levels("host"))
NO_PADDING = {"pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
CHANNELS = (1, 3, 8, 13, 40)
GEOMETRIES: dict[str, dict[str, Attribute]] = {
    "pairs": {"kernel": (2, 2), "strides": (2, 2)},
    "padded": {"kernel": (3, 3), "strides": (2, 1), "pads_before": (1, 2), "pads_after": (2, 1)},
    "dilated": {"kernel": (3, 2), "strides": (1, 2), "dilations": (2, 3), "pads_before": (2, 1), "pads_after": (1, 2)},
    # The window of the first row and column sees padding alone.
    "outside": {"kernel": (2, 2), "strides": (3, 3), "pads_before": (2, 2), "pads_after": (2, 2)},
    "whole": {"kernel": (7, 6), "strides": (1, 1)},
}  # fmt: skip


def image(channels: int, dtype: str) -> Array:
    rng = np.random.default_rng(channels)
    return (rng.standard_normal((2, 7, 6, channels)) * 40).astype(dtype)


def pools(op: str, dtype: str = "float32", **attrs: Attribute) -> list[Graph]:
    """One graph for each number of channels and geometry."""
    graphs = []
    for channels in CHANNELS:
        for name, geometry in GEOMETRIES.items():
            label = "_".join([op.lower(), dtype, name, str(channels), *map(str, attrs.values())])
            options = {**NO_PADDING, **geometry, **attrs}
            graphs.append(case(label, op, [image(channels, dtype)], options))
    return graphs


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("level", LEVELS, ids=[level.name for level in LEVELS])
def test_pools_see_what_is_inside_of_their_windows(level: object, tmp_path: Path) -> None:
    graphs = [*pools("MaxPool"), *pools("MaxPool", "int8")[::3], *pools("MaxPool", "int16")[::4]]
    graphs += [*pools("AveragePool", count_pad=True), *pools("AveragePool")[::2], *pools("LpPool", p=1)[::4]]
    check_graphs(with_levels(Cpu(), [level]), graphs, tmp_path)  # type: ignore[list-item]


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS, ids=[level.name for level in LEVELS])
def test_runs_of_windows_of_bytes_see_what_single_ones_see(level: object, tmp_path: Path) -> None:
    windows: dict[str, dict[str, Attribute]] = {
        "inside": {"kernel": (3, 3), "strides": (2, 2), "pads_before": (0, 0), "pads_after": (0, 0)},
        "border": {"kernel": (3, 3), "strides": (1, 2), "pads_before": (1, 1), "pads_after": (1, 1)},
        "four": {"kernel": (2, 2), "strides": (2, 1), "pads_before": (0, 1), "pads_after": (1, 0)},
        "apart": {"kernel": (3, 2), "strides": (1, 3), "dilations": (2, 4), "pads_before": (2, 0), "pads_after": (0, 3)},
        # More taps than a run takes.
        "many": {"kernel": (5, 13), "strides": (1, 1), "pads_before": (2, 2), "pads_after": (2, 2)},
    }  # fmt: skip
    rng = np.random.default_rng(5)
    graphs = []
    for dtype, (low, high) in {"int8": (-128, 128), "uint8": (0, 256)}.items():
        for name, window in windows.items():
            for channels in (24, 32, 45, 64, 150):
                x = rng.integers(low, high, (2, 9, 14, channels)).astype(dtype)
                graphs.append(
                    case(f"{dtype}_{name}_{channels}", "MaxPool", [x], {"dilations": (1, 1), **window})
                )
        x = rng.integers(low, high, (1, 5, 6, 7, 70)).astype(dtype)
        cube: dict[str, Attribute] = {"kernel": (2, 2, 2), "strides": (2, 1, 2), "dilations": (1, 2, 1)}
        cube |= {"pads_before": (1, 0, 1), "pads_after": (0, 1, 0)}
        graphs.append(case(f"{dtype}_cube", "MaxPool", [x], cube))
    check_graphs(with_levels(Cpu(), [level]), graphs, tmp_path)  # type: ignore[list-item]


@pytest.mark.slow
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_result_of_one_pixel(op: str, tmp_path: Path) -> None:
    x = image(13, "float32")[:1]
    check_graphs(Cpu(), [case("pixel", op, [x], {**NO_PADDING, **GEOMETRIES["whole"]})], tmp_path)


@pytest.mark.slow
def test_the_greatest_of_a_window_with_nan_is_nan(tmp_path: Path) -> None:
    x = image(13, "float32")
    x[0, 2, 3, 5] = np.nan
    graph = case("nan", "MaxPool", [x], {**NO_PADDING, "kernel": (3, 3), "strides": (1, 1)})
    check_graphs(Cpu(), [graph], tmp_path, {"nan": {graph.inputs[0]: x}})


def largest_in_order(x: Array, kernel: tuple[int, int], strides: tuple[int, int]) -> Array:
    """Return the largest tap of each window, in the order of taps: of two zeros the first, and the first NaN."""
    rows, columns = ((x.shape[i + 1] - kernel[i]) // strides[i] + 1 for i in range(2))
    result = np.full((len(x), rows, columns, x.shape[-1]), -np.inf, x.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            lines = x[:, i : i + (rows - 1) * strides[0] + 1 : strides[0]]
            taps = lines[:, :, j : j + (columns - 1) * strides[1] + 1 : strides[1]]
            is_larger = (taps > result) | (np.isnan(taps) & ~np.isnan(result))
            result = np.where(is_larger, taps, result)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("special", [(), (np.inf, -np.inf), (np.nan, np.inf, -np.inf)], ids=str)
@pytest.mark.parametrize("level", LEVELS, ids=[level.name for level in LEVELS])
def test_runs_of_floats_keep_nan_and_the_sign_of_zeros(
    level: CpuLevel, special: tuple[float, ...], tmp_path: Path
) -> None:
    random = np.random.default_rng(7)
    windows = [
        ((3, 3), (2, 2)),
        ((2, 2), (2, 2)),
        ((3, 2), (1, 1)),
        ((1, 9), (1, 2)),
        ((9, 1), (1, 1)),
        ((1, 1), (2, 3)),
    ]
    # Half of them are zeros of both signs, so that many windows have no other.
    values = np.array([0.0, -0.0, 0.0, -0.0, -1.0, -2.0, 1.0], np.float32)
    graphs, inputs, expected = [], {}, {}
    for number, (kernel, strides) in enumerate(windows):
        for channels in (3, 8, 21, 48):
            x = random.choice(values, (2, 11, 12, channels))
            places = random.integers(0, x.size, len(special))
            x.reshape(-1)[places] = special
            name = f"run_{number}_{channels}"
            graph = case(name, "MaxPool", [x], {**NO_PADDING, "kernel": kernel, "strides": strides})
            graphs.append(graph)
            inputs[name] = {graph.inputs[0]: x}
            expected[name] = largest_in_order(x, kernel, strides)
    results = run_merged(with_levels(Cpu(), [level]), graphs, tmp_path, inputs)
    for graph in graphs:
        actual = results[graph.name][graph.outputs[0]]
        np.testing.assert_array_equal(actual.view(np.int32), expected[graph.name].view(np.int32), graph.name)
