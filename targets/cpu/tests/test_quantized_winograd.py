"""Convolutions of bytes by tiles of 4 x 4 results: exact in integers, proven, and taken where they pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_levels import LEVELS as EMULATED
from emulated_levels import SEEN
from quantized_graphs import I8, I16, U8, check, conv, inputs_of, storage
from test_epilogue import stored_sum
from test_workers import WORKERS, shuffled

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant
from mace_core.levels import Level, with_levels
from mace_core.lowering import Refused
from mace_core.numerics import Numerics
from mace_core.run import native
from mace_core.run.reference import execute
from mace_core.testing.compiled import generate_library, load_library, merge, plan_graph, run_merged
from mace_core.testing.processor import levels_here
from mace_core.testing.sanitized import Sanitized
from mace_target_cpu import Cpu
from mace_target_cpu.isa import GENERIC, X86, Packing
from mace_target_cpu.lower.igemm import pack_bytes
from mace_target_cpu.quantized.winograd import LEVELS, Tiles
from mace_target_cpu.quantized.winograd_check import DATA, WEIGHTS, bound_words, check_winograd

LINE = {"strides": (1,), "pads_before": (1,), "pads_after": (1,), "dilations": (1,)}
HERE = [level for level in levels_here(X86) if level.name in LEVELS]
KERNEL = "conv_winograd_quantized"
RESULTS = np.array([[6, 4, 4, 1, 1, 0], [0, 4, -4, 2, -2, 0], [0, 4, 4, 4, 4, 0], [0, 4, -4, 8, -8, 24]])
"""What winograd_words.h.in multiplies the sums of products by, from both sides."""


def set_cost(monkeypatch: pytest.MonkeyPatch, cost: float) -> None:
    """Make the candidate cost so much of the direct one: 0 so that it is taken wherever it can be."""
    monkeypatch.setattr(Tiles, "compare_cost", lambda tiles, columns, pixels, dot: cost)


@pytest.fixture
def is_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the candidate taken wherever it can be."""
    set_cost(monkeypatch, 0.0)


def list_kernels(graph: Graph, level: Level) -> list[str]:
    """Return the kernels of a graph at a level."""
    program = plan_graph(with_levels(Cpu(), [level]), graph).program
    return [call.kernel.name for call in program.calls]


def test_the_matrices_convolve() -> None:
    rng = np.random.default_rng(0)
    data, weights = rng.integers(0, 256, (6, 6)), rng.integers(-128, 128, (3, 3))
    places = (DATA @ data @ DATA.T) * (WEIGHTS @ weights @ WEIGHTS.T)
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3))
    exact = (windows * weights).sum((2, 3))
    np.testing.assert_array_equal(RESULTS @ places @ RESULTS.T, 576 * exact)
    # As the kernel takes 576 out again, of sums modulo 2^32.
    whole = ((RESULTS @ places @ RESULTS.T) * 0x38E38E39 & 0xFFFFFFFF).astype(np.uint32)
    np.testing.assert_array_equal(whole.view(np.int32) >> 6, exact)


def test_words_hold_data_and_weights() -> None:
    # All signs of a place can agree: 255 times ten from each side, and weights of nine bits times seven.
    assert bound_words(DATA, 255) == 255 * 10 * 10
    assert bound_words(WEIGHTS, 255) == 255 * 7 * 7
    packed = pack(np.full((1, 3, 3, 4), -128, np.int8))
    assert check_winograd(packed, 127, 1) == (-255 * 255 * 36, 0)
    with pytest.raises(Refused, match="words do not hold"):
        check_winograd(packed, 1000, 1)


def pack(weights: Array) -> Array:
    """Pack weights [columns, 3, 3, channels]."""
    return pack_bytes(weights.reshape(1, len(weights), -1).transpose(0, 2, 1), Packing())


