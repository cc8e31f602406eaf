"""Convolutions of images of few channels from quads of pixels: the bits of the product of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_levels import QUIET
from quantized_graphs import I8, U8, check, conv, inputs_of, storage
from test_depthwise_byte_strips import NEEDS_VNNI, SSE2, VNNI, compare, list_kernels
from test_depthwise_strips import BORDER, fill

from mace_core.candidates import Candidate
from mace_core.ir import Array, DType, Graph
from mace_core.levels import with_levels
from mace_core.numerics import Numerics
from mace_target_cpu import Cpu
from mace_target_cpu.quantized import byte_lines
from mace_target_cpu.quantized.byte_lines import BYTE_LINES, count_quads, pack_taps

HALF = {**BORDER, "strides": (2, 2)}

CASES: Mapping[str, tuple[tuple[int, ...], tuple[int, ...], Mapping[str, tuple[int, int]]]] = {
    # Shape of the image; filters and window; how windows move.
    "stem": ((2, 37, 67, 3), (32, 3, 3), HALF),
    "eight": ((1, 18, 34, 3), (8, 3, 3), HALF),
    "few": ((1, 9, 21, 3), (3, 3, 3), BORDER),
    "rest": ((1, 9, 45, 3), (27, 3, 3), BORDER),
    "large": ((1, 21, 39, 3), (20, 7, 7), {**HALF, "pads_before": (3, 3), "pads_after": (2, 3)}),
    "narrow": ((3, 7, 5, 3), (9, 2, 3), BORDER),
    "third": ((1, 12, 50, 3), (16, 3, 5), {"pads_before": (0, 2), "pads_after": (1, 4), "strides": (1, 3)}),
    "apart": ((1, 12, 40, 3), (5, 3, 3), {**HALF, "dilations": (2, 3)}),
    "outside": ((1, 3, 4, 3), (6, 2, 2), {"pads_before": (4, 5), "pads_after": (4, 5), "strides": (3, 4)}),
    "four": ((1, 14, 35, 4), (12, 3, 3), HALF),
    "four_by_one": ((1, 6, 19, 4), (33, 1, 4), {"pads_before": (0, 1), "pads_after": (0, 2)}),
}


def make_graph(name: str, kind: DType) -> Graph:
    """Build a case with weights of a type; uint8 ones have a zero point."""
    shape, (filters, *kernel), windows = CASES[name]
    kinds = (U8, DType.U8, storage(DType.U8, 0.3, 7)) if kind is DType.U8 else (I8, DType.I8, I8)
    return conv(f"{name}_{kind.value}", shape, (filters, *kernel, shape[-1]), kinds, **windows)


@pytest.fixture
def _all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take quads of pixels for all shapes, also where the product of matrices is faster."""
    monkeypatch.setattr(byte_lines, "_estimate", lambda *_: 0.0)


