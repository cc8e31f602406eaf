"""Depthwise convolutions of bytes: how their weights lie, which kernel takes them, and their bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from emulated_arm import assert_equal_on_arm, name_emulated_levels
from quantized_graphs import I8, I16, U8, conv
from test_byte_levels import draw_inputs

from mace_core.ir import Array, DType, Graph, Numerics
from mace_core.testing.compiled import merge
from mace_target_arm import Arm
from mace_target_arm.depthwise import (
    DEPTHWISE,
    RowTaps,
    RowWindows,
    arrange_pairs,
    arrange_quads,
    split_weights,
)

KINDS = {"i8": (I8, DType.I8, I8), "u8": (U8, DType.U8, U8), "u8_i8": (U8, DType.I8, I8)}
WINDOWS = [
    RowWindows(kernel, stride, dilation, results)
    for kernel, stride, dilation, results in [
        ((3, 3), 1, 1, 7),
        ((3, 3), 2, 1, 4),
        ((3, 3), 2, 2, 3),
        ((5, 4), 1, 1, 6),
        ((2, 3), 3, 2, 5),
        ((1, 7), 1, 1, 1),
        ((1, 1), 1, 1, 2),
    ]
]


@pytest.mark.parametrize("limit", [0, 1, 127, 128, 255])
def test_two_products_of_summands_fit_sixteen_bits(limit: int) -> None:
    weights = np.random.default_rng(limit).integers(-limit, limit + 1, (20, 3, 3))
    weights[0, 0, 0], weights[1, 2, 1] = limit, -limit
    parts = split_weights(weights)
    assert len(parts) == (3 if limit > 254 else 2 if limit > 127 else 1)
    assert np.array_equal(sum(part.astype(int) for part in parts), weights)
    assert 2 * max(int(np.abs(part.astype(int)).max()) for part in parts) * 128 < 1 << 15


def multiply_pairs(taps: RowTaps, rows: Array, windows: RowWindows) -> Array:
    """What the kernel sums of rows of columns [rows, columns, 16 channels], as its template says."""
    weights = taps.weights[0].astype(int)
    sums = np.zeros((windows.results, 16), int)
    for result in range(windows.results):
        for number, (row, column) in enumerate(taps.places):
            sums[result] += rows[row, result * windows.stride + column] * weights[number]
    return sums


def multiply_quads(taps: RowTaps, rows: Array, windows: RowWindows) -> Array:
    """The same of quads, which begin at even columns."""
    #                       halves, taps, even or odd, channels, quad
    weights = taps.weights[0].astype(int)
    sums = np.zeros((windows.results, 16), int)
    for result in range(windows.results):
        even, odd = divmod(result * windows.stride, 2)
        for number, (row, column) in enumerate(taps.places):
            first = 2 * even + column
            quad = rows[row, first : first + 4].T
            sums[result] += (quad * weights[:, number, odd].reshape(16, 4)).sum(axis=1)
    return sums


@pytest.mark.parametrize("limit", [100, 255])
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@pytest.mark.parametrize(
    ("arrange", "multiply"), [(arrange_pairs, multiply_pairs), (arrange_quads, multiply_quads)]
)
def test_arranged_taps_sum_what_windows_see(
    arrange: Callable[[Array, RowWindows], RowTaps],
    multiply: Callable[[RowTaps, Array, RowWindows], Array],
    windows: RowWindows,
    limit: int,
) -> None:
    rng = np.random.default_rng(limit)
    weights = rng.integers(-limit, limit + 1, (16, *windows.kernel))
    taps = arrange(weights, windows)
    # Two columns more than are copied: a quad is made of four, of which its weights leave out the last.
    rows = rng.integers(-128, 128, (windows.kernel[0], taps.columns + 2, 16))
    expected = np.zeros((windows.results, 16), int)
    for result, row, column in product(range(windows.results), *map(range, windows.kernel)):
        at = result * windows.stride + column * windows.dilation
        expected[result] += rows[row, at] * weights[:, row, column]
    assert np.array_equal(multiply(taps, rows, windows), expected)


def test_pairs_are_whole_behind_unrolled_taps() -> None:
    weights = np.full((16, 3, 3), 5)
    assert len(arrange_pairs(weights, RowWindows((3, 3), 1, 1, 4)).places) == 9
    weights[3, 1, 2] = -200
    split = arrange_pairs(weights, RowWindows((3, 3), 1, 1, 4))
    assert [tuple(place) for place in split.places[9:]] == [(1, 2), (0, 0)]
    assert split.weights[0, 9:].sum() == -73
    assert not arrange_pairs(weights, RowWindows((3, 3), 1, 2, 4)).is_unrolled
    assert len(arrange_pairs(weights, RowWindows((3, 3), 1, 2, 4)).places) % 2 == 0


def name_kernels(graph: Graph) -> dict[str, str]:
    """The kernel of the only node at each level of 64-bit ARM."""
    calls = Arm().lower(graph, "arm64").calls
    return {
        level: " ".join(call.kernel.name for call in calls if call.is_made_at(level))
        for level in (str(known.name) for known in Arm().levels("arm64"))
    }


def test_each_level_has_its_kernel() -> None:
    taken = conv("taken", (1, 5, 6, 20), (20, 3, 3, 1), KINDS["i8"], group=20)
    twice = conv("twice", (1, 5, 6, 20), (40, 3, 3, 1), KINDS["u8"], group=20)
    for graph in (taken, twice, replace(taken, numerics=Numerics.FIXED_POINT)):
        assert name_kernels(graph) == {"dotprod": "conv_depthwise_quads", "neon": "conv_depthwise_pairs"}


@pytest.mark.parametrize("abi", ["arm64", "armhf"])
def test_each_known_level_has_a_candidate(abi: str) -> None:
    for level in Arm().known_levels(abi):
        assert sum(candidate.serves(level) for candidate in DEPTHWISE) == 1, level.name


@pytest.mark.parametrize(
    ("graph", "kernel"),
    [
        (
            conv("wide", (1, 5, 6, 20), (20, 3, 3, 1), (I16, DType.I8, I16), group=20),
            "conv_depthwise_i16_i16",
        ),
        (conv("grouped", (1, 5, 6, 20), (20, 3, 3, 2), KINDS["i8"], group=10), "conv_quantized"),
        (conv("long", (1, 99, 999, 20), (20, 3, 3, 1), KINDS["i8"], group=20, dilations=(40, 1)), ""),
    ],
    ids=lambda value: value.name if isinstance(value, Graph) else value,
)
def test_other_kernels_take_what_these_refuse(graph: Graph, kernel: str) -> None:
    assert set(name_kernels(graph).values()) == {kernel or "conv_depthwise_i8_i8"}


def depthwise(channels: Sequence[int]) -> list[Graph]:
    """All ways through the kernels: whole, half and cut blocks, borders, strides, gaps, multipliers."""
    shapes = [
        ((3, 3), (1, 1), (1, 1)),
        ((3, 3), (2, 2), (1, 1)),
        ((5, 5), (1, 1), (1, 1)),
        ((5, 5), (2, 2), (2, 2)),
        ((2, 2), (3, 3), (1, 1)),
        ((3, 3), (1, 1), (2, 2)),
        ((3, 2), (1, 2), (1, 1)),
        ((1, 7), (1, 1), (1, 1)),
        ((3, 1), (1, 1), (3, 3)),
        ((1, 1), (1, 1), (1, 1)),
        ((4, 4), (3, 1), (1, 1)),
    ]
    graphs = []
    for number, (count, (kernel, strides, dilations)) in enumerate(product(channels, shapes)):
        kind = list(KINDS)[number % 3]
        multiplier = 2 if number % 5 == 4 else 1
        pads = tuple(k * d // 2 for k, d in zip(kernel, dilations, strict=True))
        graphs.append(
            conv(
                f"d{number}_{count}_{kind}",
                (2, 9, 10 + count % 3, count),
                (count * multiplier, *kernel, 1),
                KINDS[kind],
                group=count,
                strides=strides,
                dilations=dilations,
                pads_before=pads,
                pads_after=(1, pads[1]),
            )
        )
    return graphs


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("numerics", [Numerics.SINGLE_ROUNDING, Numerics.FIXED_POINT], ids=str)
@pytest.mark.parametrize("tools", [("gnu", "arm64"), ("zig", "arm64-v8a"), ("gnu", "armhf")], ids="-".join)
def test_convolutions_have_the_bits_of_the_cpu(
    tools: tuple[str, str], numerics: Numerics, tmp_path: Path
) -> None:
    graphs = depthwise((2, 8, 24, 70, 130))
    if numerics is Numerics.FIXED_POINT:
        # That rule has no convolution from uint8 to int8.
        graphs = [graph for graph in graphs if not graph.name.endswith("u8_i8")]
    merged = replace(merge("depthwise", graphs), numerics=numerics)
    assert_equal_on_arm(merged, draw_inputs(merged), tmp_path, tools)


@pytest.mark.slow
def test_a_small_convolution_has_the_bits_of_the_cpu(tmp_path: Path) -> None:
    """A small case of the test above."""
    merged = merge("small", depthwise((24,))[:2])
    assert name_emulated_levels("arm64") == ("i8mm", "fp16fml", "fp16", "dotprod", "neon")
    assert_equal_on_arm(merged, draw_inputs(merged), tmp_path, ("gnu", "arm64"))
