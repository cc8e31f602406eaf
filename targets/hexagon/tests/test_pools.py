"""Pools and means of bytes have the bits of the CPU's, for each rule of `numerics`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from byte_graphs import draw, name_templates
from emulated import assert_equal

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.lowering import Lowering, Refused
from mace_core.numerics import Numerics
from mace_core.program import Arg
from mace_core.testing.compiled import merge
from mace_target_hexagon import pools

I8 = Storage(DType.I8, Quant.of(0.05, -3))
U8 = Storage(DType.U8, Quant.of(0.04, 120))
TO_I8 = Storage(DType.I8, Quant.of(0.021, 5))
TO_U8 = Storage(DType.U8, Quant.of(0.033, 90))
Shape = tuple[int, ...]


def pool(
    name: str, op: str, shape: Shape, kernel: Shape, storages: tuple[Storage, Storage], **attrs: object
) -> Graph:
    """Return a pool of one input; windows move by one and have no padding where nothing else is stated."""
    axes, builder = len(kernel), Builder(name)
    x, y = storages
    plain = {"strides": (1,) * axes, "dilations": (1,) * axes}
    pads = {"pads_before": (0,) * axes, "pads_after": (0,) * axes}
    operands = [builder.input("x", x.dtype, shape, x.quant)]
    attributes = {"kernel": kernel, **plain, **pads, **attrs}
    if op == "MaxPool":
        return builder.finish(builder.add(op, operands, attributes))
    outputs = [builder.reserve_output("y", y)]
    return builder.finish(builder.add(op, operands, attributes, outputs=outputs))


def reduce(name: str, op: str, shape: Shape, axes: Shape, storages: tuple[Storage, Storage]) -> Graph:
    """Return a reduction of one input."""
    builder = Builder(name)
    x, y = storages
    operands = [builder.input("x", x.dtype, shape, x.quant)]
    outputs = [builder.reserve_output("y", y)]
    return builder.finish(builder.add(op, operands, {"axes": axes, "keepdims": True}, outputs=outputs))


SAME = {"pads_before": (1, 1), "pads_after": (1, 1)}
SIGNED, UNSIGNED = (I8, TO_I8), (U8, TO_U8)
MAXIMA = (
    pool("thin", "MaxPool", (1, 13, 11, 3), (3, 3), UNSIGNED, strides=(2, 2), **SAME),
    pool("images", "MaxPool", (2, 9, 12, 24), (3, 3), SIGNED, strides=(2, 2), **SAME),
    pool("flat", "MaxPool", (1, 6, 7, 58), (3, 3), UNSIGNED, **SAME),
    pool("wide", "MaxPool", (1, 5, 6, 260), (2, 3), SIGNED, strides=(1, 3)),
    pool("dilated", "MaxPool", (1, 9, 9, 20), (3, 2), UNSIGNED, dilations=(2, 3), **SAME),
    pool("beside", "MaxPool", (1, 2, 3, 16), (2, 2), SIGNED, pads_before=(3, 3), pads_after=(2, 2)),
    pool("line", "MaxPool", (1, 40, 9), (4,), UNSIGNED, strides=(3,)),
    pool("solid", "MaxPool", (1, 4, 5, 6, 10), (2, 2, 2), SIGNED, strides=(2, 1, 2)),
    pool("ceil", "MaxPool", (1, 8, 8, 8), (3, 3), SIGNED, strides=(2, 2), ceil=True),
)
WINDOWS = (
    pool("whole", "AveragePool", (1, 7, 7, 130), (7, 7), UNSIGNED),
    pool("part", "AveragePool", (2, 9, 5, 64), (9, 5), SIGNED),
    pool("same", "AveragePool", (1, 6, 7, 24), (3, 3), SIGNED, **SAME),
    pool("slow", "AveragePool", (1, 9, 11, 3), (2, 3), UNSIGNED, strides=(2, 2), ceil=True),
    pool("long", "AveragePool", (1, 23, 29, 5), (23, 29), UNSIGNED),
    pool("line", "AveragePool", (1, 40, 140), (5,), SIGNED, strides=(3,)),
    pool("solid", "AveragePool", (1, 4, 4, 4, 10), (2, 4, 4), SIGNED),
    pool("dilated", "AveragePool", (1, 9, 9, 20), (3, 2), UNSIGNED, dilations=(2, 3), **SAME),
)
COUNTED = (
    pool("padded", "AveragePool", (1, 6, 7, 24), (3, 3), SIGNED, count_pad=True, **SAME),
    pool("mixed", "AveragePool", (1, 6, 7, 130), (3, 3), (U8, TO_I8)),
    pool("ties", "AveragePool", (1, 2, 64, 4), (1, 2), (I8, I8), strides=(1, 2)),
    pool("coarse", "AveragePool", (1, 4, 4, 9), (2, 2), (Storage(DType.U8, Quant.of(9.0, 3)), TO_U8)),
    pool("huge", "AveragePool", (1, 4, 4, 9), (2, 2), (Storage(DType.U8, Quant.of(900.0, 3)), TO_U8)),
)
MEANS = (
    reduce("rows", "ReduceMean", (1, 7, 7, 464), (1, 2), UNSIGNED),
    reduce("batches", "ReduceMean", (3, 5, 33), (1,), SIGNED),
    reduce("first", "ReduceMean", (300, 40), (0,), UNSIGNED),
    reduce("many", "ReduceMean", (1, 30, 31, 6), (1, 2), SIGNED),
)
SUMS = (reduce("sums", "ReduceSum", (1, 3, 50), (1,), (I8, Storage(DType.I8, Quant.of(0.11, 7)))),)


def store_alike(graph: Graph) -> Graph:
    """Return the graph with results of the scale of its input, as LiteRT's pools have them."""
    quant = graph.tensors[graph.inputs[0]].quant
    tensors = {name: replace(tensor, quant=quant) for name, tensor in graph.tensors.items()}
    return replace(graph, tensors=tensors)


