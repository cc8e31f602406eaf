"""Depthwise convolutions by strips: the same bits as the plain kernel, at the edges of what they are written for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from quantized_graphs import I8, I16, U8, check, conv, inputs_of, storage

from mace_core.ir import Array, DType, Graph, Storage
from mace_core.levels import with_levels
from mace_core.numerics import Numerics
from mace_core.program import Arg
from mace_core.testing.compiled import run_merged
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.isa import X86
from mace_target_cpu.quantized import depthwise_strips
from mace_target_cpu.quantized.depthwise_strips import BLOCK, cut_strips

AVX2, SSE2 = (next(level for level in X86 if level.name == name) for name in ("avx2", "sse2"))
NEEDS_AVX2 = pytest.mark.skipif(not levels_here([AVX2]), reason="the processor has no AVX2")

Kinds = tuple[Storage, DType, Storage]

BORDER = {"pads_before": (1, 1), "pads_after": (1, 1)}

CASES: Mapping[str, tuple[tuple[int, ...], tuple[int, int], Mapping[str, tuple[int, int]]]] = {
    "block": ((2, 7, 20, 32), (3, 3), BORDER),
    "overlap": ((1, 7, 9, 77), (3, 3), {**BORDER, "strides": (2, 2)}),
    "close8": ((2, 6, 11, 8), (3, 3), BORDER),
    "close16": ((1, 9, 9, 16), (3, 3), {**BORDER, "strides": (2, 2)}),
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
    actual = run_merged(Cpu(), graphs, tmp_path / "avx2", inputs, [AVX2])
    expected = run_merged(Cpu(), graphs, tmp_path / "sse2", inputs, [SSE2])
    for graph in graphs:
        for name in graph.outputs:
            np.testing.assert_array_equal(actual[graph.name][name], expected[graph.name][name], graph.name)


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
    actual = run_merged(Cpu(), graphs, tmp_path / "avx2", inputs, [AVX2])
    expected = run_merged(Cpu(), graphs, tmp_path / "sse2", inputs, [SSE2])
    for graph in graphs:
        for name in graph.outputs:
            np.testing.assert_array_equal(actual[graph.name][name], expected[graph.name][name], graph.name)


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
