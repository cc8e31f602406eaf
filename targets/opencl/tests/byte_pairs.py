"""Depthwise convolutions of bytes and pointwise ones behind them, for tests of their joint kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Shape, Storage
from mace_core.tuning import Tuning, TuningEntry


@dataclass(frozen=True)
class Block:
    """A depthwise convolution of bytes, and a pointwise one.

    kernel: sides of the window.  zero: of the pointwise weights.  read: type of the input.  dtype: of what
    passes between the two, and of the result.
    """

    name: str
    x: Shape
    kernel: Shape
    columns: int
    stride: int = 1
    dilation: int = 1
    before: int = 1
    after: int = 1
    zero: int = 0
    read: DType = DType.U8
    dtype: DType = DType.U8
    is_residual: bool = False


BLOCKS = (
    Block("plain", (1, 16, 16, 32), (3, 3), 64),
    Block("strided", (2, 23, 11, 20), (3, 3), 36, 2, 1, 0, 1, 131, is_residual=True),
    Block("signed", (1, 10, 9, 52), (3, 3), 132, 1, 2, 0, 0, read=DType.I8, dtype=DType.I8),
    Block("wide", (1, 9, 8, 16), (5, 5), 16, 1, 1, 2, 2, 3, DType.I8, DType.U8),
    Block("line", (3, 40, 24), (3,), 40, zero=255, dtype=DType.I8),
    Block("narrow", (1, 6, 5, 36), (3, 3), 12, read=DType.I16),
)
"""Depths and columns that fill no tile, weights with a zero point, and each pair of types."""

NAMES = [block.name for block in BLOCKS]


def build_block(block: Block) -> Graph:
    builder, rng = Builder(block.name), np.random.default_rng(0)
    channels, axes = block.x[-1], len(block.kernel)

    def weigh(shape: Shape, zero: int = 0) -> str:
        if zero:
            values: Array = rng.integers(0, 256, shape).astype(np.uint8)
            return builder.weight("w", values, Quant.of(0.004, zero))
        scales = tuple(float(scale) for scale in rng.uniform(0.001, 0.01, shape[0]))
        values = rng.integers(-128, 128, shape).astype(np.int8)
        return builder.weight("w", values, Quant(scales, (0,) * shape[0], 0))

    def fit(dtype: DType, scale: float, zero: int) -> Storage:
        if dtype is DType.I16:
            return Storage(dtype, Quant.of(scale / 64))
        return Storage(dtype, Quant.of(scale, zero - 128 if dtype is DType.I8 else zero))

    read = fit(block.read, 0.02, 119)
    x = builder.input("x", read.dtype, block.x, read.quant)
    attrs = {
        "strides": (block.stride,) * axes,
        "pads_before": (block.before,) * axes,
        "pads_after": (block.after,) * axes,
        "dilations": (block.dilation,) * axes,
    }
    middle = builder.reserve_output("middle", fit(block.dtype, 0.03, 131))
    operands = [x, weigh((channels, *block.kernel, 1)), _weigh_bias(builder, channels)]
    depthwise = {**attrs, "group": channels, "low": -3.0, "high": 3.5}
    y = builder.add("Conv", operands, depthwise, outputs=[middle])[0]
    points = {"strides": (1,) * axes, "pads_before": (0,) * axes, "pads_after": (0,) * axes}
    operands = [y, weigh((block.columns, *(1,) * axes, channels), block.zero)]
    points = {**points, "dilations": (1,) * axes}
    result = builder.reserve_output("result", fit(block.dtype, 0.08, 120))
    y = builder.add("Conv", operands, points, outputs=[result])[0]
    if block.is_residual:
        rest = builder.input("rest", DType.U8, builder.tensors[y].shape, Quant.of(0.05, 128))
        total = builder.reserve_output("total", Storage(DType.U8, Quant.of(0.1, 100)))
        y = builder.add("Add", [y, rest], {}, outputs=[total])[0]
    return builder.finish([y])


def _weigh_bias(builder: Builder, channels: int) -> str:
    values = np.random.default_rng(1).integers(-9999, 9999, channels).astype(np.int32)
    return builder.weight("b", values, Quant.of(0.0001))


def ask(graph: Graph, candidate: str = "depthwise") -> Tuning:
    """Return a tuning file that asks for a candidate at each pointwise convolution."""
    nodes = [n.name for n in graph.nodes if n.op.name == "Conv" and graph.weights[n.inputs[1]].shape[-1] > 1]
    return Tuning(Path("t.yml"), tuple(TuningEntry(candidate, 1, node=name) for name in nodes))
