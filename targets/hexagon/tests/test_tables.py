"""Tables, maxima, quantized floats and copied bytes have the bits of the CPU's on HVX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated import assert_equal

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.testing.compiled import merge

I8 = Storage(DType.I8, Quant.of(0.05, 3))
U8 = Storage(DType.U8, Quant.of(0.04, 120))


def bend(name: str, op: str, x: Storage, elements: int) -> Graph:
    """Return a function of one input, which becomes a table."""
    builder = Builder(name)
    y = builder.reserve_output("y", Storage(x.dtype, Quant.of(0.01, 5)))
    return builder.finish(
        builder.add(op, [builder.input("x", x.dtype, (1, elements), x.quant)], {}, outputs=[y])
    )


def quantize(name: str, y: Storage, elements: int) -> Graph:
    """Return floats stored as bytes."""
    builder = Builder(name)
    x = builder.input("x", DType.F32, (1, elements))
    return builder.finish(builder.add("Quantize", [x], {}, outputs=[builder.reserve_output("y", y)]))


def shuffle(name: str, channels: int) -> Graph:
    """Return channels of two halves alternating, joined to what they were."""
    builder = Builder(name)
    x = builder.input("x", DType.U8, (1, 5, 7, channels), U8.quant)
    halves = builder.add("Reshape", [x], {"shape": (1, 5, 7, 2, channels // 2)})
    turned = builder.add("Transpose", halves, {"perm": (0, 1, 2, 4, 3)})
    flat = builder.add("Reshape", turned, {"shape": (1, 5, 7, channels)})
    return builder.finish(builder.add("Concat", [x, *flat], {"axis": 3}))


def pool(name: str, x: Storage, channels: int, size: int) -> Graph:
    """Return the maxima of windows, every second one."""
    builder = Builder(name)
    attrs = {
        "kernel": (size, size),
        "strides": (2, 2),
        "pads_before": (1, 0),
        "pads_after": (0, 1),
        "dilations": (1, 1),
    }
    return builder.finish(
        builder.add("MaxPool", [builder.input("x", x.dtype, (1, 9, 8, channels), x.quant)], attrs)
    )


CASES = (
    pool("pool", U8, 24, 3),
    pool("pool_wide", I8, 130, 2),
    bend("table", "Sigmoid", I8, 700),
    bend("table_u8", "Tanh", U8, 61),
    quantize("floats", I8, 1000),
    quantize("floats_u8", U8, 4096),
    quantize("coarse", Storage(DType.U8, Quant.of(0.5, 128)), 2048),
    quantize("power", Storage(DType.I8, Quant.of(0.25, 0)), 256),
    quantize("tiny", Storage(DType.I8, Quant.of(2e-38, 0)), 128),
    shuffle("shuffle", 58),
    shuffle("shuffle_wide", 300),
)

SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, -3e38, 0.125, 0.375, -0.125, 1e-38)


def draw(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return random elements; those of floats include ties, subnormal numbers, infinities and NaN."""
    if not dtype.is_float:
        limits = np.iinfo(dtype.numpy)
        return rng.integers(limits.min, limits.max + 1, shape).astype(dtype.numpy)
    values = rng.standard_normal(shape) * np.exp(rng.uniform(-6, 6, shape))
    ties = np.rint(values * 8) / 8 + 0.025
    chosen = np.where(rng.integers(0, 2, shape) == 0, values, ties).astype(np.float32)
    chosen.reshape(-1)[: len(SPECIAL)] = SPECIAL
    return chosen


@pytest.mark.slow
@pytest.mark.emulator
def test_tables_and_copies_have_the_bits_of_the_cpu(tmp_path: Path) -> None:
    graph = merge("tables", CASES)
    rng = np.random.default_rng(1)
    inputs = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        inputs[name] = draw(tensor.dtype, tensor.shape, rng)
    assert_equal(graph, inputs, tmp_path, ("hvx", "plain"))
