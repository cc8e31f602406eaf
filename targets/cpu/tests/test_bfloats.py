"""`arithmetic: bf16`: products of factors rounded to bfloat16, with sums of floats, at every level of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from emulated_levels import QUIET, SEEN
from test_placement import join
from test_workers import shuffled

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.json_types import Json
from mace_core.levels import with_levels
from mace_core.run.reference import execute
from mace_core.testing.compiled import (
    case,
    generate_library,
    load_library,
    merge,
    plan_graph,
    random_inputs,
    run_merged,
)
from mace_core.testing.sanitized import Sanitized
from mace_target_cpu import Cpu
from mace_target_cpu.lower.bfloats import count_pairs, pack_pairs, round_to_bfloat

UNIT = 2.0**-24
"""Half of the distance from 1 to the next float: the relative error of one rounded sum."""

LEAST = 2.0**-126
"""The smallest number that is no denormal one: AMX makes sums below it 0."""


def configure(options: Json) -> Cpu:
    """Return the target as a model asks for it."""
    target = Cpu().configure(Model("m", (), keys={"target_options": {"cpu": options}}))
    assert isinstance(target, Cpu)
    return target


BF16 = configure({"arithmetic": "bf16"})


def widen(array: Array) -> Array:
    """Return an array as the kernel multiplies it, in double precision."""
    bits = round_to_bfloat(array).astype(np.uint32) << 16
    widened: Array = bits.view(np.float32).reshape(array.shape).astype(np.float64)
    return widened


@dataclass(frozen=True)
class Case:
    """A node with constant weights, and the sum of its products' magnitudes is what bounds its error."""

    graph: Graph
    inputs: dict[str, Array]

    @property
    def depth(self) -> int:
        node = self.graph.nodes[0]
        w = self.graph.weights[node.inputs[1]].shape
        return int(np.prod(w[1:])) if node.op.name == "Conv" else w[-2] if len(w) > 1 else w[0]

    def compute(self, change: np.ufunc | None = None) -> Array:
        """Return exact sums of products of rounded factors; of their magnitudes with `np.abs`, without a clamp."""
        node = self.graph.nodes[0]
        x, w = widen(self.inputs[node.inputs[0]]), widen(self.graph.weights[node.inputs[1]])
        bias = self.graph.weights[node.inputs[2]].astype(np.float64) if len(node.inputs) > 2 else None
        operands: list[Array | None] = [x, w, bias]
        attrs = dict(vars(node.attrs))
        if change:
            operands = [None if array is None else change(array) for array in operands]
            attrs.update(low=-np.inf, high=np.inf)
        double = case("double", node.op.name, operands, attrs, constants=(1, 2) if bias is not None else (1,))
        result = execute(double, {"x0": np.abs(x) if change else x})["y0"]
        return np.asarray(result, np.float64)

    def check(self, result: Array, level: str) -> None:
        """Compare with exact sums: each of n products and the bias is added with one rounding, in any order."""
        additions = self.depth + 2
        bound = additions * UNIT / (1 - additions * UNIT) * self.compute(np.abs) + additions * LEAST
        error = np.abs(result.astype(np.float64) - self.compute())
        assert (error <= bound).all(), (self.graph.name, level, float((error / bound).max()))


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def product(name: str, x: tuple[int, ...], w: tuple[int, ...], **attrs: float) -> Case:
    bias = draw(w[-1], seed=2) if len(w) > 1 else None
    arrays = [draw(*x), draw(*w, seed=1), *([bias] if bias is not None else [])]
    graph = case(name, "MatMul", arrays, attrs, constants=(1, 2) if bias is not None else (1,))
    return Case(graph, {"x0": arrays[0]})


