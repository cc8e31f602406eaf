"""Convolutions and products of bytes by vrmpy have the bits of the CPU's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from byte_graphs import draw
from emulated import assert_equal

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.testing.compiled import merge

I8 = Storage(DType.I8, Quant.of(0.05, 3))
U8 = Storage(DType.U8, Quant.of(0.04, 120))
I16 = Storage(DType.I16, Quant.of(0.001))
WINDOW = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
POINT = {**WINDOW, "pads_before": (0, 0), "pads_after": (0, 0)}


def convolve(
    name: str,
    shape: tuple[int, ...],
    filters: tuple[int, ...],
    x: Storage,
    y: Storage | None,
    **attrs: object,
) -> Graph:
    """Return a convolution with random weights: int8 with a scale for each filter, uint8 with one for all."""
    rng = np.random.default_rng(len(name))
    builder = Builder(name)
    assert x.quant is not None
    if x.dtype is DType.U8:
        w = builder.weight("w", rng.integers(0, 256, filters).astype(np.uint8), Quant.of(0.01, 131))
        scale: tuple[float, ...] = (0.01,) * filters[0]
    else:
        scale = tuple(rng.uniform(0.002, 0.02, filters[0]).tolist())
        values = rng.integers(-127, 128, filters).astype(np.int8)
        w = builder.weight("w", values, Quant(scale, (0,) * filters[0], 0))
    bias_quant = Quant(tuple(s * x.quant.scale[0] for s in scale), (0,) * filters[0], 0)
    b = builder.weight("b", rng.integers(-2000, 2000, filters[0]).astype(np.int32), bias_quant)
    operands = [builder.input("x", x.dtype, shape, x.quant), w, b]
    outputs = [builder.reserve_output("y", y)]
    return builder.finish(builder.add("Conv", operands, {**WINDOW, **attrs}, outputs=outputs))


OUT = Storage(DType.I8, Quant.of(1.5, -7))
U8_OUT = Storage(DType.U8, Quant.of(3.0, 99))
CASES = (
    convolve("strip", (1, 9, 7, 32), (40, 3, 3, 32), I8, OUT),
    convolve("strip_u8", (1, 9, 7, 12), (70, 3, 3, 12), U8, Storage(DType.U8, Quant.of(3.0, 99))),
    convolve("first", (1, 11, 13, 3), (32, 3, 3, 3), U8, Storage(DType.U8, Quant.of(1.0, 3)), strides=(2, 2)),
    convolve("point", (1, 5, 5, 64), (96, 1, 1, 64), I8, OUT, **POINT),
    convolve("wide", (1, 3, 3, 36), (300, 1, 1, 36), I8, OUT, **POINT),
    convolve("odd", (1, 4, 5, 7), (130, 1, 1, 7), I8, OUT, **POINT),
    convolve("grouped", (1, 6, 6, 24), (36, 3, 3, 8), I8, OUT, group=3),
    convolve("thin", (1, 6, 6, 6), (9, 3, 3, 2), I8, OUT, group=3),
    convolve("dilated", (1, 8, 8, 8), (33, 3, 3, 8), I8, OUT, dilations=(2, 2)),
    convolve("depthwise_u8", (1, 9, 6, 144), (144, 3, 3, 1), U8, U8_OUT, group=144, strides=(2, 2)),
    convolve("depthwise_5", (1, 5, 6, 300), (300, 5, 5, 1), I8, OUT, group=300),
    convolve("depthwise", (1, 6, 6, 33), (33, 3, 3, 1), I8, OUT, group=33),
    convolve("halves", (1, 5, 4, 16), (70, 3, 3, 16), I16, Storage(DType.I16, Quant.of(0.01))),
    convolve("to_halves", (1, 5, 4, 16), (70, 3, 3, 16), I8, Storage(DType.I16, Quant.of(0.01))),
    convolve(
        "to_words", (1, 2, 1, 20), (65, 1, 1, 20), U8, Storage(DType.I32, Quant.of(0.04 * 0.01)), **POINT
    ),
    convolve("single", (1, 1, 1, 128), (10, 1, 1, 128), I8, OUT, **POINT),
)


@pytest.mark.slow
@pytest.mark.emulator
def test_products_have_the_bits_of_the_cpu(tmp_path: Path) -> None:
    graph = merge("products", CASES)
    assert_equal(graph, draw(graph), tmp_path, ("hvx", "plain"))
