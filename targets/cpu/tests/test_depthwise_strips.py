"""Depthwise convolutions by strips: the same bits as the plain kernel, at the edges of what they are written for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from quantized_graphs import I8, I16, U8, WINDOW, check, conv, inputs_of, storage

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.levels import with_levels
from mace_core.numerics import Numerics
from mace_core.program import Arg
from mace_core.testing.compiled import run_merged
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.isa import X86
from mace_target_cpu.quantized import depthwise_strips
from mace_target_cpu.quantized.depthwise_strips import BLOCK, count_shared_columns, cut_strips

AVX2, SSE2 = (next(level for level in X86 if level.name == name) for name in ("avx2", "sse2"))
NEEDS_AVX2 = pytest.mark.skipif(not levels_here([AVX2]), reason="the processor has no AVX2")

Kinds = tuple[Storage, DType, Storage]

BORDER = {"pads_before": (1, 1), "pads_after": (1, 1)}

CASES: Mapping[str, tuple[tuple[int, ...], tuple[int, int], Mapping[str, tuple[int, int]]]] = {
    "block": ((2, 7, 20, 32), (3, 3), BORDER),
    "overlap": ((1, 7, 9, 77), (3, 3), {**BORDER, "strides": (2, 2)}),
    "close8": ((2, 6, 11, 8), (3, 3), BORDER),
    "close16": ((1, 9, 9, 16), (3, 3), {**BORDER, "strides": (2, 2)}),
    "close16_odd": ((1, 6, 9, 16), (3, 3), BORDER),
    "two": ((1, 9, 12, 64), (3, 3), {**BORDER, "strides": (2, 2)}),
    "tall": ((1, 12, 7, 40), (3, 3), {**BORDER, "dilations": (2, 1), "strides": (3, 1)}),
    "narrow": ((1, 5, 1, 32), (3, 3), BORDER),
    "few": ((1, 5, 6, 24), (3, 3), BORDER),
    "even": ((1, 9, 8, 40), (4, 2), {"pads_before": (2, 0), "pads_after": (0, 3), "strides": (1, 3)}),
    "apart": ((1, 9, 11, 64), (3, 3), {"pads_before": (2, 2), "pads_after": (2, 2), "dilations": (2, 2)}),
    "outside": ((1, 3, 4, 33), (3, 3), {"pads_before": (4, 4), "pads_after": (4, 4), "strides": (3, 3)}),
    "largest": ((1, 9, 9, 16), (8, 8), {"pads_before": (3, 3), "pads_after": (4, 4)}),
    "skipped": ((1, 8, 9, 8), (1, 5), {"pads_before": (0, 0), "pads_after": (0, 1), "strides": (2, 3)}),
}


def make_graph(name: str, kind: DType) -> Graph:
    """Build a case with weights of a type; uint8 ones less their zero point take 9 bits."""
    shape, kernel, windows = CASES[name]
    kinds = (U8, DType.U8, storage(DType.U8, 0.3, 7)) if kind is DType.U8 else (I8, DType.I8, I8)
    return conv(f"{name}_{kind.value}", shape, (shape[-1], *kernel, 1), kinds, group=shape[-1], **windows)


def list_kernels(graph: Graph) -> set[str]:
    return {call.kernel.name for call in with_levels(Cpu(), [AVX2]).lower(graph).calls}


def check_bits(graphs: Sequence[Graph], inputs: Mapping[str, Mapping[str, Array]], folder: Path) -> None:
    """Assert that strips have the bits of the plain kernel."""
    actual = run_merged(Cpu(), graphs, folder / "avx2", inputs, [AVX2])
    expected = run_merged(Cpu(), graphs, folder / "sse2", inputs, [SSE2])
    for graph in graphs:
        for name in graph.outputs:
            np.testing.assert_array_equal(actual[graph.name][name], expected[graph.name][name], graph.name)


def count_shared(graph: Graph) -> int:
    """Return how many columns of windows neighbors share in the kernel's call; 0 for pairs of taps."""
    (call,) = with_levels(Cpu(), [AVX2]).lower(graph).calls
    return int(str(call.args["shared"]))


def graph_of_filters(name: str, filters: Array, stride: int, step: float, bias: Array) -> Graph:
    """Return a convolution of 8 images of unsigned bytes with filters [channels, 9] and a bias in sums.

    step: of the result, in sums.
    """
    channels = len(filters)
    new = Builder(name)
    x = new.input("x", DType.U8, (8, 7, 9, channels), Quant.of(1.0, 0))
    w = new.weight("w", filters.reshape(channels, 3, 3, 1).astype(np.int8), Quant.of(1.0, 0))
    b = new.weight("b", bias.astype(np.int32), Quant.of(1.0, 0))
    attrs = {**WINDOW, "group": channels, "strides": (stride, stride)}
    return new.finish(
        new.add("Conv", [x, w, b], attrs, outputs=[new.reserve_output("y", storage(DType.I8, step))])
    )


