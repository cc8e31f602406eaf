"""Products of elements of 16 bits with bytes have the bits of the CPU's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from emulated import assert_equal
from test_dsp_products import I16, POINT, convolve

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.testing.compiled import merge

HALVES = Storage(DType.I16, Quant.of(0.01))
BYTES = Storage(DType.I8, Quant.of(1.5, -7))
FLAGS = ("-O1", "-s")


def multiply(
    name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], operands: Sequence[Storage], y: Storage
) -> Graph:
    """Return a product of an input with a second one, or with weights of int8 where one operand is stored."""
    builder = Builder(name)
    left, right = shapes
    a = builder.input("a", operands[0].dtype, left, operands[0].quant)
    if len(operands) == 2:
        b = builder.input("b", operands[1].dtype, right, operands[1].quant)
    else:
        values = np.random.default_rng(2).integers(-127, 128, right).astype(np.int8)
        b = builder.weight("b", values, Quant.of(0.01))
    return builder.finish(builder.add("MatMul", [a, b], {}, outputs=[builder.reserve_output("y", y)]))


I8 = Storage(DType.I8, Quant.of(0.05, -128))
U8 = Storage(DType.U8, Quant.of(0.04, 255))
CONVOLUTIONS = (
    convolve("rows_and_registers", (1, 5, 4, 16), (130, 3, 3, 16), I16, HALVES),
    convolve("odd_depth", (1, 3, 5, 13), (33, 1, 1, 13), I16, BYTES, **POINT),
    convolve("deep", (1, 1, 3, 501), (70, 1, 1, 501), I16, HALVES, **POINT),
    convolve("single", (1, 1, 1, 65), (5, 1, 1, 65), I16, BYTES, **POINT),
    convolve("grouped", (1, 4, 4, 18), (36, 3, 3, 6), I16, HALVES, group=3),
    convolve("to_floats", (1, 2, 3, 64), (96, 1, 1, 64), I16, Storage(DType.F32, None), **POINT),
)
CONSTANTS = (
    multiply("constant", ((2, 7, 129), (129, 200)), (I16,), HALVES),
    multiply("constant_row", ((1, 256), (256, 31)), (I16,), BYTES),
)
COMPUTED = (
    multiply("computed", ((3, 13, 33), (3, 33, 70)), (I8, U8), BYTES),
    multiply("computed_u8", ((5, 128), (128, 32)), (U8, U8), BYTES),
    multiply("computed_i8", ((2, 1, 7), (2, 7, 129)), (I8, I8), HALVES),
    multiply("computed_thin", ((1, 20, 130), (1, 130, 1)), (U8, I8), BYTES),
)


def draw(graph: Graph, extremes: bool) -> dict[str, Array]:
    """Return inputs: any elements of their types, or the ends of those alone."""
    rng = np.random.default_rng(1)
    inputs = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        limits = np.iinfo(tensor.dtype.numpy)
        ends = rng.choice([limits.min, limits.max, 0, -1 if limits.min else 1], tensor.shape)
        values = rng.integers(limits.min, limits.max + 1, tensor.shape)
        inputs[name] = (ends if extremes else values).astype(tensor.dtype.numpy)
    return inputs


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("extremes", [False, True], ids=["random", "extremes"])
def test_products_have_the_bits_of_the_cpu(tmp_path: Path, extremes: bool) -> None:
    graph = merge("halves", (*CONVOLUTIONS, *CONSTANTS, *COMPUTED))
    levels = ("hvx",) if extremes else ("hvx", "plain")
    assert_equal(graph, draw(graph, extremes), tmp_path, levels, FLAGS)