def test_bounds_are_those_of_the_worst_activations() -> None:
    weights = np.random.default_rng(1).integers(-128, 128, (5, 3, 3, 8)).astype(np.int8)
    sums = (weights.astype(int) - 3).reshape(5, -1)
    low, high = check_winograd(pack(weights), 3, 5)
    assert low == 255 * np.minimum(sums, 0).sum(1).min()
    assert high == 255 * np.maximum(sums, 0).sum(1).max()


@pytest.mark.parametrize(("channels", "is_proven"), [(112, True), (116, False)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_sums_beyond_26_bits_are_refused(channels: int, sign: int, is_proven: bool) -> None:
    packed = pack(np.full((1, 3, 3, channels), 127 * sign, np.int8))
    if is_proven:
        assert 255 * 127 * 9 * channels in np.abs(check_winograd(packed, 0, 1))
        return
    with pytest.raises(Refused, match="26 bits do not hold"):
        check_winograd(packed, 0, 1)


def sums_graph(weights: Array, size: tuple[int, int], zero: int = -128) -> Graph:
    """Return a convolution of int8 with weights [columns, 3, 3, channels] whose results are its sums."""
    new = Builder("adverse")
    x = new.input("x", DType.I8, (2, *size, weights.shape[-1]), Quant.of(1.0, zero))
    w = new.weight("w", weights, Quant.of(1.0, 0))
    y = new.reserve_output("y", storage(DType.I32, 1.0))
    pads = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
    return new.finish(new.add("Conv", [x, w], pads, outputs=[y]))


def alternate(shape: tuple[int, ...]) -> Array:
    """Return the ends of a byte in turn, along all axes."""
    return np.where(np.indices(shape).sum(0) % 2, 127, -128).astype(np.int8)


ADVERSE = {
    "largest": np.full((16, 3, 3, 64), 127, np.int8),
    "smallest": np.full((20, 3, 3, 64), -128, np.int8),
    "alternating": alternate((16, 3, 3, 36)),
    "by_column": np.where(np.arange(9).reshape(3, 3, 1) % 2, 127, -128).astype(np.int8)
    + np.zeros((4, 3, 3, 100), np.int8),
    "bound": np.full((3, 3, 3, 112), 127, np.int8),
    "zero": np.zeros((2, 3, 3, 4), np.int8),
}


@pytest.mark.exhaustive
@pytest.mark.usefixtures("is_forced")
@pytest.mark.parametrize("zero", [-128, 127])
@pytest.mark.parametrize("level", HERE, ids=lambda level: str(level.name))
def test_adverse_weights_and_activations_are_exact(level: Level, zero: int, tmp_path: Path) -> None:
    graphs = [sums_graph(weights, (9, 6), zero).with_name(name) for name, weights in ADVERSE.items()]
    rng = np.random.default_rng(3)
    inputs = {}
    for g in graphs:
        shape = g.tensors["x"].shape
        x = alternate(shape)
        x[1] = rng.integers(-128, 128, shape[1:])
        x[1, :4], x[1, 4:6, :3] = 127, -128
        inputs[g.name] = {"x": x}
    results = run_merged(Cpu(), graphs, tmp_path, inputs, [level])
    for g in graphs:
        assert list_kernels(g, level) == [KERNEL]
        (name,) = g.outputs
        np.testing.assert_array_equal(results[g.name][name], execute(g, inputs[g.name])[name], g.name)


GRAPHS = [
    conv("even", (1, 8, 8, 32), (16, 3, 3, 32), (I8, DType.I8, I8)),
    conv("odd_size", (2, 7, 13, 20), (19, 3, 3, 20), (I8, DType.I8, I8)),
    conv("single_pixel", (1, 1, 1, 4), (3, 3, 3, 4), (U8, DType.I8, U8)),
    conv("no_pads", (1, 9, 6, 12), (33, 3, 3, 12), (U8, DType.I8, I8), pads_before=(0, 0), pads_after=(0, 0)),
    conv(
        "uneven_pads", (1, 6, 9, 8), (8, 3, 3, 8), (I8, DType.I8, U8), pads_before=(2, 0), pads_after=(1, 3)
    ),
    conv("legacy", (1, 9, 8, 16), (17, 3, 3, 16), (U8, DType.U8, storage(DType.U8, 0.3, 100))),
    conv("half_block", (1, 9, 7, 48), (16, 3, 3, 48), (I8, DType.I8, I8)),
    conv("floats", (1, 8, 8, 4), (8, 3, 3, 4), (I8, DType.I8, None)),
    conv("words", (1, 8, 8, 8), (20, 3, 3, 8), (I8, DType.I8, storage(DType.I16, 0.001))),
    conv("clamped", (1, 8, 8, 64), (40, 3, 3, 64), (I8, DType.I8, I8), low=0.0, high=2.0),
    conv("chunks", (1, 5, 5, 292), (16, 3, 3, 292), (I8, DType.I8, I8)),
    conv("many_tiles", (2, 40, 37, 44), (16, 3, 3, 44), (U8, DType.I8, I8)),
]


@pytest.mark.slow
@pytest.mark.usefixtures("is_forced")
@pytest.mark.parametrize("level", HERE, ids=lambda level: str(level.name))
def test_convolutions_by_tiles(level: Level, tmp_path: Path) -> None:
    assert set(check(GRAPHS, tmp_path, [level]).values()) == {KERNEL}


SANITIZED = ("odd_size", "half_block", "single_pixel", "uneven_pads", "floats", "chunks")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("is_forced")
@pytest.mark.parametrize(
    "level",
    [SEEN[name] for name in ("avx512vnni", "avx2") if name in SEEN],
    ids=lambda level: str(level.name),
)
def test_tiles_read_nothing_beside_their_tensors(level: Level, tmp_path: Path) -> None:
    graphs = [graph for graph in GRAPHS if graph.name in SANITIZED]
    plans = {graph.name: plan_graph(with_levels(Cpu(), [level]), graph) for graph in graphs}
    inputs = {graph.name: inputs_of(graph) for graph in graphs}
    expected = run_merged(Cpu(), graphs, tmp_path / "direct", inputs, GENERIC)
    library = Sanitized(plans, [level], tmp_path / "sanitized")
    for graph in graphs:
        assert list_kernels(graph, level)[0] == KERNEL
        for name, array in library.run(graph.name, inputs[graph.name]).items():
            np.testing.assert_array_equal(array, expected[graph.name][name], graph.name)


def load(graphs: Sequence[Graph], folder: Path, level: Level) -> native.LoadedModel:
    """Compile the graphs as one model."""
    sources = generate_library([with_levels(Cpu(), [level])], [merge("all", graphs)])
    # Otherwise the work of these small graphs would not be worth another worker. Emulated levels make warnings.
    return load_library(sources, folder, ("-DMACE_GRAIN_NS=1", "-w"))["all"]


SUMS = [
    stored_sum("bytes", DType.I8, "yr"),
    stored_sum("unsigned", DType.U8, "yr", results=16),
    stored_sum("other_order", DType.U8, "ry"),
]


def choose_graphs(rule: Numerics) -> list[Graph]:
    """Return the graphs that are computed by a rule of rounding: interpreters know fewer types."""
    graphs = [replace(graph, numerics=rule) for graph in (*GRAPHS, *SUMS)]
    return [graph for graph in graphs if not any(Cpu().refuses(node, graph) for node in graph.nodes)]


EXPECTED = {
    Numerics.SINGLE_ROUNDING: (len(GRAPHS) + len(SUMS), len(SUMS)),
    Numerics.FIXED_POINT: (10, 0),
}
"""Rule of rounding -> the graphs that it takes, and how many of them are one call with the sum behind it."""

TRIALS = {
    "avx512vnni": Numerics.SINGLE_ROUNDING,
    "avx2": Numerics.SINGLE_ROUNDING,
    "sse2": Numerics.SINGLE_ROUNDING,
    "avx512": Numerics.FIXED_POINT,
    "avxvnni": Numerics.FIXED_POINT,
}
"""Each level once; those that this processor lacks are emulated."""


@pytest.mark.exhaustive
@pytest.mark.skipif("avx2" not in EMULATED, reason="without AVX2 no level is emulated")
@pytest.mark.parametrize(("name", "rule"), TRIALS.items())
def test_bits_are_those_of_direct_products(
    name: str, rule: Numerics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With any number of workers, with sums behind the convolution, and by each rule of rounding."""
    level = EMULATED[name]
    chosen = choose_graphs(rule)
    inputs = inputs_of(merge("all", chosen))
    set_cost(monkeypatch, 1e9)
    assert not any(KERNEL in name for graph in chosen for name in list_kernels(graph, level))
    expected = load(chosen, tmp_path / "direct", level).run(inputs)
    set_cost(monkeypatch, 0.0)
    first = [list_kernels(graph, level)[0] for graph in chosen]
    assert all(name.startswith(KERNEL) for name in first)
    assert (len(first), sum("_add_" in name for name in first)) == EXPECTED[rule]
    model = load(chosen, tmp_path / "tiles", level)
    together, counts = shuffled(model, inputs)
    assert max(counts) > WORKERS
    for outputs in (model.run(inputs), together):
        for output, array in expected.items():
            np.testing.assert_array_equal(outputs[output], array, err_msg=output)


@pytest.mark.parametrize(
    ("size", "channels", "columns", "dots"),
    [
        (28, 128, 128, ("pairs", "quads", "vnni")),
        (56, 64, 64, ("pairs", "quads", "vnni")),
        (14, 256, 256, ("pairs", "quads")),
        (7, 128, 128, ("pairs", "quads")),  # four tiles share each weight that is transformed
        (16, 4, 16, ()),  # the transforms take longer than the products
        (14, 256, 16, ("pairs", "quads")),
        (3, 64, 64, ()),  # one tile, for nine results
    ],
)
def test_tiles_are_taken_where_they_pay(
    size: int, channels: int, columns: int, dots: tuple[str, ...]
) -> None:
    kinds = (U8, DType.I8, storage(DType.U8, 1.0))
    graph = conv("sized", (1, size, size, channels), (columns, 3, 3, channels), kinds)
    for level in X86:
        taken = any(KERNEL in name for name in list_kernels(graph, level))
        assert taken == (level.dot in dots and level.name != "amx"), level.name


def test_a_proof_stands_above_the_call() -> None:
    graph = sums_graph(np.full((16, 3, 3, 64), 127, np.int8), (16, 16))
    (call,) = [call for call in Cpu().lower(graph, "x86_64").calls if call.is_made_at("avx2")]
    assert call.kernel.name == KERNEL
    assert call.proof == f"sums of products lie between 0 and {255 * 127 * 9 * 64}, so 26 bits hold them"


@pytest.mark.parametrize(
    "refused",
    [
        conv("strided", (1, 8, 8, 32), (16, 3, 3, 32), (I8, DType.I8, I8), strides=(2, 2)),
        conv("dilated", (1, 8, 8, 32), (16, 3, 3, 32), (I8, DType.I8, I8), dilations=(2, 2)),
        conv("wide", (1, 8, 8, 32), (16, 5, 5, 32), (I8, DType.I8, I8)),
        conv("groups", (1, 8, 8, 32), (16, 3, 3, 16), (I8, DType.I8, I8), group=2),
        conv("parts", (1, 8, 8, 30), (16, 3, 3, 30), (I8, DType.I8, I8)),
        conv("words", (1, 8, 8, 32), (16, 3, 3, 32), (I16, DType.I8, I16)),
        conv("line", (1, 8, 32), (16, 3, 32), (I8, DType.I8, I8), **LINE),
        conv("empty", (0, 8, 8, 32), (16, 3, 3, 32), (I8, DType.I8, I8)),
        conv("long", (1, 1, 9000, 256), (16, 3, 3, 256), (I8, DType.I8, I8)),
    ],
    ids=lambda graph: str(graph.name),
)
@pytest.mark.usefixtures("is_forced")
def test_other_convolutions_are_computed_directly(refused: Graph) -> None:
    for level in X86:
        assert not any(KERNEL in name for name in list_kernels(refused, level))