@NEEDS_AVX2
@pytest.mark.slow
def test_columns_are_exact_for_all_signs_of_the_largest_weights(tmp_path: Path) -> None:
    # Each line of an image is 0 or 255, so that a window's lines are so in every combination. A pair of
    # products that saturates loses 32,003, which is 27 steps of the result.
    filters = np.array(list(itertools.product((-127, 127), repeat=9)))
    lines = np.arange(8)[:, None] >> (np.arange(7) % 3) & 1
    x = np.zeros((8, 7, 9, len(filters)), np.uint8) + (255 * lines[:, :, None, None]).astype(np.uint8)
    bias = -255 * filters.sum(axis=1) // 2
    graphs = [
        graph_of_filters(f"signs_{stride}", filters, stride, 127 * 9 * 255 / 250, bias) for stride in (1, 2)
    ]
    assert [count_shared(graph) for graph in graphs] == [2, 1]
    check_bits(graphs, {graph.name: {"x": x} for graph in graphs}, tmp_path)


@NEEDS_AVX2
@pytest.mark.slow
def test_columns_are_exact_for_drawn_weights(tmp_path: Path) -> None:
    # The bias brings the sums of the largest bytes to 0, and a step is small: a pair that is beyond 16 bits by
    # a unit of its weights shows.
    random = np.random.default_rng(5)
    x = random.integers(254, 256, (8, 7, 9, 640)).astype(np.uint8)
    graphs = []
    for number, deviation in enumerate((40, 70, 120)):
        filters = np.clip(np.rint(random.normal(0, deviation, (640, 9))), -127, 127).astype(int)
        graphs += [
            graph_of_filters(f"drawn_{number}_{stride}", filters, stride, 10.0, -255 * filters.sum(axis=1))
            for stride in (1, 2)
        ]
    check_bits(graphs, {graph.name: {"x": x} for graph in graphs}, tmp_path)


@pytest.mark.parametrize(("tap", "weight", "shared"), [(4, -128, 0), (4, 127, 2), (1, -128, 2), (7, -128, 2)])
def test_a_middle_weight_without_an_inverse_goes_by_pairs(tap: int, weight: int, shared: int) -> None:
    filters = np.full((32, 9), 5)
    filters[17, tap] = weight
    graph = graph_of_filters("lowest", filters, 1, 100.0, np.zeros(32))
    assert count_shared(graph) == shared


@pytest.mark.parametrize(("weight", "shared"), [(-129, 0), (-128, 2), (127, 2), (128, 0)])
def test_weights_beyond_bytes_go_by_pairs(weight: int, shared: int) -> None:
    args: dict[str, Arg] = {
        "channels": 32,
        "kernel": (1, 3, 3),
        "stride": (1, 1, 1),
        "dilation": (1, 1, 1),
    }
    taps = np.zeros((9, 32), np.int16)
    taps[2, 5] = weight
    assert count_shared_columns(args, taps) == shared


