"""Depthwise convolutions by strips of bytes: the bits of the plain kernel, for all ways to fill a block."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated_levels import QUIET
from quantized_graphs import I8, U8, check, conv, inputs_of, storage
from test_depthwise_strips import BORDER, CASES, fill, make_graph

from mace_core.ir import DType, Graph
from mace_core.levels import with_levels
from mace_core.testing.compiled import run_merged
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.isa import X86
from mace_target_cpu.quantized import depthwise_byte_strips
from mace_target_cpu.quantized.depthwise_byte_strips import choose_pitch, fill_blocks

VNNI, SSE2 = (next(level for level in X86 if level.name == name) for name in ("avx512vnni", "sse2"))
NEEDS_VNNI = pytest.mark.skipif(not levels_here([VNNI]), reason="the processor has no AVX-512 with VNNI")

CHANNELS = (2, 5, 8, 12, 16, 24, 32, 48, 64, 72, 88, 96, 130)


@pytest.fixture
def _all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take strips for all shapes, also where windows that are read in place are faster."""
    monkeypatch.setattr(depthwise_byte_strips, "FEW_CHANNELS", 1 << 16)


def list_graphs() -> list[Graph]:
    """Build the cases of the strips of AVX2, and lines of other numbers of channels and pixels."""
    graphs = [make_graph(name, kind) for name in CASES for kind in (DType.I8, DType.U8)]
    graphs += [
        conv(f"channels{c}", (1, 5, 11, c), (c, 3, 3, 1), (I8, DType.I8, I8), group=c, **BORDER)
        for c in CHANNELS
    ]
    narrow = storage(DType.U8, 0.3, 0)
    kinds = (U8, DType.I8, narrow)
    graphs.append(conv("narrow", (1, 6, 5, 16), (16, 3, 3, 1), kinds, group=16, strides=(1, 2), **BORDER))
    return graphs


def list_kernels(graph: Graph) -> set[str]:
    return {call.kernel.name for call in with_levels(Cpu(), [VNNI]).lower(graph).calls}


def compare(graphs: list[Graph], inputs: dict[str, dict[str, np.ndarray]], folder: Path) -> None:
    actual = run_merged(Cpu(), graphs, folder / "vnni", inputs, [VNNI])
    expected = run_merged(Cpu(), graphs, folder / "sse2", inputs, [SSE2])
    for graph in graphs:
        for name in graph.outputs:
            np.testing.assert_array_equal(actual[graph.name][name], expected[graph.name][name], graph.name)


@NEEDS_VNNI
@pytest.mark.slow
@pytest.mark.usefixtures("_all_shapes")
@pytest.mark.parametrize("strip_bytes", [1, 1 << 15])
def test_strips_of_bytes_give_the_bits_of_the_plain_kernel(
    strip_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depthwise_byte_strips, "STRIP_BYTES", strip_bytes)
    graphs = list_graphs()
    for graph in graphs:
        # Windows of 64 taps whose weights need 9 bits have more summands than a kernel of bytes has slots.
        if graph.name != "largest_u8":
            assert list_kernels(graph) == {"conv_depthwise_byte_strips"}, graph.name
    compare(graphs, {graph.name: inputs_of(graph) for graph in graphs}, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("_all_shapes")
@pytest.mark.skipif("avx512vnni" not in QUIET, reason="the processor has no AVX2")
def test_strips_of_bytes_round_the_exact_sum(tmp_path: Path) -> None:
    check(list_graphs(), tmp_path, [QUIET["avx512vnni"]])


@NEEDS_VNNI
@pytest.mark.slow
def test_the_largest_sums_of_bytes_are_exact(tmp_path: Path) -> None:
    cases = [(DType.I8, w, x) for w in (-128, 127) for x in (-128, 127)]
    cases += [(DType.U8, w, x) for w in (0, 255) for x in (0, 255)]
    graphs, inputs = [], {}
    for number, (kind, weight, x) in enumerate(cases):
        graph, arrays = fill(make_graph("close8", kind), weight, x)
        graphs.append(graph.with_name(f"g{number}"))
        inputs[f"g{number}"] = arrays
    compare(graphs, inputs, tmp_path)


@pytest.mark.parametrize(
    ("channels", "stride", "kernel", "expected"),
    [
        (8, 1, 3, "conv_depthwise_byte_strips"),
        (16, 2, 3, "conv_depthwise_byte_strips"),
        (64, 1, 3, "conv_depthwise_byte_strips"),
        (64, 2, 3, "conv_depthwise_bytes_i8"),
        (64, 1, 5, "conv_depthwise_bytes_i8"),
    ],
)
def test_strips_of_bytes_are_taken_where_they_are_faster(
    channels: int, stride: int, kernel: int, expected: str
) -> None:
    windows = {"strides": (stride, stride), **BORDER}
    filters = (channels, kernel, kernel, 1)
    graph = conv("shape", (1, 12, 12, channels), filters, (I8, DType.I8, I8), group=channels, **windows)
    assert list_kernels(graph) == {expected}


@pytest.mark.parametrize(("channels", "pitch"), [(1, 8), (8, 8), (9, 16), (24, 32), (33, 64), (64, 64)])
def test_the_pitch_is_a_power_of_two(channels: int, pitch: int) -> None:
    assert choose_pitch(channels) == pitch


def test_channels_behind_the_last_block_are_repeated() -> None:
    filled = fill_blocks(np.arange(1, 76))
    assert filled.shape == (128,)
    assert filled[:64].tolist() == list(range(1, 65))
    for start in range(64, 128, 16):
        assert filled[start : start + 16].tolist() == [*range(65, 76), 0, 0, 0, 0, 0]
