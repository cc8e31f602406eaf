"""Depthwise convolutions in the kernel of the pointwise one behind them: when, and with which results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from half_device import replace_half
from opencl_device import compile_by_clang, load_on_device, measure_error, require_device

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Shape
from mace_core.program import Call, Program
from mace_core.run.reference import execute
from mace_core.testing.compiled import merge, random_inputs
from mace_core.tuning import Tuning, TuningEntry
from mace_target_opencl.depthwise_product import Pair
from mace_target_opencl.enqueue import MAX_OPERANDS, operands_of, render_program
from mace_target_opencl.fusion import fuse
from mace_target_opencl.half_arithmetic import PARTIAL, compute_in_half
from mace_target_opencl.half_storage import store_in_half
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl


@dataclass(frozen=True)
class Block:
    """A depthwise convolution, an activation and a pointwise convolution.

    x: shape of the input.  kernel: sides of the window.  columns: of the result.  stride, dilation: of each axis.
    before, after: padding of each axis.  activation: "" for none.  is_residual: whether something is added.
    """

    name: str
    x: Shape
    kernel: Shape
    columns: int
    stride: int = 1
    dilation: int = 1
    before: int = 1
    after: int = 1
    activation: str = ""
    is_residual: bool = False


BLOCKS = (
    Block("plain", (1, 32, 32, 32), (3, 3), 64),
    Block("strided", (2, 23, 21, 20), (3, 3), 36, 2, 1, 0, 1, "HardSwish", True),
    Block("dilated", (1, 30, 19, 52), (3, 3), 132, 1, 2, 0, 0),
    Block("wide", (1, 25, 26, 16), (5, 5), 16, 1, 1, 2, 2, "Relu"),
    Block("line", (3, 200, 24), (3,), 40),
    Block("volume", (1, 9, 8, 10, 16), (2, 3, 2), 24, 1, 1, 1, 0),
    Block("few", (1, 5, 5, 36), (3, 3), 12),
)
"""Depths and columns that fill no tile, rows that end in one, windows over each edge and over none."""


def build_block(block: Block) -> Graph:
    builder, rng = Builder(block.name), np.random.default_rng(0)
    channels, axes = block.x[-1], len(block.kernel)
    x = builder.input("x", DType.F32, block.x)

    def weigh(name: str, shape: Shape) -> str:
        return builder.weight(name, rng.normal(0, 0.3, shape).astype(np.float32))

    attrs = {
        "strides": (block.stride,) * axes,
        "pads_before": (block.before,) * axes,
        "pads_after": (block.after,) * axes,
        "dilations": (block.dilation,) * axes,
    }
    operands = [x, weigh("filters", (channels, *block.kernel, 1)), weigh("shift", (channels,))]
    y = builder.one("Conv", operands, {**attrs, "group": channels, "low": -1.0, "high": 1.5})
    if block.activation:
        y = builder.one(block.activation, [y])
    points = {"strides": (1,) * axes, "pads_before": (0,) * axes, "pads_after": (0,) * axes}
    matrix = weigh("matrix", (block.columns, *(1,) * axes, channels))
    operands = [y, matrix, weigh("bias", (block.columns,))]
    y = builder.one("Conv", operands, {**points, "dilations": (1,) * axes})
    if block.is_residual:
        y = builder.one("Add", [y, builder.input("rest", DType.F32, builder.tensors[y].shape)])
    return builder.finish([y])


class Apart(Opencl):
    """Computes each of the two by a kernel of its own."""

    def fuse(self, first: Call, second: Call, tensor: str) -> Call | None:
        return fuse(first, second, tensor)


def ask(candidate: str, graph: Graph) -> Tuning:
    """Return a tuning file that asks for a candidate at each pointwise convolution."""
    nodes = [n.name for n in graph.nodes if n.op.name == "Conv" and graph.weights[n.inputs[1]].shape[-1] > 1]
    return Tuning(Path("t.yml"), tuple(TuningEntry(candidate, 1, node=name) for name in nodes))


def find_windows(program: Program) -> list[object]:
    """Return the axes of the window of each tile."""
    return [c.kernel.params["window_axes"] for c in program.calls if c.kernel.params.get("window_axes")]


def name_templates(program: Program) -> list[str]:
    return [call.kernel.template.name for call in program.calls]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_a_candidate_makes_both_one_kernel_of_both_nodes(block: Block) -> None:
    graph = build_block(block)
    (call,) = Opencl().lower(graph, tuning=ask("depthwise", graph)).calls
    assert call.kernel.template.name == "tile.cl.in"
    assert call.sources == tuple(dict.fromkeys(node.sources[0] for node in graph.nodes))
    assert prod(axis[2] for axis in call.kernel.params["window_axes"]) == prod(block.kernel)


def test_every_other_candidate_computes_them_apart() -> None:
    graph = build_block(BLOCKS[0])
    (selection,) = (s for s in Opencl().lower(graph).selections if s.key.node == graph.nodes[1].name)
    names = [*selection.choices[0].costs]
    assert "depthwise" in names
    for name in {*names} - {"auto", "depthwise", "image_depthwise"}:
        first, _ = name_templates(Opencl().lower(graph, tuning=ask(name, graph)))
        assert first == "windows.cl.in", name


def test_candidates_that_come_to_the_same_have_one_kernel() -> None:
    graph = build_block(Block("m", (1, 112, 112, 96), (3, 3), 24))
    auto, asked = (Opencl().lower(graph, tuning=ask(name, graph)) for name in ("auto", "depthwise"))
    assert auto.calls == asked.calls
    apart = Apart().lower(graph)
    assert Opencl().lower(graph, tuning=ask("tile64", graph)).calls[0] == apart.calls[0]
    assert not any("depthwise" in call.kernel.params for call in (*auto.calls, *apart.calls))


def test_without_local_memory_they_are_joined_only_on_request() -> None:
    graph = build_block(Block("m", (1, 112, 112, 96), (3, 3), 24))
    assert name_templates(Opencl().lower(graph)) == ["tile.cl.in"]
    target = Opencl(OpenclOptions(local_memory=False))
    assert name_templates(target.lower(graph)) == ["windows.cl.in", "product.cl.in"]
    assert name_templates(target.lower(graph, tuning=ask("depthwise", graph))) == ["tile.cl.in"]


def test_a_pointwise_convolution_behind_another_op_refuses_the_candidate() -> None:
    builder = Builder("m")
    x = builder.one("MaxPool", [builder.input("x", DType.F32, (1, 8, 8, 16))], {**WINDOW, "kernel": (3, 3)})
    w = builder.weight("w", np.ones((16, 1, 1, 16), np.float32))
    plain = {**WINDOW, "pads_before": (0, 0), "pads_after": (0, 0)}
    graph = builder.finish([builder.one("Conv", [x, w], plain)])
    refused = Opencl().lower(graph).selections[-1].refused
    assert "only a pointwise convolution behind a depthwise one" in refused["depthwise"]


WINDOW = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}


@pytest.mark.parametrize(("storage", "is_joined"), [("f32", False), ("f16", True)])
def test_pairs_of_few_groups_are_joined_where_storage_would_round(storage: str, is_joined: bool) -> None:
    graph = build_block(Block("m", (1, 56, 56, 96), (3, 3), 24))
    templates = name_templates(Opencl(OpenclOptions(storage)).lower(graph))
    assert (templates == ["tile.cl.in"]) == is_joined


@pytest.mark.parametrize(("count", "calls"), [(2, 1), (10, 2)])
def test_both_are_apart_where_one_kernel_would_have_too_many_operands(count: int, calls: int) -> None:
    """Each selection between the two has a condition and another operand."""
    builder, rng = Builder("m"), np.random.default_rng(0)
    y = builder.input("x", DType.F32, (1, 112, 112, 32))
    plain = {**WINDOW, "pads_before": (0, 0), "pads_after": (0, 0)}

    def weigh(*shape: int) -> str:
        return builder.weight("w", rng.normal(size=shape).astype(np.float32))

    y = builder.one("Conv", [y, weigh(32, 3, 3, 1)], {**WINDOW, "group": 32})
    for _ in range(count):
        condition = builder.input("c", DType.BOOL, (1, 112, 112, 32))
        y = builder.one("Where", [condition, y, builder.input("s", DType.F32, (1, 112, 112, 32))])
    y = builder.one("Conv", [y, weigh(32, 1, 1, 32), weigh(32)], plain)
    counts = [len(operands_of(call)) for call in Opencl().lower(builder.finish([y])).calls]
    assert len(counts) == calls
    assert max(counts) <= MAX_OPERANDS


def test_results_that_something_else_reads_are_stored() -> None:
    builder, rng = Builder("m"), np.random.default_rng(0)
    x = builder.input("x", DType.F32, (1, 112, 112, 32))
    filters = builder.weight("f", rng.normal(size=(32, 3, 3, 1)).astype(np.float32))
    matrix = builder.weight("w", rng.normal(size=(32, 1, 1, 32)).astype(np.float32))
    y = builder.one("Conv", [x, filters], {**WINDOW, "group": 32})
    plain = {**WINDOW, "pads_before": (0, 0), "pads_after": (0, 0)}
    results = [builder.one("Conv", [y, matrix], plain), y]
    assert name_templates(Opencl().lower(builder.finish(results[:1]))) == ["tile.cl.in"]
    program = Opencl().lower(builder.finish(results))
    assert name_templates(program) == ["windows.cl.in", "tile.cl.in"]
    assert not find_windows(program)


@pytest.mark.parametrize(
    ("pixels", "columns", "is_joined"),
    [(112, 24, True), (112, 128, True), (80, 64, True), (112, 320, False), (56, 24, False), (14, 16, False)],
)
def test_the_target_joins_where_few_tiles_have_all_columns_and_many_have_the_rows(
    pixels: int, columns: int, is_joined: bool
) -> None:
    graph = build_block(Block("m", (1, pixels, pixels, 96), (3, 3), columns))
    assert bool(find_windows(Opencl().lower(graph))) == is_joined


def test_extra_work_is_that_of_each_tile_but_the_first() -> None:
    pair = Pair(count=1000, depth=64, columns=256, taps=9)
    tile = pair.choose_tile()
    assert tile is not None
    assert tile.columns == 128
    # Two tiles of 128 columns: the second loads and multiplies 9 taps of each element again.
    assert pair.count_extra(tile) == 1000 * 64 * 9 * 4
    narrow = Pair(count=1000, depth=64, columns=24, taps=9)
    # No element is computed twice, and 8 of the 32 columns are multiplied for nothing.
    assert narrow.count_extra(narrow.choose_tile() or tile) == 1000 * 64 * 8


def run(blocks: Sequence[Block], target: Opencl, candidate: str, folder: Path) -> dict[str, Array]:
    """Return the results of blocks on the device, each computed as a candidate does."""
    graph = merge("all", [build_block(block) for block in blocks])
    tuning = ask(candidate, graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mace_target_opencl.target.tuning_of", lambda *_: tuning)
        model = load_on_device([graph], folder, target)["all"]
    results: dict[str, Array] = model.run(random_inputs(graph))
    return results


def expect(blocks: Sequence[Block]) -> dict[str, Array]:
    graph = merge("all", [build_block(block) for block in blocks])
    return execute(graph, random_inputs(graph))


@pytest.mark.device
@pytest.mark.slow
def test_a_block_with_a_residual_computes_what_the_references_do(tmp_path: Path) -> None:
    require_device()
    expected, actual = expect(BLOCKS[1:2]), run(BLOCKS[1:2], Opencl(), "depthwise", tmp_path)
    for name, value in actual.items():
        assert measure_error(value, expected[name]) < 1e-6


SMALL = (replace(BLOCKS[1], x=(2, 9, 7, 20)), replace(BLOCKS[4], x=(2, 40, 24)), BLOCKS[6])
"""Blocks that a simulator computes in seconds."""


@pytest.mark.device
@pytest.mark.exhaustive
def test_small_blocks_compute_what_the_references_do(tmp_path: Path) -> None:
    require_device()
    expected, actual = expect(SMALL), run(SMALL, Opencl(), "depthwise", tmp_path)
    errors = {name: measure_error(value, expected[name]) for name, value in actual.items()}
    assert max(errors.values()) < 1e-6, errors


@pytest.mark.device
@pytest.mark.exhaustive
def test_one_kernel_has_the_bits_of_two(tmp_path: Path) -> None:
    require_device()
    expected = expect(BLOCKS)
    apart = run(BLOCKS, Apart(), "plain", tmp_path / "apart")
    for number, checks in enumerate((False, True)):
        target = Opencl(OpenclOptions(checks_bounds=checks))
        actual = run(BLOCKS, target, "depthwise", tmp_path / str(number))
        for name, value in actual.items():
            assert measure_error(value, expected[name]) < 1e-6, (name, checks)
            assert np.array_equal(value, apart[name]), (name, checks)


STORAGE = OpenclOptions(storage="f16")
ARITHMETIC = OpenclOptions(storage="f16", arithmetic="f16")


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize(("options", "limit"), [(STORAGE, 2e-3), (ARITHMETIC, 5e-3)], ids=("storage", "sums"))
def test_blocks_in_half_precision_are_within_the_bounds_of_two_kernels(
    options: OpenclOptions, limit: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if options is ARITHMETIC:
        replace_half(monkeypatch)
    require_device()
    expected = expect(BLOCKS)
    actual = run(BLOCKS, Opencl(options), "depthwise", tmp_path / "joined")
    errors = {name: measure_error(value, expected[name]) for name, value in actual.items()}
    assert max(errors.values()) < limit, errors
    assert min(errors.values()) > 1e-6, "nothing was computed in half precision"


@pytest.mark.slow
def test_blocks_in_half_precision_are_opencl_c_of_a_device_with_the_extension(tmp_path: Path) -> None:
    graph = merge("all", [build_block(block) for block in BLOCKS])
    program = compute_in_half(store_in_half(Opencl().lower(graph, tuning=ask("depthwise", graph))))
    types = ["float" if prod(block.kernel) > PARTIAL else "mace_half" for block in BLOCKS]
    # 300 * 300 is beyond half precision: as by themselves, windows of more taps are summed in floats.
    assert "float" in types
    assert [str(call.kernel.params["type"]) for call in program.calls] == types
    assert "_Z" in compile_by_clang(render_program(call.kernel for call in program.calls), tmp_path)


def test_filters_that_half_precision_cannot_hold_are_multiplied_in_floats() -> None:
    builder, rng = Builder("m"), np.random.default_rng(0)
    x = builder.input("x", DType.F32, (1, 112, 112, 32))
    filters = builder.weight("f", np.full((32, 3, 3, 1), 1e6, np.float32))
    matrix = builder.weight("w", rng.normal(size=(32, 1, 1, 32)).astype(np.float32))
    plain = {**WINDOW, "pads_before": (0, 0), "pads_after": (0, 0)}
    y = builder.one("Conv", [builder.one("Conv", [x, filters], {**WINDOW, "group": 32}), matrix], plain)
    (call,) = compute_in_half(store_in_half(Opencl().lower(builder.finish([y])))).calls
    assert call.kernel.params["type"] == "float"
