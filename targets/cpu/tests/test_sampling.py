"""Ops whose places come with the data, and windows taken apart, against their numpy references.

Wild coordinates too.
"""

from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from mace_core.api import Target
from mace_core.attributes import Attribute
from mace_core.ir import Array, Graph
from mace_core.levels import with_levels
from mace_core.ops.grid_sample import Mode, Padding
from mace_core.testing.compiled import case, check_graphs
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu

RNG = np.random.default_rng
BEST = with_levels(Cpu(), levels_here(Cpu().levels("host"))[:1])
"""One level, where all kinds of an op stand in one library: a compiler takes most of the time."""

WILD = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, 1.0, -1.0], np.float32)


class Cases:
    """Graphs of one node each and their inputs."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.inputs: dict[str, dict[str, Array]] = {}

    def put(self, op: str, arrays: list[Array], attrs: dict[str, Attribute], outputs: int = 1) -> None:
        name = f"{op.lower()}{len(self.graphs)}"
        self.graphs.append(case(name, op, arrays, attrs, outputs=outputs))
        self.inputs[name] = {f"x{i}": a for i, a in enumerate(arrays)}

    def check(self, folder: Path, tolerance: float = 1e-5, target: Target = Cpu()) -> None:  # noqa: B008
        check_graphs(target, self.graphs, folder, self.inputs, tolerance)


def normal(seed: int, *shape: int) -> Array:
    return RNG(seed).standard_normal(shape).astype(np.float32)


def wild(array: Array) -> Array:
    """The array with some of its elements unreasonable."""
    flat = array.reshape(-1).copy()
    flat[:: max(1, flat.size // len(WILD))][: len(WILD)] = WILD[
        : len(flat[:: max(1, flat.size // len(WILD))])
    ]
    return flat.reshape(array.shape)


GRIDS = (
    ((2, 5, 7, 3), (2, 4, 6, 2)),
    ((1, 6, 4, 17), (1, 3, 3, 2)),
    ((2, 9, 2), (2, 5, 1)),
    ((1, 3, 4, 5, 2), (1, 2, 3, 4, 3)),
)


@pytest.mark.slow
def test_grid_sample(tmp_path: Path) -> None:
    cases = Cases()
    for (x, grid), mode, padding, align in product(
        (*GRIDS, ((1, 1, 1, 4), (1, 2, 2, 2))), get_args(Mode), get_args(Padding), (False, True)
    ):
        attrs: dict[str, Attribute] = {"mode": mode, "padding": padding, "align_corners": align}
        cases.put("GridSample", [normal(0, *x), 1.5 * normal(1, *grid)], attrs)
        cases.put("GridSample", [normal(0, *x), wild(normal(2, *grid))], attrs)
    cases.check(tmp_path, target=BEST)


@pytest.mark.slow
def test_nearest_of_any_type(tmp_path: Path) -> None:
    cases = Cases()
    for (x, grid), dtype in product(GRIDS, (np.bool_, np.uint8, np.float16, np.int64)):
        cases.put(
            "GridSample",
            [RNG(0).integers(0, 9, x).astype(dtype), 1.5 * normal(1, *grid)],
            {"mode": "nearest"},
        )
    cases.check(tmp_path, tolerance=0)


def regions(seed: int, count: int) -> Array:
    """Of images up to 12 pixels in units of half a pixel: most inside, one upside down, one of nothing, one huge."""
    corners = RNG(seed).uniform(-4, 28, (count, 2, 2)).astype(np.float32)
    result = np.concatenate([corners.min(1), corners.max(1)], 1)
    result[0], result[1], result[2] = result[0, [2, 3, 0, 1]], 5, (-1e6, -1e6, 1e6, 1e6)
    return np.asarray(np.round(result * 4) / 4)


@pytest.mark.slow
def test_regions(tmp_path: Path) -> None:
    cases = Cases()
    images = np.array([0, 1, -1, 5, 0, 1, 0], np.int64)
    for channels, size, itype in ((3, (2, 3), np.int64), (9, (7, 7), np.int32)):
        x, rois, where = normal(0, 2, 12, 9, channels), regions(1, 7), images.astype(itype)
        for mode, half, samples in product(("avg", "max"), (False, True), (0, 2)):
            attrs: dict[str, Attribute] = {
                "size": size,
                "scale": 0.5,
                "samples": samples,
                "mode": mode,
                "half_pixel": half,
            }
            cases.put("RoiAlign", [x, rois, where], attrs)
            cases.put("RoiAlign", [x, wild(rois), where], attrs)
        cases.put("RoiMaxPool", [x, rois, where], {"size": size, "scale": 0.5})
        cases.put("RoiMaxPool", [x, wild(rois), where], {"size": size})
    cases.put("RoiAlign", [x, rois[:0], where[:0]], {"size": (2, 2)})
    cases.check(tmp_path)


WINDOWS = (
    (
        (2, 7, 6, 3),
        {
            "kernel": (3, 2),
            "strides": (2, 1),
            "pads_before": (1, 0),
            "pads_after": (0, 1),
            "dilations": (1, 2),
        },
    ),
    (
        (1, 9, 4),
        {"kernel": (4,), "strides": (3,), "pads_before": (2,), "pads_after": (1,), "dilations": (1,)},
    ),
    (
        (2, 4, 5, 6, 2),
        {
            "kernel": (2, 2, 3),
            "strides": (1, 2, 2),
            "pads_before": (1, 0, 1),
            "pads_after": (0, 1, 1),
            "dilations": (2, 1, 1),
        },
    ),
    # Padded on every side, every axis shorter than the next: no limit is that of another axis.
    (
        (2, 3, 4, 5, 2),
        {
            "kernel": (2, 3, 3),
            "strides": (1, 1, 1),
            "pads_before": (1, 2, 2),
            "pads_after": (1, 2, 2),
            "dilations": (1, 1, 1),
        },
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int32, np.int64])
def test_windows(tmp_path: Path, dtype: type[np.generic]) -> None:
    cases = Cases()
    for shape, attrs in WINDOWS:
        x = RNG(0).integers(0, 100, shape).astype(dtype)
        cases.put("Im2Col", [x], dict(attrs))
        columns = np.asarray(case("c", "Im2Col", [x], dict(attrs)).tensors["y0"].shape)
        cases.put("Col2Im", [RNG(1).integers(0, 100, columns).astype(dtype)], {**attrs, "size": shape[1:-1]})
        for ceil in (False, True):
            cases.put("MaxPoolIndices", [x % 5], {**attrs, "ceil": ceil}, outputs=2)
    cases.check(tmp_path, tolerance=0)


@pytest.mark.slow
def test_nan_is_a_maximum(tmp_path: Path) -> None:
    cases = Cases()
    x = normal(0, 1, 5, 5, 2)
    x[0, 1, 1, 0] = x[0, 2, 2, 0] = x[0, 3, 3, 1] = np.nan
    x[0, 0] = -np.inf
    cases.put("MaxPoolIndices", [x], {**WINDOWS[0][1], "kernel": (2, 2)}, outputs=2)
    cases.check(tmp_path, tolerance=0)


@pytest.mark.slow
def test_deformed_windows(tmp_path: Path) -> None:
    cases = Cases()
    attrs: dict[str, Attribute] = {**WINDOWS[0][1]}
    for channels, groups in ((6, 1), (6, 2), (40, 2)):
        x, offset = normal(0, 2, 7, 6, channels), 2 * normal(1, 2, 3, 5, groups * 12)
        cases.put("DeformIm2Col", [x, offset], {**attrs, "groups": groups})
        cases.put("DeformIm2Col", [x, offset, normal(2, 2, 3, 5, groups * 6)], {**attrs, "groups": groups})
        cases.put("DeformIm2Col", [x, wild(offset)], {**attrs, "groups": groups})
    cases.check(tmp_path)