def conv(name: str, x: tuple[int, ...], w: tuple[int, ...], **attrs: object) -> Case:
    rank = len(x) - 2
    half = tuple(size // 2 for size in w[1:-1])
    windows = {"strides": (1,) * rank, "dilations": (1,) * rank, "pads_before": half, "pads_after": half}
    arrays = [draw(*x), draw(*w, seed=1), draw(w[0], seed=2)]
    return Case(case(name, "Conv", arrays, {**windows, **attrs}, constants=(1, 2)), {"x0": arrays[0]})


# Depths of whole tiles, of chunks that overlap nothing and of odd numbers; rows of one tile, of several and of few;
# columns of less than a vector, of a panel and a bit, and of several tiles.
PRODUCTS = [
    product("whole", (32, 64), (64, 64)),
    product("odd", (13, 107), (107, 21)),
    product("single_row", (1, 300), (300, 130)),
    product("few_rows", (7, 33), (33, 16), low=-1.0, high=2.0),
    product("many_rows", (49, 70), (70, 40)),
    product("one_tile", (50, 32), (32, 70)),
    product("rows_of_a_tile", (8, 41), (41, 17)),
    product("batches", (2, 3, 11, 40), (2, 3, 40, 19)),
    product("shared", (2, 3, 5, 40), (40, 65)),
    product("vector", (5, 48), (48,)),
    product("deep", (17, 5000), (5000, 48)),
    # Weights beyond what the second-level cache holds, so that each part of them serves all rows.
    product("far", (70, 1024), (1024, 600)),
]
CONVOLUTIONS = [
    conv("point", (1, 7, 9, 64), (80, 1, 1, 64)),
    conv("point_odd", (2, 5, 7, 37), (19, 1, 1, 37), low=0.0, high=1.5),
    conv("window", (1, 9, 11, 32), (48, 3, 3, 32), low=0.0),
    conv("window_odd", (2, 7, 9, 11), (21, 3, 3, 11)),
    conv("stride", (1, 15, 14, 24), (40, 3, 3, 24), strides=(2, 2)),
    conv("point_stride", (1, 9, 9, 32), (16, 1, 1, 32), strides=(2, 2)),
    conv("dilated", (1, 9, 12, 16), (16, 3, 3, 16), dilations=(2, 2), pads_before=(2, 2), pads_after=(2, 2)),
    conv("image", (1, 17, 19, 3), (24, 7, 7, 3), strides=(2, 2)),
    conv("planes", (1, 16, 17, 1), (8, 7, 7, 1)),
    conv("groups", (1, 6, 7, 24), (32, 3, 3, 6), group=4),
    conv("signal", (1, 31, 20), (33, 5, 20)),
    conv("volume", (1, 4, 5, 6, 9), (17, 2, 3, 3, 9), pads_after=(0, 1, 1)),
]
CASES = [*PRODUCTS, *CONVOLUTIONS]
INPUTS = {case.graph.name: case.inputs for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("level", QUIET)
def test_results_are_near_exact_sums_of_rounded_factors(level: str, tmp_path: Path) -> None:
    graphs = [case.graph for case in CASES]
    results = run_merged(BF16, graphs, tmp_path, INPUTS, [QUIET[level]])
    for one in CASES:
        (result,) = results[one.graph.name].values()
        one.check(result, level)


@pytest.mark.exhaustive
def test_levels_without_tiles_have_the_same_bits(tmp_path: Path) -> None:
    """A product is exact, so multiply-adds round as products and sums do, and all add in ascending order."""
    graphs = [case.graph for case in CASES]
    names = [name for name in ("avx512vnni", "avx2", "sse2", "generic") if name in QUIET]
    runs = [run_merged(BF16, graphs, tmp_path / name, INPUTS, [QUIET[name]]) for name in names]
    for graph in graphs:
        first, *others = ([*run[graph.name].values()] for run in runs)
        for other in others:
            np.testing.assert_array_equal(other, first, err_msg=graph.name)


BEST = [level for name, level in QUIET.items() if name in ("amx", "avx2", "sse2")]
"""Tiles, vectors of eight floats and of four."""


def test_numbers_are_rounded_to_nearest_even() -> None:
    values = {
        0x3F808000: 0x3F80,  # a tie, to even
        0x3F818000: 0x3F82,  # a tie, to even
        0x3F808001: 0x3F81,
        0xBF807FFF: 0xBF80,
        0x7F7FFFFF: 0x7F80,  # beyond the largest of bfloat16
        0xFF800000: 0xFF80,
        0x7FFFFFFF: 0x7FFF,  # a NaN stays one, though its bits and half of the last place overflow
        0x7F800001: 0x7FC0,  # a signaling NaN whose payload would be lost
        0x007FFFFF: 0x0000,  # denormal numbers are 0
        0x80000001: 0x8000,
        0x00800000: 0x0080,
    }
    floats = np.array(list(values), np.uint32).view(np.float32)
    assert [hex(bits) for bits in round_to_bfloat(floats).tolist()] == [hex(bits) for bits in values.values()]


def test_pairs_lie_in_panels_with_zeros_behind_the_depth() -> None:
    packed = pack_pairs(np.arange(1, 103, dtype=np.float32).reshape(1, 3, 34), 16)
    assert packed.shape == (1, 3, 2, 16, 2)
    numbers = (packed.astype(np.uint32) << 16).view(np.float32)
    # Columns 0 and 33 of the depths 0 to 2.
    assert numbers[0, 0, :, 0].tolist() == [[1, 35], [69, 0]]
    assert numbers[0, 2, :, 1].tolist() == [[34, 68], [102, 0]]
    assert not numbers[0, 2, :, 2:].any()
    # 74 pairs are five chunks of 15, 16 are one.
    assert [count_pairs(depth) for depth in (0, 1, 32, 33, 147)] == [1, 1, 16, 18, 75]


EXTREMES = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 2.0**-127, -(2.0**-149), 2.0**-126, 3e38, -1.5], np.float32
)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["amx", "avx2", "sse2", "generic"])
def test_extreme_numbers_are_multiplied_as_rounded(level: str, tmp_path: Path) -> None:
    """One number of each row beside zeros: a product is exact, and denormal factors are 0 at all levels."""
    x = np.zeros((16 * len(EXTREMES), 40), np.float32)
    for row, number in enumerate(np.tile(EXTREMES, 16)):
        x[row, row % 37] = number
    w = np.where(np.arange(40 * 20).reshape(40, 20) % 7 == 3, np.float32(2.0**-128), np.float32(0.5))
    graph = case("extremes", "MatMul", [x, w], constants=(1,))
    (result,) = run_merged(BF16, [graph], tmp_path, {"extremes": {"x0": x}}, [QUIET[level]])[
        "extremes"
    ].values()
    with np.errstate(invalid="ignore"):
        expected = (widen(x) @ widen(w)).astype(np.float32)
        # A product below 2^-126 is 0 where tiles multiply, and a denormal number elsewhere.
        near = np.abs(result - expected) <= LEAST
    assert (near | (result == expected) | (np.isnan(result) & np.isnan(expected))).all()
    assert np.isinf(result).any()
    assert np.isnan(result).any()


