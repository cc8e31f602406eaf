"""Convolutions over quantized tensors against the exact meaning: real numbers, rounded once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from quantized_graphs import I8, I16, U8, WINDOW, check, conv, graph, storage

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Quant
from mace_core.levels import Level, with_levels
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.isa import X86

pytestmark = pytest.mark.slow


def test_convolutions(tmp_path: Path) -> None:
    graphs = [
        conv("square", (1, 9, 7, 5), (19, 3, 3, 5), (I8, DType.I8, I8)),
        conv(
            "pixel", (2, 5, 6, 12), (33, 1, 1, 12), (I8, DType.I8, I8), pads_before=(0, 0), pads_after=(0, 0)
        ),
        conv("legacy", (1, 9, 8, 6), (17, 3, 3, 6), (U8, DType.U8, storage(DType.U8, 0.3, 100))),
        conv("strided", (1, 12, 12, 3), (8, 5, 5, 3), (U8, DType.I8, I8), strides=(2, 2)),
        conv("groups", (1, 8, 8, 8), (12, 3, 3, 4), (I8, DType.I8, U8), group=2),
        conv("deep", (1, 8, 8, 21), (21, 3, 3, 1), (I8, DType.I8, I8), group=21),
        conv(
            "deep_legacy",
            (1, 8, 8, 16),
            (16, 3, 3, 1),
            (U8, DType.U8, storage(DType.U8, 0.0437, 120)),
            group=16,
        ),
        conv("relu", (1, 8, 8, 4), (8, 3, 3, 4), (I8, DType.I8, I8), low=0.0, high=6.0),
        conv("floats", (1, 8, 8, 4), (8, 3, 3, 4), (I8, DType.I8, None)),
        conv("wide", (1, 8, 8, 4), (8, 3, 3, 4), (I8, DType.I8, I16)),
        conv("sixteen", (1, 9, 7, 5), (19, 3, 3, 5), (I16, DType.I8, I16), strides=(2, 1)),
        conv(
            "sixteen_pixel",
            (2, 5, 6, 12),
            (33, 1, 1, 12),
            (I16, DType.I8, I16),
            pads_before=(0, 0),
            pads_after=(0, 0),
            high=20.0,
        ),
        conv("sixteen_groups", (1, 8, 8, 8), (12, 3, 3, 4), (I16, DType.I8, I8), group=2),
        conv("sixteen_deep", (1, 8, 8, 21), (21, 3, 3, 1), (I16, DType.I8, I16), group=21),
    ]
    kernels = check(graphs, tmp_path)
    assert all(name.startswith("conv_") and " " not in name for name in kernels.values()), kernels


@pytest.mark.parametrize("level", levels_here(X86), ids=lambda level: str(level.name))
def test_steps_beyond_32_bits_become_the_bound(level: Level, tmp_path: Path) -> None:
    tiny = storage(DType.I8, 1e-7, 5)
    point = {"pads_before": (0, 0), "pads_after": (0, 0)}
    graphs = [
        conv(f"filters{n}", (1, 5, 6, 16), (n, 1, 1, 16), (I8, DType.I8, tiny), **point)
        for n in (9, 21, 40, 77)
    ]
    graphs.append(conv("single", (1, 1, 1, 16), (40, 1, 1, 16), (I8, DType.I8, tiny), high=1e-5, **point))
    graphs.append(
        conv("bounded", (1, 5, 6, 16), (40, 1, 1, 16), (I8, DType.I8, I8), low=-0.5, high=2.0, **point)
    )
    # Vectors of filters of which some have steps that fit.
    mixed = conv("mixed", (1, 5, 6, 16), (77, 1, 1, 16), (I8, DType.I8, storage(DType.I8, 0.001)), **point)
    scales = mixed.tensors["w"].quant
    assert scales is not None
    large = replace(scales, scale=(*scales.scale[:-3], 900.0, 0.5, 40.0))
    tensors = {**mixed.tensors, "w": replace(mixed.tensors["w"], quant=large)}
    bias = replace(mixed.tensors["b"], quant=replace(large, scale=tuple(s * 0.05 for s in large.scale)))
    graphs.append(replace(mixed, tensors={**tensors, "b": bias}))
    check(graphs, tmp_path, [level])


UNEVEN = {"strides": (2, 1), "pads_before": (1, 2), "pads_after": (2, 0), "dilations": (1, 2)}
CUBE = {
    "strides": (1, 2, 2),
    "pads_before": (1, 0, 2),
    "pads_after": (2, 2, 1),
    "dilations": (2, 1, 2),
}
LINE = {"strides": (2,), "pads_before": (3,), "pads_after": (1,), "dilations": (2,)}
OUTSIDE = {"strides": (3, 3), "pads_before": (4, 4), "pads_after": (4, 4), "dilations": (1, 1)}


def windows() -> list[tuple[str, tuple[int, ...], tuple[int, ...], Mapping[str, object]]]:
    """Sizes on either side of four vectors of eight channels, and windows that differ along every axis."""
    return [
        ("plane", (2, 9, 8, 77), (3, 2), UNEVEN),
        ("volume", (2, 5, 6, 7, 33), (2, 3, 2), CUBE),
        ("sequence", (3, 20, 32), (4,), LINE),
        ("one", (1, 5, 4, 1), (2, 3), UNEVEN),
        ("outside", (1, 3, 4, 9), (3, 3), OUTSIDE),
    ]


@pytest.mark.exhaustive
def test_windows_that_differ_along_every_axis(tmp_path: Path) -> None:
    graphs = []
    for (name, shape, kernel, how), (x, y) in itertools.product(windows(), ((I8, I8), (U8, I16), (I16, U8))):
        kinds, channels, stem = (x, DType.I8, y), shape[-1], f"{name}_{x.dtype.value}"
        graphs.append(conv(f"{stem}_deep", shape, (channels, *kernel, 1), kinds, group=channels, **how))
        graphs.append(conv(f"{stem}_full", shape, (19, *kernel, channels), kinds, **how))
        pool = {**how, "kernel": kernel}
        for count_pad in (False, True):
            attrs = {**pool, "count_pad": count_pad, "ceil": True}
            graphs.append(graph(f"{stem}_mean{count_pad}", "AveragePool", [(x, shape)], attrs, y))
    kernels = check(graphs, tmp_path, levels_here(Cpu().levels("host"))[:1])
    assert not [name for name in kernels.values() if "dequantize" in name]


VNNI = [level for level in levels_here(X86) if level.dot == "vnni" and not level.byte_tiles]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("level", VNNI, ids=lambda level: str(level.name))
def test_lines_of_depthwise_windows_end_where_windows_reach_outside(level: Level, tmp_path: Path) -> None:
    border = {"pads_before": (1, 1), "pads_after": (1, 1)}
    graphs = []
    for channels, size, how in (
        (100, (7, 20), {**border}),
        (32, (6, 9), {**border, "strides": (2, 2)}),
        (70, (9, 8), {"pads_before": (2, 0), "pads_after": (0, 3), "strides": (1, 3)}),
        (5, (9, 11), {"pads_before": (2, 2), "pads_after": (2, 2), "dilations": (2, 2)}),
        (64, (4, 3), {"pads_before": (0, 0), "pads_after": (0, 0)}),
    ):
        # uint8 weights less their zero point take 9 bits, and so more than nine slots.
        for kinds in ((I8, DType.I8, U8), (U8, DType.U8, I8)):
            name = f"{kinds[1].value}_{channels}"
            graphs.append(conv(name, (2, *size, channels), (channels, 3, 3, 1), kinds, group=channels, **how))
    check(graphs, tmp_path, [level])
    target = with_levels(Cpu(), [level])
    kernels = {call.kernel.name for g in graphs for call in target.lower(g).calls}
    strips = {"conv_depthwise_byte_strips"} if level.lanes == 16 else set()
    assert kernels == {"conv_depthwise_bytes_i8", "conv_depthwise_bytes_u8"} | strips


@pytest.mark.exhaustive
def test_a_channel_without_weight_and_a_bias_of_all_bits_is_no_reason_for_floats(tmp_path: Path) -> None:
    new = Builder("dead")
    w = new.weight("w", np.full((2, 1, 1, 4), 127, np.int8), Quant((0.01, 1e-15), (0, 0), 0))
    b = new.weight("b", np.array([50, -(2**31)], np.int32), Quant((0.0005, 5e-17), (0, 0), 0))
    how = {**WINDOW, "pads_before": (0, 0), "pads_after": (0, 0)}
    x = new.input("x", DType.I8, (1, 3, 3, 4), I8.quant)
    assert check(
        [new.finish(new.add("Conv", [x, w, b], how, outputs=[new.reserve_output("y", I8)]))], tmp_path
    ) == {"dead": "conv_quantized"}


@pytest.mark.exhaustive
def test_transposed_convolutions(tmp_path: Path) -> None:
    how = {"op": "ConvTranspose", "strides": (2, 2), "output_padding": (0, 0)}
    graphs = [
        conv("twice", (1, 5, 6, 5), (9, 4, 4, 5), (I8, DType.I8, I8), **how),
        conv(
            "legacy", (2, 4, 5, 6), (7, 3, 3, 6), (U8, DType.U8, storage(DType.U8, 0.3, 100)), **how, high=9.0
        ),
        conv("groups", (1, 4, 4, 6), (8, 3, 3, 3), (I8, DType.I8, U8), **how, group=2),
        conv("sixteen", (1, 4, 4, 5), (6, 3, 3, 5), (I16, DType.I8, I16), **how),
    ]
    kernels = check(graphs, tmp_path)
    assert all(name.startswith("conv_") and "quantize_" not in name for name in kernels.values()), kernels
