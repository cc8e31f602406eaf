"""Convolutions by Winograd's tiles against the numpy reference, and which convolutions they compute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_levels import LEVELS, QUIET, SEEN
from test_conv import OneLevel, conv
from test_workers import shuffled

from mace_core.attributes import Attribute
from mace_core.deployment import Model
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.levels import Level
from mace_core.numerics import Numerics
from mace_core.run.reference import execute
from mace_core.testing.compiled import (
    generate_library,
    load_library,
    merge,
    plan_graph,
    random_inputs,
    run_merged,
)
from mace_core.testing.sanitized import Sanitized
from mace_core.winograd import TILES, measure_error
from mace_target_cpu import Cpu
from mace_target_cpu.lower import winograd

LIMITS = {2: 2e-6, 4: 2e-5, 6: 4e-5}
"""Size of a tile -> its maximum error relative to the largest result, as docs/performance.md states it."""

AROUND = (1, 1, 1, 1)
"""Padding at the top, left, bottom and right."""


def sided(
    name: str,
    x: tuple[int, int, int, int],
    results: int,
    pads: tuple[int, int, int, int] = AROUND,
    bias: bool = True,
    **attrs: Attribute,
) -> Graph:
    """A convolution of 3 x 3 windows."""
    shape = (results, 3, 3, x[-1])
    return conv(name, x, shape, bias, False, pads_before=pads[:2], pads_after=pads[2:], **attrs)


GRAPHS = [
    sided("even", (1, 12, 12, 16), 32),
    sided("odd", (1, 13, 9, 17), 33, bias=False),
    sided("clamped", (1, 8, 11, 24), 40, low=0.0, high=0.75),
    sided("uneven", (1, 7, 10, 20), 16, (2, 0, 0, 1)),
    sided("batch", (3, 5, 6, 16), 18),
    # Fewer results than a tile has, and windows that see nothing but padding.
    sided("few", (1, 3, 4, 16), 19, (0, 0, 0, 0)),
    sided("around", (1, 2, 2, 16), 16, (4, 3, 3, 4)),
    # More tiles than a task takes, and more panels than one.
    sided("tasks", (1, 37, 41, 16), 70),
    sided("deep", (1, 10, 10, 130), 64),
]


class Tiled(OneLevel):
    """The CPU at one level, with all 3 x 3 convolutions by tiles of one size."""

    def __init__(self, level: Level, tile: int) -> None:
        super().__init__(level)
        self.winograd = tile


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tiles be taken wherever they can, and only those of the largest size that is allowed."""
    monkeypatch.setattr(winograd, "estimate_direct", lambda _node, _lowering, _fetch=0: 1e30)
    monkeypatch.setattr(winograd, "estimate_tiles", lambda _x, _y, tile, _fetch=0: 1 / tile)


def list_kernels(graph: Graph, tile: int = 6, level: str = "avx2") -> list[str]:
    return [call.kernel.name for call in Tiled(LEVELS[level], tile).lower(graph).calls]


def check_errors(graph: Graph, results: dict[str, Array], inputs: dict[str, Array], limit: float) -> None:
    expected = execute(graph, inputs)
    for name, found in results.items():
        range_ = np.abs(expected[name]).max()
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=limit * range_, err_msg=graph.name)


@pytest.mark.slow
@pytest.mark.sampled(cases="2-avx2")
@pytest.mark.parametrize("level", ["avx2", "sse2", "avx512", "by_lane"])
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.usefixtures("forced")
def test_tiles_are_near_the_direct_sum(tmp_path: Path, level: str, tile: int) -> None:
    target = Tiled(QUIET[level], tile)
    for graph in GRAPHS:
        assert [call.kernel.name for call in target.lower(graph).calls] == [f"conv_winograd{tile}_f32"]
    inputs = {graph.name: random_inputs(graph) for graph in GRAPHS}
    results = run_merged(target, GRAPHS, tmp_path, inputs)
    for graph in GRAPHS:
        check_errors(graph, results[graph.name], inputs[graph.name], LIMITS[tile])


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("level", ["avx2", "sse2", "avx512"])
@pytest.mark.usefixtures("forced")
def test_small_integers_are_exact_in_tiles_of_2(tmp_path: Path, level: str) -> None:
    """Halves and quarters of small integers are exact in single precision."""
    graphs = [with_integers(graph) for graph in GRAPHS]
    inputs = {graph.name: draw_integers(graph) for graph in graphs}
    results = run_merged(Tiled(QUIET[level], 2), graphs, tmp_path, inputs)
    for graph in graphs:
        expected = execute(graph, inputs[graph.name])
        for name, found in results[graph.name].items():
            np.testing.assert_array_equal(found, expected[name], err_msg=graph.name)