@NEEDS_AVX2
@pytest.mark.slow
def test_the_lowest_weights_are_exact(tmp_path: Path) -> None:
    filters = np.array(list(itertools.product((-128, 127), (-127, 127), (-128, 127))))[np.arange(32) % 8]
    filters = np.repeat(filters, 3, axis=1)
    graph = graph_of_filters("lowest", filters, 1, 128 * 9 * 255 / 250, -255 * filters.sum(axis=1) // 2)
    assert count_shared(graph) == 2
    lines = np.arange(8)[:, None] >> (np.arange(7) % 3) & 1
    x = np.zeros((8, 7, 9, 32), np.uint8) + (255 * lines[:, :, None, None]).astype(np.uint8)
    check_bits([graph], {graph.name: {"x": x}}, tmp_path)


@pytest.mark.parametrize(
    ("case", "kind", "shared"),
    [
        ("block", DType.I8, 2),
        ("block", DType.U8, 0),
        ("overlap", DType.I8, 1),
        ("close16_odd", DType.I8, 1),
        ("close8", DType.I8, 0),
        ("close16", DType.I8, 0),
        ("tall", DType.I8, 2),
        ("apart", DType.I8, 0),
        ("outside", DType.I8, 0),
        ("even", DType.I8, 0),
    ],
)
def test_neighbors_share_the_columns_that_both_see(case: str, kind: DType, shared: int) -> None:
    assert count_shared(make_graph(case, kind)) == shared


@NEEDS_AVX2
@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("rule", [Numerics.SINGLE_ROUNDING, Numerics.FIXED_POINT])
@pytest.mark.parametrize("strip_bytes", [1, 1 << 15])
def test_strips_give_the_bits_of_the_plain_kernel(
    strip_bytes: int, rule: Numerics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depthwise_strips, "STRIP_BYTES", strip_bytes)
    graphs = [
        replace(make_graph(name, kind), numerics=rule) for name in CASES for kind in (DType.I8, DType.U8)
    ]
    if rule is Numerics.SINGLE_ROUNDING:
        # Results of another type than the operand have no rule beside this one.
        graphs.append(conv("mixed", (1, 5, 9, 48), (48, 3, 3, 1), (U8, DType.I8, I8), group=48, **BORDER))
    for graph in graphs:
        (name,) = list_kernels(graph)
        assert name.startswith("conv_depthwise_strips_"), graph.name
    inputs = {graph.name: inputs_of(graph) for graph in graphs}
    check_bits(graphs, inputs, tmp_path)


@NEEDS_AVX2
@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("kind", [DType.I8, DType.U8])
def test_strips_round_the_exact_sum(kind: DType, tmp_path: Path) -> None:
    check([make_graph(name, kind) for name in CASES], tmp_path, [AVX2])


def fill(graph: Graph, weight: int, x: int) -> tuple[Graph, dict[str, Array]]:
    """Return the graph with one weight everywhere, and inputs of one number."""
    (name,) = (name for name in graph.weights if graph.tensors[name].shape[1:-1] == (3, 3))
    filled = np.full_like(graph.weights[name], weight)
    filled.setflags(write=False)
    return replace(graph, weights={**graph.weights, name: filled}), {
        n: np.full_like(a, x) for n, a in inputs_of(graph).items()
    }


@NEEDS_AVX2
@pytest.mark.slow
def test_the_greatest_sums_are_exact(tmp_path: Path) -> None:
    cases = [(DType.I8, w, x) for w in (-128, 127) for x in (-128, 127)]
    cases += [(DType.U8, w, x) for w in (0, 255) for x in (0, 255)]
    graphs, inputs = [], {}
    for number, (kind, weight, x) in enumerate(cases):
        graph, arrays = fill(make_graph("block", kind), weight, x)
        graphs.append(graph.with_name(f"g{number}"))
        inputs[f"g{number}"] = arrays
    check_bits(graphs, inputs, tmp_path)


@pytest.mark.parametrize(
    ("shape", "kernel", "kinds"),
    [
        ((1, 5, 5, 12), (3, 3), (I8, DType.I8, I8)),
        ((1, 5, 5, 32), (3, 3), (I16, DType.I8, I16)),
        ((1, 5, 5, 32), (3, 3), (I8, DType.I8, I16)),
        ((1, 9, 9, 32), (13, 5), (I8, DType.I8, I8)),
        ((1, 3, 5, 5, 32), (3, 3, 3), (I8, DType.I8, I8)),
    ],
)
def test_other_nodes_go_the_plain_way(shape: tuple[int, ...], kernel: tuple[int, ...], kinds: Kinds) -> None:
    pads = {name: tuple(size // 2 for size in kernel) for name in ("pads_before", "pads_after")}
    ones = {name: (1,) * len(kernel) for name in ("strides", "dilations")}
    graph = conv("other", shape, (shape[-1], *kernel, 1), kinds, group=shape[-1], **pads, **ones)
    (name,) = list_kernels(graph)
    assert name.startswith("conv_depthwise_")
    assert "strips" not in name


@pytest.mark.parametrize(
    ("channels", "size", "stride", "expected"),
    [
        # A line of 114 pixels; eight of them fit, for which six rows of results read.
        (32, 112, 1, (6, 8 * 114 * BLOCK + BLOCK)),
        # 113 columns, an even number with the one that no window sees.
        (96, 112, 2, (3, 7 * 114 * BLOCK + BLOCK)),
        # Pixels of 8 channels lie close.
        (8, 48, 1, (48, 50 * 50 * 8 + BLOCK)),
        # One row of results at least.
        (64, 2000, 1, (1, 3 * 2002 * BLOCK + BLOCK)),
    ],
)
def test_strips_hold_the_lines_that_rows_read(
    channels: int, size: int, stride: int, expected: tuple[int, int]
) -> None:
    out = (size - 1) // stride + 1
    args: dict[str, Arg] = {
        "channels": channels,
        "out": (1, out, out),
        "kernel": (1, 3, 3),
        "stride": (1, stride, stride),
        "dilation": (1, 1, 1),
    }
    assert cut_strips(args) == expected
