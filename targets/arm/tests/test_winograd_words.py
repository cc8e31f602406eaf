"""Convolutions of bytes by tiles of 4 x 4 results at `neon`: the bits of direct sums on this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated_arm import assert_equal_on_arm
from quantized_graphs import I8, conv, storage
from test_byte_levels import draw_inputs
from test_quantized_winograd import ADVERSE, GRAPHS, KERNEL, SUMS, alternate, pack, sums_graph

from mace_core.ir import DType, Graph
from mace_core.testing.compiled import merge
from mace_target_arm import Arm
from mace_target_cpu.quantized.winograd import Tiles
from mace_target_cpu.quantized.winograd_check import check_winograd


@pytest.fixture
def is_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tiles taken at `neon` wherever they can be, and nowhere else."""
    costs = {"smull": 0.0}
    monkeypatch.setattr(Tiles, "compare_cost", lambda tiles, columns, pixels, dot: costs.get(dot, 1e9))


def list_kernels(graph: Graph, abi: str, level: str) -> list[str]:
    """Return the kernels of a graph at a level."""
    return [call.kernel.name for call in Arm().lower(graph, abi).calls if call.is_made_at(level)]


@pytest.mark.usefixtures("is_forced")
def test_tiles_are_for_neon_alone() -> None:
    for graph in (*GRAPHS, *SUMS):
        for abi in ("arm64", "armhf"):
            assert list_kernels(graph, abi, "neon")[0].startswith(KERNEL)
        assert not any(KERNEL in name for name in list_kernels(graph, "arm64", "dotprod"))


def test_sums_of_signed_bytes_have_bounds_of_their_own() -> None:
    weights = np.random.default_rng(1).integers(-128, 128, (5, 3, 3, 8)).astype(np.int8)
    low, high = check_winograd(pack(weights), 3, 5, is_signed=True)
    centered = (weights.astype(int) - 3).reshape(5, -1)
    assert low == np.where(centered > 0, -128 * centered, 127 * centered).sum(1).min()
    assert high == np.where(centered > 0, 127 * centered, -128 * centered).sum(1).max()


@pytest.mark.parametrize(
    ("size", "channels", "columns", "is_taken"),
    [(56, 64, 64, True), (14, 256, 256, True), (7, 512, 512, False), (16, 4, 16, False), (3, 64, 64, False)],
)
def test_tiles_are_taken_where_they_pay(size: int, channels: int, columns: int, is_taken: bool) -> None:
    kinds = (I8, DType.I8, storage(DType.I8, 1.0))
    graph = conv("sized", (1, size, size, channels), (columns, 3, 3, channels), kinds)
    assert any(KERNEL in name for name in list_kernels(graph, "arm64", "neon")) == is_taken


@pytest.mark.exhaustive
@pytest.mark.emulator
@pytest.mark.usefixtures("is_forced")
@pytest.mark.parametrize("tools", [("gnu", "arm64"), ("zig", "arm64-v8a"), ("gnu", "armhf")], ids="-".join)
def test_tiles_have_the_bits_of_direct_sums(tools: tuple[str, str], tmp_path: Path) -> None:
    adverse = [
        sums_graph(weights, (9, 6), zero).with_name(f"{name}_{zero + 128}")
        for name, weights in ADVERSE.items()
        for zero in (-128, 127)
    ]
    merged = merge("tiles", [*GRAPHS, *SUMS, *adverse])
    inputs = draw_inputs(merged)
    for graph in adverse:
        x = inputs[f"{graph.name}/x"]
        inputs[f"{graph.name}/x"] = np.concatenate(
            [alternate(x[:1].shape), np.where(x[1:] > 0, 127, -128)]
        ).astype(np.int8)
    assert_equal_on_arm(merged, inputs, tmp_path, tools, [("neon", "max")])


@pytest.mark.slow
@pytest.mark.usefixtures("is_forced")
def test_a_small_convolution_has_the_bits_of_direct_sums(tmp_path: Path) -> None:
    small = GRAPHS[1]
    assert_equal_on_arm(small, draw_inputs(small), tmp_path, ("gnu", "arm64"), [("neon", "max")])