def with_integers(graph: Graph) -> Graph:
    rng = np.random.default_rng(5)
    weights: dict[str, Array] = {
        name: np.asarray(rng.integers(-7, 8, array.shape), np.float32)
        for name, array in graph.weights.items()
    }
    for array in weights.values():
        array.setflags(write=False)
    return replace(graph, weights=weights)


def draw_integers(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(6)
    return {name: rng.integers(-9, 10, graph.tensors[name].shape).astype(np.float32) for name in graph.inputs}


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "level", [SEEN[name] for name in ("avx512", "avx2") if name in SEEN], ids=lambda level: str(level.name)
)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.usefixtures("forced")
def test_tiles_read_nothing_beside_their_tensors(tmp_path: Path, tile: int, level: Level) -> None:
    target = Tiled(level, tile)
    library = Sanitized({g.name: plan_graph(target, g) for g in GRAPHS}, (level,), tmp_path)
    for graph in GRAPHS:
        inputs = random_inputs(graph)
        check_errors(graph, dict(library.run(graph.name, inputs)), inputs, LIMITS[tile])


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.usefixtures("forced")
def test_tiles_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    target = Tiled(QUIET["avx2"], 4)
    # With channels that are written into a Concat, and an epilogue, of parts of the columns too.
    merged = merge("all", [*GRAPHS, chain()])
    model = load_library(generate_library([target], [merged]), tmp_path, ("-DMACE_GRAIN_NS=1",))["all"]
    inputs = random_inputs(merged)
    together, counts = shuffled(model, inputs)
    assert max(counts) > 3
    for name, array in model.run(inputs).items():
        np.testing.assert_array_equal(together[name], array, err_msg=name)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.usefixtures("forced")
def test_reproducible_tiles_have_the_same_bits_at_every_level(tmp_path: Path, tile: int) -> None:
    graphs = [replace(graph, numerics=Numerics.REPRODUCIBLE) for graph in GRAPHS]
    inputs = {graph.name: random_inputs(graph) for graph in graphs}
    by_level = []
    for level in ("avx2", "sse2", "avx512"):
        folder = tmp_path / level
        folder.mkdir()
        by_level.append(run_merged(Tiled(QUIET[level], tile), graphs, folder, inputs))
    for graph in graphs:
        (name,) = graph.outputs
        first, *others = (results[graph.name][name] for results in by_level)
        for other in others:
            np.testing.assert_array_equal(first, other, err_msg=graph.name)


@pytest.mark.parametrize(
    ("size", "channels", "results", "kernel"),
    [
        (56, 64, 64, "conv_winograd6_f32"),
        (28, 128, 128, "conv_winograd4_f32"),
        (14, 256, 256, "conv_winograd4_f32"),
        (7, 512, 512, "conv_winograd2_f32"),
        (32, 16, 16, "conv_winograd4_f32"),
        (3, 512, 512, "conv_f32"),
        (56, 15, 64, "conv_f32"),
        (56, 64, 15, "conv_f32"),
    ],
)
def test_the_cheapest_tile_is_chosen(size: int, channels: int, results: int, kernel: str) -> None:
    graph = sided("chosen", (1, size, size, channels), results)
    assert list_kernels(graph) == [kernel]
    assert list_kernels(graph, 0) == ["conv_f32"]


def test_all_levels_of_a_library_share_their_filters() -> None:
    """And the tiles of each size are candidates, for a tuning file."""
    target = Cpu()
    target.winograd = 6
    program = target.lower(sided("chosen", (1, 14, 14, 256), 256), "x86_64")
    (selection,) = program.selections
    assert {choice.level: choice.candidate for choice in selection.choices} == {
        "avx512vnni": "winograd",
        "avx2": "winograd",
        "sse2": "winograd",
    }
    assert selection.refused == {"winograd-4": "candidate winograd has tiles of 4"}
    for choice in selection.choices:
        assert [*choice.costs] == ["winograd", "direct", "winograd-2", "winograd-6"]
        assert choice.costs["winograd"] < choice.costs["winograd-2"]
    assert [(str(call.kernel.name), call.levels) for call in program.calls] == [("conv_winograd4_f32", ())]


