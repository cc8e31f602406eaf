"""Depthwise convolutions of bytes in the kernel of the pointwise one behind them: when, and with which bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from byte_pairs import BLOCKS, NAMES, Block, ask, build_block
from byte_results import full_range, load_on_cpu
from opencl_device import compile_by_clang, load_on_device, require_device

from mace_core.ir import Array, DType, Graph
from mace_core.program import Program
from mace_core.run.reference import execute
from mace_core.testing.compiled import merge
from mace_target_opencl.enqueue import operands_of, render_program
from mace_target_opencl.lower.product_tile import BYTE_BLOCK
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl


def name_templates(program: Program) -> list[str]:
    return [call.kernel.template.name for call in program.calls]


@pytest.mark.parametrize("block", BLOCKS, ids=NAMES)
def test_a_candidate_makes_both_one_kernel_of_both_nodes(block: Block) -> None:
    graph = build_block(block)
    (call,) = Opencl().lower(graph, tuning=ask(graph)).calls
    assert call.kernel.template.name == "tile_dots.cl.in"
    assert call.kernel.params["block"] == BYTE_BLOCK
    assert call.sources == tuple(dict.fromkeys(node.sources[0] for node in graph.nodes))
    # Only the quads that are multiplied at once are loaded as they are.
    source = render_program([call.kernel])
    loads = {name: f"#define LOAD4_{name}(i) convert_int4" in source for name in ("x", "f", "w")}
    assert loads == {"x": True, "f": True, "w": False}


@pytest.mark.parametrize(
    ("pixels", "columns", "is_joined"),
    [(112, 24, True), (112, 192, False), (56, 24, False)],
)
def test_the_target_joins_where_few_tiles_have_all_columns_and_many_have_the_rows(
    pixels: int, columns: int, is_joined: bool
) -> None:
    graph = build_block(Block("m", (1, pixels, pixels, 96), (3, 3), columns))
    assert len(Opencl().lower(graph).calls) == (1 if is_joined else 2)
    # What is stored in bytes is not stored in halves, which would be joined with fewer groups.
    assert len(Opencl(OpenclOptions(storage="f16")).lower(graph).calls) == (1 if is_joined else 2)
    assert len(Opencl(OpenclOptions(local_memory=False)).lower(graph).calls) == 2


def test_candidates_that_come_to_the_same_have_one_kernel() -> None:
    graph = build_block(Block("m", (1, 112, 112, 96), (3, 3), 24))
    auto, asked = (Opencl().lower(graph, tuning=ask(graph, name)) for name in ("auto", "depthwise"))
    assert auto.calls == asked.calls
    assert len(Opencl().lower(graph, tuning=ask(graph, "tile32")).calls) == 2


def test_bytes_that_are_stored_as_wider_numbers_are_computed_apart() -> None:
    """Products of sixteen bits are not made four at a time, and those of floats not of bytes."""
    graph = build_block(replace(BLOCKS[-1], dtype=DType.I16))
    first, second = Opencl().lower(graph, tuning=ask(graph)).calls
    assert str(operands_of(first)[-1].type) == "short"
    assert not second.kernel.params.get("window_axes")


@pytest.mark.slow
def test_kernels_are_opencl_c(tmp_path: Path) -> None:
    graph = merge("all", [build_block(block) for block in BLOCKS])
    program = Opencl().lower(graph, tuning=ask(graph))
    assert compile_by_clang(render_program(call.kernel for call in program.calls), tmp_path)


def run(graph: Graph, target: Opencl, folder: Path) -> dict[str, Array]:
    tuning = ask(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mace_target_opencl.target.tuning_of", lambda *_: tuning)
        model = load_on_device([graph], folder, target)["all"]
    results: dict[str, Array] = model.run(full_range(graph))
    return results


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize("checks", [False, True], ids=("plain", "checked"))
def test_one_kernel_has_the_bits_of_the_cpu(checks: bool, tmp_path: Path) -> None:
    require_device()
    graph = merge("all", [build_block(block) for block in BLOCKS])
    expected = load_on_cpu(graph, tmp_path / "cpu")["all"].run(full_range(graph))
    actual = run(graph, Opencl(OpenclOptions(checks_bounds=checks)), tmp_path / "device")
    assert [name for name in expected if not np.array_equal(actual[name], expected[name])] == []
    assert all(len({*array.ravel()}) > 9 for array in expected.values()), "not clamped to few numbers"


@pytest.mark.device
@pytest.mark.exhaustive
def test_one_kernel_computes_what_the_references_do(tmp_path: Path) -> None:
    """Within a step of each rounding: of the two results, and of the sum behind them."""
    require_device()
    graph = merge("all", [build_block(replace(block, x=(1, *block.x[1:]))) for block in BLOCKS])
    expected, actual = execute(graph, full_range(graph)), run(graph, Opencl(), tmp_path)
    for name in graph.outputs:
        assert np.abs(actual[name].astype(int) - expected[name].astype(int)).max() <= 2, name