def build_network(name: str = "network") -> Graph:
    """Return a small residual network: a stem, blocks of three convolutions, a depthwise one and a matrix."""
    new, rng = Builder(name), np.random.default_rng(5)

    def conv(x: str, results: int, kernel: int = 1, **changes: object) -> str:
        attrs = {"strides": (1, 1), "group": 1, "low": 0.0, **changes}
        channels = new.shape(x)[-1] // int(str(attrs["group"]))
        spread = np.sqrt(2 / (channels * kernel**2))
        w = new.weight("w", (spread * rng.standard_normal((results, kernel, kernel, channels))).astype("f4"))
        bias = new.weight("b", (0.1 * rng.standard_normal(results)).astype("f4"))
        pads = (kernel // 2,) * 2
        return new.one(
            "Conv", [x, w, bias], {**attrs, "pads_before": pads, "pads_after": pads, "dilations": (1, 1)}
        )

    x = conv(new.input("image", DType.F32, (1, 33, 35, 3)), 32, 7, strides=(2, 2))
    for width, stride in ((32, 1), (32, 1), (40, 2), (40, 1)):
        strides = (stride, stride)
        branch = conv(conv(conv(x, width), width, 3, strides=strides), 4 * width, low=-np.inf)
        is_same = new.shape(x) == new.shape(branch)
        straight = x if is_same else conv(x, 4 * width, strides=strides, low=-np.inf)
        x = new.one("Relu", [new.one("Add", [branch, straight])])
    x = conv(x, 160, 3, group=160, low=-np.inf)
    x = new.one("ReduceMean", [x], {"axes": (1, 2), "keepdims": False})
    classes = new.weight("classes", (0.1 * rng.standard_normal((160, 50))).astype("f4"))
    return new.finish([new.one("MatMul", [x, classes])])


@pytest.mark.slow
def test_a_network_is_near_its_results_in_floats_at_every_level(tmp_path: Path) -> None:
    graph = build_network()
    inputs = {"network": random_inputs(graph, 3)}
    (name,) = graph.outputs
    exact = execute(graph, inputs["network"])[name]
    results = [
        run_merged(BF16, [graph], tmp_path / level.name, inputs, [level])["network"][name] for level in BEST
    ]
    scale = np.abs(exact).max()
    errors = [float(np.abs(result - exact).max() / scale) for result in results]
    # A factor is off by 2^-9, and about twenty layers are, each at random.
    assert all(2.0**-14 < error < 2.0**-6 for error in errors), errors
    # Levels differ in the order of sums, which moves some results across a tie of the next rounding.
    for result in results:
        assert np.abs(result - results[0]).max() / scale < 2.0**-9


def test_only_products_with_constant_matrices_are_rounded() -> None:
    kernels = [call.kernel.name for call in BF16.lower(build_network(), "x86_64").calls]
    assert set(kernels) == {
        "conv_bf16",
        "conv_bf16_add_relu",
        "conv_depthwise_k3s1_f32",
        "matmul_bf16",
        "reducemean_rows_f32",
    }
    shallow = [conv("image", (1, 9, 9, 3), (8, 3, 3, 3)).graph, product("shallow", (9, 31), (31, 17)).graph]
    assert [BF16.lower(graph, "x86_64").calls[0].kernel.name for graph in shallow] == [
        "conv_lines3_narrow_f32",
        "matmul_f32",
    ]
    computed = case("computed", "MatMul", [draw(4, 50), draw(50, 6)])
    assert [call.kernel.name for call in BF16.lower(computed).calls] == ["gemm_pack_f32", "matmul_f32"]
    assert not any("bf16" in call.kernel.name for call in Cpu().lower(build_network()).calls)


def test_weights_take_half_of_their_bytes() -> None:
    graph = conv("point", (1, 4, 4, 64), (64, 1, 1, 64)).graph
    sizes = [max(weight.bytes for weight in target.lower(graph).weights.values()) for target in (Cpu(), BF16)]
    assert sizes == [4 * 64 * 64, 2 * 64 * 64]


JOINED = [join("join_two", 8, 40, kernel=3), join("join_windows", 3, 17, 5, kernel=3), build_network()]


@pytest.mark.exhaustive
def test_results_are_the_same_however_work_is_shared_out(tmp_path: Path) -> None:
    """Tasks of one row of tiles and of all, results in longer rows, and residual sums behind them."""
    for level in BEST:
        merged = merge("all", [*(one.graph for one in CASES), *JOINED])
        target = with_levels(BF16, [level])
        files = generate_library([target], [merged])
        model = load_library(files, tmp_path / level.name, ("-DMACE_GRAIN_NS=1",))["all"]
        inputs = random_inputs(merged, 7)
        together, counts = shuffled(model, inputs)
        assert max(counts) > 1
        whole = model.run(inputs)
        for name, array in whole.items():
            np.testing.assert_array_equal(together[name], array, err_msg=name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [str(level.name) for level in BEST])
def test_nothing_is_read_or_written_behind_tensors_and_scratch(name: str, tmp_path: Path) -> None:
    level = SEEN[name]
    graphs = [*(one.graph for one in CASES), *JOINED]
    plans = {graph.name: plan_graph(with_levels(BF16, [level]), graph) for graph in graphs}
    library = Sanitized(plans, [level], tmp_path)
    for one in CASES:
        (result,) = library.run(one.graph.name, one.inputs).values()
        one.check(result, level.name)
    for graph in JOINED:
        assert all(
            np.isfinite(array).all() for array in library.run(graph.name, random_inputs(graph, 7)).values()
        )


def test_reproducible_floats_have_no_products_of_bfloat16() -> None:
    calls = BF16.lower(build_network(), "x86_64").calls
    reasons = {BF16.varies(call) for call in calls if "bf16" in call.kernel.name}
    assert "kernel conv_bf16 adds products of bfloat16 in pairs where the level has tiles of them" in reasons
    assert None not in reasons


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arithmetic": "f16"}, r"target_options: cpu: arithmetic: 'f16' is not allowed; write f32 or bf16"),
        ({"storage": "f16"}, r"'storage' is no option of the target; remove it; the option is arithmetic"),
    ],
)
def test_wrong_options_are_refused(options: Json, message: str) -> None:
    with pytest.raises(MaceError, match=message):
        Cpu().check_options(Model("m", (), keys={"target_options": {"cpu": options}}))


def test_a_request_that_would_do_nothing_is_refused() -> None:
    halves = case("halves", "MatMul", [np.ones((2, 2), np.float16)] * 2, constants=(1,))
    text = r"target_options: cpu: arithmetic: bf16 rounds .* the model's are of f16; remove it, or convert"
    with pytest.raises(MaceError, match=text):
        BF16.lower(halves)
    assert BF16.lower(case("other", "Relu", [draw(2, 3)])).calls


def test_tiles_of_winograd_are_not_asked_for_beside_it() -> None:
    keys = {"target_options": {"cpu": {"arithmetic": "bf16"}}, "winograd": 4}
    with pytest.raises(
        MaceError, match=r"winograd: Winograd's tiles are of floats, .*; remove winograd or arithmetic"
    ):
        Cpu().check_options(Model("m", (), keys=keys))
    Cpu().check_options(Model("m", (), keys={**keys, "winograd": 0}))