def test_errors_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def measure(weights: Array, tile: int) -> float:
        measured.append(tile)
        return measure_error(weights, tile)

    monkeypatch.setattr("mace_core.winograd.measure_error", measure)
    target = Cpu().configure(Model("m", (), keys={"winograd": 6, "winograd_error": 8e-6}))
    assert isinstance(target, Cpu)
    target.lower(sided("bounded", (1, 56, 56, 64), 64), "x86_64")
    assert sorted(measured) == [2, 4, 6]


def test_no_larger_tile_than_allowed_is_chosen() -> None:
    graph = sided("chosen", (1, 56, 56, 64), 64)
    assert [list_kernels(graph, tile) for tile in TILES] == [[f"conv_winograd{tile}_f32"] for tile in TILES]


def test_a_bound_chooses_the_tile() -> None:
    graph, target = sided("bounded", (1, 56, 56, 64), 64), Cpu()
    target.winograd = 6
    kernels = []
    for error in (1e-4, 8e-6, 1e-6, 1e-9):
        target.winograd_error = error
        kernels += [call.kernel.name for call in target.lower(graph, "x86_64").calls]
    tiles = [f"conv_winograd{tile}_f32" for tile in (6, 4, 2)]
    assert kernels == [*tiles, "conv_f32"]
    (selection,) = target.lower(graph, "x86_64").selections
    assert selection.refused["winograd"] == "the errors of Winograd's tiles are above winograd_error: 1e-09"


IMAGE = (1, 28, 28, 64)


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (sided("strided", IMAGE, 64, strides=(2, 2)), "windows of 3 x 3 that move by 1, one group, and f32"),
        (sided("dilated", IMAGE, 64, dilations=(2, 2)), "windows of 3 x 3"),
        (conv("five", IMAGE, (64, 5, 5, 64)), "windows of 3 x 3"),
        (conv("line", (1, 28, 64), (64, 3, 64)), "windows of 3 x 3"),
        (conv("groups", IMAGE, (64, 3, 3, 32), group=2), "one group"),
        (sided("few", (1, 28, 28, 8), 64), "from 16 channels of both sides on"),
        (conv("computed", IMAGE, (64, 3, 3, 64), dynamic=True), "filters that are computed"),
        (sided("small", (1, 2, 2, 256), 256), "longer than the direct sum"),
    ],
)
def test_other_convolutions_say_why_they_are_direct(graph: Graph, reason: str) -> None:
    target = Cpu()
    target.winograd = 6
    program = target.lower(graph, "x86_64")
    assert "winograd" not in " ".join(call.kernel.name for call in program.calls)
    (selection,) = program.selections
    assert reason in selection.refused["winograd"]


def test_the_deployment_file_allows_tiles() -> None:
    target = Cpu()
    configured = target.configure(Model("m", (), keys={"winograd": 4, "winograd_error": 1e-5}))
    assert isinstance(configured, Cpu)
    assert (configured.winograd, configured.winograd_error, target.winograd) == (4, 1e-5, 0)
    assert target.configure(Model("m", (), keys={"winograd": 0})) is target


def chain(axis: int = -1) -> Graph:
    """Two convolutions joined, and one that adds another tensor and goes through a sigmoid."""
    new, rng = Builder("chain"), np.random.default_rng(3)
    x = new.input("x", DType.F32, (1, 12, 11, 16))
    same: dict[str, Attribute] = {
        "strides": (1, 1),
        "pads_before": (1, 1),
        "pads_after": (1, 1),
        "dilations": (1, 1),
        "group": 1,
    }

    def convolve(source: str, depth: int, results: int, low: float) -> str:
        weights = rng.standard_normal((results, 3, 3, depth)).astype("f4") / np.float32(3 * depth**0.5)
        return new.one("Conv", [source, new.weight("w", weights)], {**same, "low": low})

    joined = new.one("Concat", [convolve(x, 16, 24, 0.0), convolve(x, 16, 40, 0.0)], {"axis": axis})
    other = new.input("other", DType.F32, (1, 12, 11, 18))
    total = new.one("Add", [convolve(joined, 64, 18, -np.inf), other])
    return new.finish([new.one("Sigmoid", [total])])


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.usefixtures("forced")
def test_tiles_join_channels_and_have_epilogues(tmp_path: Path) -> None:
    graph, target = chain(), Tiled(QUIET["avx2"], 4)
    assert [call.kernel.name for call in target.lower(graph).calls] == [
        "conv_winograd4_f32_part",
        "conv_winograd4_f32_part",
        "conv_winograd4_f32_add_sigmoid",
    ]
    inputs = random_inputs(graph)
    results = run_merged(target, [graph], tmp_path, {graph.name: inputs})
    check_errors(graph, results[graph.name], inputs, LIMITS[4])