def test_axes_that_windows_see_whole_are_one() -> None:
    args: dict[str, Arg] = {
        "batch": 1,
        "channels": 8,
        "in": (5, 6, 7),
        "out": (4, 1, 1),
        "kernel": (2, 6, 7),
        "stride": (1, 1, 1),
        "dilation": (1, 1, 1),
        "pad": (0, 0, 0),
        **pools.WHOLE,
    }
    merged = pools.merge_axes(args)
    assert [merged[name] for name in ("in", "out", "kernel", "stride")] == [
        *((1, 1, 5 * 6 * 7), (1, 1, 4), (1, 1, 2 * 6 * 7), (1, 1, 6 * 7))
    ]
    padded: dict[str, Arg] = {**args, "pad": (0, 0, 1)}
    assert pools.merge_axes(padded) == padded


def test_means_of_the_last_axis_and_of_halves_are_refused() -> None:
    last = reduce("last", "ReduceMean", (4, 300), (1,), SIGNED)
    with pytest.raises(Refused, match="its last axis does not stay"):
        pools.lower_mean(last.nodes[0], Lowering(last))
    i16 = Storage(DType.I16, Quant.of(0.001))
    halves = pool("halves", "AveragePool", (1, 4, 4, 8), (2, 2), (i16, i16))
    with pytest.raises(Refused, match="i16"):
        pools.lower_average(halves.nodes[0], Lowering(halves))


@pytest.mark.parametrize("graph", [*MAXIMA, *WINDOWS, *COUNTED, *MEANS, *SUMS], ids=lambda graph: graph.name)
def test_vectors_are_chosen(graph: Graph) -> None:
    assert name_templates(graph) == {"max_bytes.c.in" if graph in MAXIMA else "mean_bytes.c.in"}
    if graph in WINDOWS:
        alike = replace(store_alike(graph), numerics=Numerics.FIXED_POINT)
        assert name_templates(alike) == {"mean_bytes.c.in"}


@pytest.mark.slow
@pytest.mark.emulator
def test_pools_have_the_bits_of_the_cpu(tmp_path: Path) -> None:
    graph = merge(
        "pools",
        [g.with_name(f"{g.name}_{i}") for i, g in enumerate((*MAXIMA, *WINDOWS, *COUNTED, *MEANS, *SUMS))],
    )
    assert_equal(graph, draw(graph), tmp_path, flags=("-O1", "-s"))


@pytest.mark.slow
@pytest.mark.emulator
def test_pools_have_the_bits_of_the_interpreter(tmp_path: Path) -> None:
    graphs = [*map(store_alike, WINDOWS), *MEANS]
    graph = replace(merge("pools", graphs), numerics=Numerics.FIXED_POINT)
    assert_equal(graph, draw(graph), tmp_path, flags=("-O1", "-s"))