@NEEDS_VNNI
@pytest.mark.slow
@pytest.mark.usefixtures("_all_shapes")
@pytest.mark.parametrize("strip_bytes", [1, 1 << 14])
def test_quads_of_pixels_give_the_bits_of_the_product(
    strip_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_lines, "STRIP_BYTES", strip_bytes)
    graphs = [make_graph(name, kind) for name in CASES for kind in (DType.I8, DType.U8)]
    graphs.append(conv("mixed", (1, 9, 20, 3), (16, 3, 3, 3), (U8, DType.I8, I8), **BORDER))
    graphs.append(
        conv("clamped", (1, 9, 20, 3), (16, 3, 3, 3), (I8, DType.I8, U8), low=-1.0, high=1.5, **BORDER)
    )
    for graph in graphs:
        (kernel,) = list_kernels(graph)
        assert kernel.startswith("conv_byte_lines"), graph.name
    compare(graphs, {graph.name: inputs_of(graph) for graph in graphs}, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("_all_shapes")
@pytest.mark.skipif("avx512vnni" not in QUIET, reason="the processor has no AVX2")
def test_quads_of_pixels_round_the_exact_sum(tmp_path: Path) -> None:
    graphs = [make_graph(name, kind) for name in CASES for kind in (DType.I8, DType.U8)]
    check(graphs, tmp_path, [QUIET["avx512vnni"]])


@NEEDS_VNNI
@pytest.mark.slow
@pytest.mark.usefixtures("_all_shapes")
def test_the_largest_sums_are_exact(tmp_path: Path) -> None:
    cases = [(DType.I8, w, x) for w in (-128, 127) for x in (-128, 127)]
    cases += [(DType.U8, w, x) for w in (0, 255) for x in (0, 255)]
    graphs: list[Graph] = []
    inputs: dict[str, dict[str, Array]] = {}
    for number, (kind, weight, x) in enumerate(cases):
        graph, arrays = fill(make_graph("stem", kind), weight, x)
        graphs.append(graph.with_name(f"g{number}"))
        inputs[f"g{number}"] = arrays
    compare(graphs, inputs, tmp_path)


@pytest.mark.parametrize(
    ("shape", "filters", "expected"),
    [
        ((1, 24, 24, 3), (8, 3, 3, 3), "conv_byte_lines3"),
        ((1, 64, 64, 3), (64, 7, 7, 3), "conv_byte_lines3"),
        ((1, 32, 32, 4), (16, 3, 3, 4), "conv_byte_lines4"),
        # Lines of 17 pixels would take two vectors, and of 5 channels no quads are made.
        ((1, 17, 17, 3), (16, 3, 3, 3), "conv_quantized"),
        ((1, 24, 24, 5), (16, 3, 3, 5), "conv_quantized"),
        ((1, 24, 24, 3), (16, 1, 1, 3), "conv_quantized"),
    ],
)
def test_quads_of_pixels_are_taken_where_they_are_faster(
    shape: tuple[int, ...], filters: tuple[int, ...], expected: str
) -> None:
    border = tuple(size // 2 for size in filters[1:3])
    graph = conv("shape", shape, filters, (I8, DType.I8, I8), pads_before=border, pads_after=border)
    assert list_kernels(graph) == {expected}


def test_other_numbers_are_left_to_the_product() -> None:
    plain = make_graph("stem", DType.I8)
    steps = conv("steps", (1, 16, 16, 3), (8, 3, 3, 3), (I8, DType.I8, storage(DType.I8, 1e-4)), **BORDER)
    wide = conv("wide", (1, 16, 16, 3), (8, 3, 3, 3), (I8, DType.I8, storage(DType.I16, 0.1)), **BORDER)
    rule = replace(plain, numerics=Numerics.FIXED_POINT)
    groups = conv("groups", (1, 16, 16, 3), (6, 3, 3, 1), (I8, DType.I8, I8), group=3, **BORDER)
    for graph in (steps, wide, rule, groups):
        assert not any(kernel.startswith("conv_byte_lines") for kernel in list_kernels(graph)), graph.name
    assert not any(name.startswith("conv_byte_lines") for name in list_kernels_at_sse2(plain))


def list_kernels_at_sse2(graph: Graph) -> set[str]:
    return {call.kernel.name for call in with_levels(Cpu(), [SSE2]).lower(graph).calls}


def test_the_candidate_is_of_levels_with_products_of_bytes_in_wide_vectors() -> None:
    assert isinstance(BYTE_LINES, Candidate)
    assert BYTE_LINES.serves(VNNI)
    assert not BYTE_LINES.serves(SSE2)


def test_every_fourth_tap_fills_the_quads_of_the_three_before_it() -> None:
    filters = np.arange(1, 19).reshape(1, 6, 3)
    assert count_quads(6, 3) == 5
    quads = pack_taps(filters).reshape(5, 4).tolist()
    assert quads == [[1, 2, 3, 10], [4, 5, 6, 11], [7, 8, 9, 12], [13, 14, 15, 0], [16, 17, 18, 0]]


def test_taps_of_four_channels_are_quads() -> None:
    filters = np.arange(8).reshape(1, 2, 4)
    assert count_quads(2, 4) == 2
    assert pack_taps(filters).reshape(-1).tolist() == list(range(8))
