"""Softmax of bytes has the bits of the CPU's, for each rule of `numerics`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from byte_graphs import draw, name_templates
from emulated import assert_equal

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.lowering import Lowering, Refused
from mace_core.numerics import Numerics
from mace_core.testing.compiled import merge
from mace_target_hexagon.softmax import lower_softmax

I8_PART, U8_PART = Storage(DType.I8, Quant.of(1 / 256, -128)), Storage(DType.U8, Quant.of(1 / 256, 0))


def share(name: str, shape: tuple[int, int], scale: float, y: Storage, dtype: DType | None = None) -> Graph:
    """Return a softmax of rows, whose elements have a scale."""
    builder = Builder(name)
    dtype = dtype or y.dtype
    operands = [builder.input("x", dtype, shape, Quant.of(scale, 3))]
    return builder.finish(
        builder.add("Softmax", operands, {"axis": -1}, outputs=[builder.reserve_output("y", y)])
    )


CASES = (
    share("classes", (30, 13), 0.14, I8_PART),
    share("classes_u8", (9, 20), 0.05, U8_PART),
    share("image_net", (2, 1001), 0.09, U8_PART),
    share("attention", (70, 64), 0.02, I8_PART),
    share("register", (3, 128), 0.3, U8_PART),
    share("steep", (4, 300), 2.5, I8_PART),
    share("flat", (4, 256), 1e-4, I8_PART),
    share("pairs", (256, 12), 0.03, U8_PART),
)
OTHERS = (
    share("mixed", (4, 77), 0.1, I8_PART, DType.U8),
    share("fine", (9, 33), 0.1, Storage(DType.U8, Quant.of(1e-4, 7))),
    share("coarse", (4, 33), 0.1, Storage(DType.I8, Quant.of(0.3, -20))),
    share("offset", (9, 140), 0.01, Storage(DType.I8, Quant.of(1 / 512, 0))),
)


def draw_rows(graph: Graph) -> dict[str, Array]:
    """Return random rows, the first of which has equal elements and the last both ends of its type."""
    inputs = draw(graph)
    for array in inputs.values():
        array[0] = array[0, 0]
        array[-1, ::2], array[-1, 1::2] = np.iinfo(array.dtype).min, np.iinfo(array.dtype).max
    return inputs


@pytest.mark.parametrize("graph", [*CASES, *OTHERS], ids=lambda graph: graph.name)
def test_vectors_are_chosen(graph: Graph) -> None:
    assert name_templates(graph) == {"softmax_bytes.c.in"}
    if graph in CASES:
        assert name_templates(replace(graph, numerics=Numerics.FIXED_POINT)) == {"softmax_bytes.c.in"}


def test_few_elements_stay_with_plain_c() -> None:
    assert name_templates(share("ten", (1, 10), 0.1, I8_PART)) == {"softmax_quantized.c.in"}
    assert name_templates(share("three", (50, 3), 0.1, I8_PART)) == {"softmax_quantized.c.in"}


def test_a_result_of_tiny_steps_is_refused() -> None:
    graph = share("tiny", (2, 40), 0.1, Storage(DType.I8, Quant.of(1e-30, 0)))
    with pytest.raises(Refused, match="too small"):
        lower_softmax(graph.nodes[0], Lowering(graph))


@pytest.mark.slow
@pytest.mark.emulator
def test_softmax_has_the_bits_of_the_cpu(tmp_path: Path) -> None:
    graph = merge("softmax", (*CASES, *OTHERS))
    assert_equal(graph, draw_rows(graph), tmp_path, flags=("-O1", "-s"))


@pytest.mark.slow
@pytest.mark.emulator
def test_softmax_has_the_bits_of_the_interpreter(tmp_path: Path) -> None:
    graph = replace(merge("softmax", CASES), numerics=Numerics.FIXED_POINT)
    assert_equal(graph, draw_rows(graph), tmp_path, flags=("-O1", "-s"))
