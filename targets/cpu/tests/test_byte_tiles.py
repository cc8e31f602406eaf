"""Products of bytes by tiles (AMX): rows that are read as they lie, rows that are arranged, and sums that follow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated_levels import QUIET, SEEN
from quantized_graphs import I8, I16, U8, check, conv, inputs_of, storage
from test_workers import shuffled

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.levels import with_levels
from mace_core.run.reference import execute
from mace_core.testing.compiled import generate_library, load_library, merge, plan_graph, run_merged
from mace_core.testing.sanitized import Sanitized
from mace_target_cpu import Cpu

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("amx" not in QUIET, reason="its instructions are emulated by those of AVX2"),
]

POINT = {"pads_before": (0, 0), "pads_after": (0, 0)}


def strips() -> list[Graph]:
    """Return windows in a strip, by how its lines are cut into tiles of 16 rows."""
    return [
        conv("whole_lines", (1, 4, 16, 16), (16, 3, 3, 16), (I8, DType.I8, I8)),
        conv("two_panels", (2, 5, 28, 16), (32, 3, 3, 16), (U8, DType.I8, U8)),
        conv("low_tiles", (1, 5, 27, 12), (24, 3, 3, 12), (I8, DType.I8, U8)),
        conv("stem", (1, 13, 31, 3), (80, 7, 7, 3), (U8, DType.I8, I8), strides=(2, 2)),
        conv("zero_point", (1, 6, 14, 64), (48, 3, 3, 64), (U8, DType.U8, U8)),
        # Two lines and what is between them are a tile.
        conv("short_lines", (1, 7, 7, 32), (64, 3, 3, 32), (U8, DType.I8, I8)),
        conv("short_lines_zero_point", (2, 8, 8, 16), (16, 3, 3, 16), (U8, DType.U8, I8)),
        conv("groups", (1, 6, 12, 32), (32, 3, 3, 16), (U8, DType.I8, U8), group=2),
        # Seventeen quads are no chunks of more than one, and lines far apart no tile: rows are arranged.
        conv("prime_quads", (1, 5, 13, 68), (128, 3, 1, 68), (U8, DType.I8, U8)),
        conv("far_lines", (1, 14, 14, 32), (64, 3, 3, 32), (U8, DType.I8, U8), strides=(2, 2)),
        conv("apart", (1, 9, 20, 16), (16, 3, 3, 16), (I8, DType.I8, I8), dilations=(2, 2)),
    ]


def points() -> list[Graph]:
    """Return windows of one pixel: in the image, gathered, and arranged because their bytes are flipped."""
    return [
        conv("in_place", (1, 5, 13, 64), (40, 1, 1, 64), (U8, DType.I8, U8), **POINT),
        conv("zero_point_in_place", (1, 3, 11, 36), (70, 1, 1, 36), (U8, DType.U8, U8), **POINT),
        conv("gathered", (1, 9, 9, 32), (16, 1, 1, 32), (U8, DType.I8, U8), strides=(2, 2), **POINT),
        conv("flipped", (1, 5, 13, 64), (32, 1, 1, 64), (I8, DType.I8, I8), **POINT),
        conv("odd_depth", (1, 4, 9, 50), (33, 1, 1, 50), (U8, DType.I8, None), **POINT),
        conv("groups_of_points", (1, 4, 9, 128), (32, 1, 1, 64), (U8, DType.I8, U8), group=2, **POINT),
    ]


def add_other(name: str, x: Storage, size: tuple[int, ...], filters: tuple[int, ...]) -> Graph:
    """Return a convolution of unsigned or signed bytes, and the sum of its results and another tensor."""
    new, rng = Builder(name), np.random.default_rng(len(name))
    scale = tuple(rng.uniform(0.0005, 0.002, filters[0]).tolist())
    w = new.weight("w", rng.integers(-127, 128, filters).astype(np.int8), Quant(scale, (0,) * filters[0], 0))
    image = new.input("x", x.dtype, size, x.quant)
    pads = (filters[1] // 2, filters[2] // 2)
    group = size[-1] // filters[3]
    attrs = {"strides": (1, 1), "dilations": (1, 1), "pads_before": pads, "pads_after": pads, "group": group}
    stored = storage(DType.U8, 0.02, 101)
    y = new.reserve_output("y", stored)
    new.add("Conv", [image, w], {**attrs, "low": -1.5, "high": 2.5}, outputs=[y])
    other = new.input("other", DType.U8, (*size[:-1], filters[0]), Quant.of(0.013, 90))
    total = new.reserve_output("sum", storage(DType.U8, 0.025, 117))
    return new.finish(new.add("Add", [y, other], outputs=[total]))


SUMS = [
    add_other("point", U8, (1, 7, 9, 64), (80, 1, 1, 64)),
    add_other("strip", I8, (1, 5, 14, 16), (48, 3, 3, 16)),
    add_other("narrow", U8, (2, 5, 13, 16), (16, 3, 3, 16)),
    add_other("grouped", U8, (1, 4, 12, 32), (32, 3, 3, 16)),
    add_other("without_tiles", I8, (1, 2, 3, 16), (24, 1, 1, 16)),
    # Words are multiplied without tiles.
    add_other("words", I16, (1, 4, 5, 8), (20, 3, 3, 8)),
]


def test_rows_that_lie_at_equal_distances(tmp_path: Path) -> None:
    check([*strips(), *points()], tmp_path, [QUIET["amx"]])


@pytest.mark.exhaustive
def test_sums_follow_the_rounding_of_each_tile(tmp_path: Path) -> None:
    inputs = {graph.name: inputs_of(graph) for graph in SUMS}
    tiles, plain = (
        run_merged(Cpu(), SUMS, tmp_path / level, inputs, [QUIET[level]]) for level in ("amx", "generic")
    )
    for graph in SUMS:
        calls = with_levels(Cpu(), [QUIET["amx"]]).lower(graph).calls
        assert [call.kernel.name.removeprefix("conv_quantized") for call in calls] in (
            ["_add_u8_u8_u8"],
            ["_i16_add_u8_u8_u8"],
        )
        sums = tiles[graph.name]["sum"]
        np.testing.assert_array_equal(sums, plain[graph.name]["sum"], err_msg=graph.name)
        expected = execute(graph, inputs[graph.name])["sum"]
        assert np.abs(sums.astype(int) - expected).max() <= 1, graph.name
        assert len(np.unique(sums)) > 50, graph.name


@pytest.mark.exhaustive
def test_tiles_of_several_tasks(tmp_path: Path) -> None:
    """Blocks of rows begin anywhere in a line, and end anywhere."""
    merged = merge("all", [*SUMS, *strips(), *points()])
    target = with_levels(Cpu(), [QUIET["amx"]])
    model = load_library(generate_library([target], [merged]), tmp_path, ("-DMACE_GRAIN_NS=1",))["all"]
    inputs = inputs_of(merged)
    together, counts = shuffled(model, inputs)
    assert max(counts) > 1
    for name, array in model.run(inputs).items():
        np.testing.assert_array_equal(together[name], array, err_msg=name)


@pytest.mark.exhaustive
def test_nothing_is_read_behind_tensors_and_scratch(tmp_path: Path) -> None:
    level = SEEN["amx"]
    graphs = [*SUMS, *strips(), *points()]
    plans = {graph.name: plan_graph(with_levels(Cpu(), [level]), graph) for graph in graphs}
    inputs = {graph.name: inputs_of(graph) for graph in graphs}
    expected = run_merged(Cpu(), graphs, tmp_path / "generic", inputs, [QUIET["generic"]])
    library = Sanitized(plans, [level], tmp_path / "sanitized")
    for graph in graphs:
        for name, array in library.run(graph.name, inputs[graph.name]).items():
            np.testing.assert_array_equal(array, expected[graph.name][name], graph.name)
