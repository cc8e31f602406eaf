"""Products, maxima and minima of bytes have the bits of the CPU's, broadcast or not, for each rule."""

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
from mace_target_hexagon.binary import convert_every_byte, lower_product

I8, U8 = Storage(DType.I8, Quant.of(0.05, -3)), Storage(DType.U8, Quant.of(0.04, 120))
GATE = Storage(DType.U8, Quant.of(1 / 256, 0))
SIGNED_GATE = Storage(DType.I8, Quant.of(1 / 256, -128))
TO_I8, TO_U8 = Storage(DType.I8, Quant.of(0.031, 5)), Storage(DType.U8, Quant.of(0.033, 90))
Storages = tuple[Storage, Storage, Storage]
Shape = tuple[int, ...]


def combine(name: str, op: str, shapes: tuple[Shape, Shape], storages: Storages) -> Graph:
    """Return an op of two inputs."""
    builder = Builder(name)
    x, y, z = storages
    operands = [
        builder.input(n, storage.dtype, shape, storage.quant)
        for n, storage, shape in zip("xy", (x, y), shapes, strict=True)
    ]
    return builder.finish(builder.add(op, operands, {}, outputs=[builder.reserve_output("z", z)]))


EVERY = ((256, 1), (1, 256))
"""All pairs of bytes, of which each operand repeats."""

SAME, OTHER = ((1, 70, 37),) * 2, ((1, 9, 7, 24), (1, 1, 1, 24))
PRODUCTS = (
    combine("pairs", "Mul", EVERY, (I8, I8, TO_I8)),
    combine("pairs_u8", "Mul", EVERY, (U8, U8, TO_U8)),
    combine("gate", "Mul", OTHER, (U8, GATE, Storage(DType.U8, Quant.of(0.04, 120)))),
    combine("gate_i8", "Mul", ((1, 5, 5, 300), (1, 1, 1, 300)), (I8, SIGNED_GATE, I8)),
    combine("mixed", "Mul", SAME, (U8, I8, TO_U8)),
    combine("pixels", "Mul", ((2, 6, 5, 40), (2, 6, 5, 1)), (I8, I8, TO_I8)),
    combine("left", "Mul", ((1, 1, 1, 24), (3, 9, 7, 24)), (U8, U8, TO_U8)),
    combine("number", "Mul", ((3, 5000), (1, 1)), (I8, I8, TO_I8)),
    combine("long", "Mul", ((3, 5000), (1, 5000)), (U8, U8, TO_U8)),
    combine("both", "Mul", ((4, 1, 6, 5), (1, 7, 6, 1)), (I8, I8, TO_I8)),
    combine("coarse", "Mul", ((1, 300),) * 2, (I8, I8, Storage(DType.I8, Quant.of(1e-6, 0)))),
    combine("fine", "Mul", ((1, 300),) * 2, (U8, U8, Storage(DType.U8, Quant.of(1e6, 3)))),
    combine("single", "Mul", ((1, 1),) * 2, (I8, I8, TO_I8)),
)
EXTREMES = (
    combine("maxima", "Maximum", EVERY, (I8, TO_I8, I8)),
    combine("minima", "Minimum", EVERY, (U8, TO_U8, TO_U8)),
    combine("mixed", "Maximum", EVERY, (U8, I8, TO_I8)),
    combine("alike", "Minimum", OTHER, (I8, I8, I8)),
    combine("alike_u8", "Maximum", SAME, (U8, U8, U8)),
)
ALIKE = (
    combine("sums", "Add", EVERY, (I8, TO_I8, I8)),
    combine("differences", "Sub", EVERY, (U8, TO_U8, U8)),
    combine("biases", "Add", OTHER, (U8, TO_U8, Storage(DType.U8, Quant.of(0.1, 90)))),
    *(graph for graph in PRODUCTS if graph.name not in ("mixed", "coarse")),
    *(graph for graph in EXTREMES if graph.name.startswith("alike")),
)
"""Of operands of one type, as LiteRT has them."""


def draw_pairs(graph: Graph) -> dict[str, Array]:
    """Return inputs: every byte of tensors that have room for just those, others at random."""
    inputs = draw(graph)
    for name, array in inputs.items():
        if array.size == 256:
            inputs[name] = np.arange(256).astype(np.uint8).view(array.dtype).reshape(array.shape)
    return inputs


def number(graphs: tuple[Graph, ...]) -> list[Graph]:
    """Return graphs with names of their own."""
    return [graph.with_name(f"{graph.name}_{i}") for i, graph in enumerate(graphs)]


@pytest.mark.parametrize("graph", [*PRODUCTS, *EXTREMES], ids=lambda graph: graph.name)
def test_vectors_are_chosen(graph: Graph) -> None:
    assert name_templates(graph) == {"extreme_bytes.c.in" if graph in EXTREMES else "binary_bytes.c.in"}


@pytest.mark.parametrize("graph", ALIKE, ids=lambda graph: graph.name)
def test_vectors_are_chosen_for_the_interpreter(graph: Graph) -> None:
    names = name_templates(replace(graph, numerics=Numerics.FIXED_POINT))
    assert names <= {"extreme_bytes.c.in", "binary_bytes.c.in"}


def test_a_byte_of_the_same_storage_is_itself() -> None:
    graph = EXTREMES[3]
    x, z = (graph.tensors[name] for name in (graph.inputs[0], graph.outputs[0]))
    assert convert_every_byte(x, z).tolist() == list(range(256))


def test_products_that_floats_cannot_hold_are_refused() -> None:
    tiny = Storage(DType.I8, Quant.of(1e-35, 0))
    graph = combine("tiny", "Mul", SAME, (tiny, tiny, I8))
    with pytest.raises(Refused, match="beyond what floats"):
        lower_product(graph.nodes[0], Lowering(graph))


@pytest.mark.slow
@pytest.mark.emulator
def test_products_and_extremes_have_the_bits_of_the_cpu(tmp_path: Path) -> None:
    graph = merge("binary", number((*PRODUCTS, *EXTREMES)))
    assert_equal(graph, draw_pairs(graph), tmp_path, flags=("-O1", "-s"))


@pytest.mark.slow
@pytest.mark.emulator
def test_all_have_the_bits_of_the_interpreter(tmp_path: Path) -> None:
    graph = replace(merge("binary", number(ALIKE)), numerics=Numerics.FIXED_POINT)
    assert_equal(graph, draw_pairs(graph), tmp_path, flags=("-O1", "-s"))
