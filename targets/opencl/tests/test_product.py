"""Products: which kernel computes them, and that each computes what the reference does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from pathlib import Path

import pytest
from opencl_device import load_on_device, measure_error, require_device
from product_graphs import build_conv, build_product

from mace_core.ir import Graph
from mace_core.program import Call
from mace_core.run.reference import execute
from mace_core.testing.compiled import merge, random_inputs
from mace_target_opencl.enqueue import render_kernel
from mace_target_opencl.options import MEASURED_UNITS, OpenclOptions
from mace_target_opencl.target import Opencl

LARGE = (
    build_conv("edges", (1, 33, 31, 24), (68, 3, 3, 24), {"pads_before": (1, 1), "pads_after": (1, 1)}),
    build_conv("rows", (2, 40, 40, 32), (132, 1, 1, 32)),
    build_conv(
        "groups", (1, 40, 41, 32), (64, 3, 3, 16), {"group": 2, "strides": (2, 1), "dilations": (1, 2)}
    ),
    build_product("batch", (3, 100, 36), (3, 36, 72)),
    build_product("repeat", (2, 1, 64, 16), (3, 16, 64)),
)
SMALL = (
    build_conv("few_rows", (1, 7, 7, 64), (8, 1, 1, 64)),
    build_conv("odd_channels", (1, 40, 40, 30), (64, 3, 3, 30)),
    build_product("odd_columns", (300, 64), (64, 301)),
    build_product("vector", (64,), (64, 300)),
)


EDGE = {"pads_before": (1, 1), "pads_after": (1, 1)}
# No splits divide the blocks of their product, or the steps of its depth: some parts are shorter.
SMALL_SPLIT = (
    (build_product("three_rows", (3, 300), (300, 68)), "product.cl.in", 16),
    (build_product("odd_line", (1, 1001), (1001, 37)), "product.cl.in", 64),
    (build_product("vectors", (5, 2, 300), (5, 300, 68)), "product.cl.in", 16),
    (build_conv("taps", (1, 7, 7, 68), (72, 3, 3, 68), EDGE), "product.cl.in", 4),
    (build_product("shared", (125, 132), (132, 128)), "tile.cl.in", 4),
)
LARGE_SPLIT = (
    (build_conv("teams", (1, 14, 15, 40), (132, 3, 3, 40), EDGE), "tile.cl.in", 4),
    (build_conv("flat_teams", (1, 16, 17, 132), (132, 3, 3, 132), EDGE), "tile.cl.in", 8),
    (build_conv("deep_line", (1, 7, 7, 1028), (132, 1, 1, 1028)), "product.cl.in", 64),
    (build_product("wide", (790, 100), (100, 516)), "tile.cl.in", 2),
)
SPLIT = (*SMALL_SPLIT, *LARGE_SPLIT)
"""Products of few results or few groups, with the templates and splits that the target chooses."""


def find_call(graph: Graph) -> Call:
    (call,) = Opencl().lower(graph).calls
    return call


def count_local_bytes(call: Call) -> int:
    """Return the bytes of local memory of a kernel, whose arrays hold floats or vectors of four."""
    arrays = re.findall(r"__local float(4?) \w+\[(\d+)\];", render_kernel(call.kernel))
    return sum(4 * int(width or 1) * int(count) for width, count in arrays)


def name_template(graph: Graph) -> str:
    return find_call(graph).kernel.template.name


@pytest.mark.parametrize(("graph", "template", "splits"), SPLIT, ids=[graph.name for graph, _, _ in SPLIT])
def test_work_items_share_the_results_of_products_that_have_few(
    graph: Graph, template: str, splits: int
) -> None:
    call = find_call(graph)
    assert (call.kernel.template.name, call.kernel.params["splits"]) == (template, splits)
    sizes = zip(call.args["global_size"], call.args["local_size"], strict=True)  # type: ignore[arg-type]
    assert all(total % group == 0 for total, group in sizes)
    # What every device of OpenCL's full profile has; the groups are those of most GPUs.
    assert 0 < count_local_bytes(call) <= 32 << 10
    assert prod(call.args["local_size"]) <= 256  # type: ignore[arg-type]


@pytest.mark.parametrize("graph", [graph for graph, _, _ in SPLIT], ids=lambda graph: graph.name)
@pytest.mark.parametrize("max_items", [64, 128])
def test_groups_are_no_larger_than_the_deployment_file_allows(graph: Graph, max_items: int) -> None:
    (call,) = Opencl(OpenclOptions(group_items=max_items)).lower(graph).calls
    assert prod(call.args["local_size"]) <= max_items  # type: ignore[arg-type]


MEASURED = (
    (build_conv("deep", (1, 7, 7, 512), (512, 3, 3, 512), EDGE), ("product.cl.in", 32, 0)),
    (build_conv("narrow", (1, 7, 7, 2048), (512, 1, 1, 2048)), ("product.cl.in", 32, 0)),
    (build_conv("broad", (1, 7, 7, 512), (2048, 1, 1, 512)), ("tile.cl.in", 4, 16)),
    (build_conv("middle", (1, 14, 14, 256), (256, 3, 3, 256), EDGE), ("tile.cl.in", 8, 16)),
    (build_conv("early", (1, 56, 56, 64), (64, 3, 3, 64), EDGE), ("tile.cl.in", 4, 16)),
    (build_product("text", (128, 384), (384, 384)), ("tile.cl.in", 4, 16)),
    (build_product("square", (512, 512), (512, 512)), ("tile.cl.in", 2, 32)),
)
"""The fastest template, splits and rows of a tile on an NVIDIA H200, as the table in docs/opencl.md has them."""


def describe_share(graph: Graph, options: OpenclOptions) -> tuple[str, object, object]:
    """Return template, splits and rows of a tile, 0 without one."""
    (call,) = Opencl(options).lower(graph).calls
    params = call.kernel.params
    return call.kernel.template.name, params["splits"], params.get("tile_rows", 0)


@pytest.mark.parametrize(("graph", "share"), MEASURED, ids=[graph.name for graph, _ in MEASURED])
def test_products_are_shared_out_as_was_fastest(graph: Graph, share: tuple[str, int, int]) -> None:
    assert describe_share(graph, OpenclOptions()) == share


@pytest.mark.parametrize(
    ("units", "share"),
    [
        (1, ("tile.cl.in", 1, 64)),
        (8, ("tile.cl.in", 2, 64)),
        (64, ("tile.cl.in", 4, 16)),
        (528, ("product.cl.in", 16, 0)),
    ],
)
def test_a_device_with_few_compute_units_gets_larger_tiles(units: int, share: tuple[str, int, int]) -> None:
    """The product has 48 groups of the smallest tile, and 12 of the middle one."""
    graph = build_product("text", (128, 384), (384, 384))
    assert describe_share(graph, OpenclOptions(compute_units=units)) == share


@pytest.mark.parametrize(
    ("abi", "units"), [("arm64-v8a", 8), ("armeabi-v7a", 8), ("riscv64", 8), ("host", 132), ("amd64", 132)]
)
def test_without_stated_units_a_device_is_as_large_as_those_of_the_abi(abi: str, units: int) -> None:
    graph = build_product("text", (128, 384), (384, 384))
    unstated, stated = (
        Opencl(options).lower(graph, abi).calls
        for options in (
            OpenclOptions(local_memory=True),
            OpenclOptions(compute_units=units, local_memory=True),
        )
    )
    assert [call.kernel.name for call in unstated] == [call.kernel.name for call in stated]
    other = Opencl(OpenclOptions(compute_units=140 - units, local_memory=True)).lower(graph, abi).calls
    assert [call.kernel.name for call in unstated] != [call.kernel.name for call in other]


@pytest.mark.parametrize(
    ("abi", "stated", "is_tiled"),
    [("arm64-v8a", None, False), ("arm64-v8a", True, True), ("host", None, True), ("host", False, False)],
)
@pytest.mark.parametrize("graph", [graph for graph, _ in MEASURED], ids=lambda graph: graph.name)
def test_without_local_memory_products_are_computed_without(
    graph: Graph, abi: str, stated: bool | None, is_tiled: bool
) -> None:
    """Each of these products takes tiles or splits where there is local memory."""
    options = OpenclOptions(compute_units=MEASURED_UNITS, local_memory=stated)
    (call,) = Opencl(options).lower(graph, abi).calls
    is_plain = call.kernel.template.name == "product.cl.in" and call.kernel.params["splits"] == 1
    assert is_plain != is_tiled


@pytest.mark.parametrize("graph", LARGE, ids=lambda graph: graph.name)
def test_a_large_product_of_vectors_is_computed_by_tiles(graph: Graph) -> None:
    assert name_template(graph) == "tile.cl.in"


@pytest.mark.parametrize("graph", SMALL, ids=lambda graph: graph.name)
def test_a_small_or_odd_product_is_computed_without(graph: Graph) -> None:
    assert name_template(graph) == "product.cl.in"


@pytest.mark.device
@pytest.mark.exhaustive
def test_tiles_compute_what_the_references_do(tmp_path: Path) -> None:
    compare_on_device((*LARGE, *SMALL, *(graph for graph, _, _ in LARGE_SPLIT)), tmp_path)


@pytest.mark.device
@pytest.mark.exhaustive
def test_split_products_compute_what_the_references_do(tmp_path: Path) -> None:
    compare_on_device([graph for graph, _, _ in SMALL_SPLIT], tmp_path)


def compare_on_device(graphs: Sequence[Graph], folder: Path) -> None:
    require_device()
    graph = merge("products", graphs)
    model = load_on_device([graph], folder)["products"]
    inputs = random_inputs(graph)
    expected, outputs = execute(graph, inputs), model.run(inputs)
    errors = {name: measure_error(outputs[name], expected[name]) for name in graph.outputs}
    assert max(errors.values()) < 1e-6, errors
