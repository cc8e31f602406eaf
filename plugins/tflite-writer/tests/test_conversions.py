"""Conversions between types and storages, and operators of few types."""

from __future__ import annotations

import numpy as np
import pytest
from writer_grower import Grower
from writer_oracle import check_graph

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_tflite_writer import refuses

STORAGES = {
    "i8": Storage(DType.I8, Quant.of(0.03, 5)),
    "u8": Storage(DType.U8, Quant.of(0.03, 133)),
    "i16": Storage(DType.I16, Quant.of(0.0002)),
    "i8 coarse": Storage(DType.I8, Quant.of(0.11, -20)),
}


def conversion(op: str, before: Storage | None, after: Storage | None) -> Graph:
    builder = Builder("conversion")
    builder.input("x", before.dtype if before else DType.F32, (9, 31), before and before.quant)
    return builder.finish([builder.one(op, ["x"], outputs=[builder.reserve_output("y", after)])])


@pytest.mark.parametrize("after", STORAGES)
@pytest.mark.parametrize("before", STORAGES)
def test_stored_integers_change_their_storage(before: str, after: str) -> None:
    graph = conversion("Quantize", STORAGES[before], STORAGES[after])
    if (before, after) == ("i16", "u8"):  # the one pair that the kernel does not take
        assert refuses(graph.nodes[0], graph) is not None
        return
    check_graph(graph)


@pytest.mark.parametrize("name", STORAGES)
def test_floats_are_quantized_and_back(name: str) -> None:
    check_graph(conversion("Quantize", None, STORAGES[name]))
    check_graph(conversion("Dequantize", STORAGES[name], None))


@pytest.mark.parametrize("after", ["f32", "f16", "i32", "i64", "i8"])
@pytest.mark.parametrize("before", ["f32", "f16", "i8", "u8", "i32", "bool"])
def test_casts_keep_numbers(before: str, after: str) -> None:
    builder = Builder("cast")
    builder.input("x", DType(before), (4, 5))
    graph = builder.finish([builder.one("Cast", ["x"], {"to": after})])
    refusal = refuses(graph.nodes[0], graph)
    # Floats that an integer cannot hold saturate in the IR, and are undefined in the format.
    if before in ("f32", "f16") and after not in ("f32", "f16"):
        assert refusal is not None
        assert refusal.code == "dtype"
        return
    assert refusal is None
    check_graph(graph)


@pytest.mark.parametrize("group", [1, 2])
def test_convolutions_over_three_axes(group: int) -> None:
    grower = Grower(group, DType.F32, False)
    x = grower.input((1, 4, 5, 6, 2))
    w = grower.weights((4, 2, 3, 2, 2 // group), 0)
    attrs = {
        "strides": (1, 2, 1),
        "pads_before": (0, 0, 0),
        "pads_after": (0, 0, 0),
        "dilations": (1, 1, 2),
        "group": group,
        "low": 0.0,
    }
    y = grower.builder.one("Conv", [x, w, grower.bias(x, w, 4)], attrs)
    graph = grower.builder.finish([y])
    refusal = refuses(graph.nodes[0], graph)
    if group == 1:
        check_graph(graph, grower.inputs(graph))
    else:
        assert refusal is not None
        assert refusal.code == "attribute"


@pytest.mark.parametrize("scale", [1e-46, 1e-42, 1e39])
def test_a_scale_that_single_precision_cannot_hold_is_refused(scale: float) -> None:
    graph = conversion("Dequantize", Storage(DType.I8, Quant.of(scale)), None)
    refusal = refuses(graph.nodes[0], graph)
    assert refusal is not None
    assert refusal.code == "quantization"


@pytest.mark.parametrize("dtype", [DType.U16, DType.I32])
def test_storages_that_the_operator_does_not_give_are_refused(dtype: DType) -> None:
    graph = conversion("Quantize", None, Storage(dtype, Quant.of(0.5)))
    assert refuses(graph.nodes[0], graph) is not None


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 4)])
def test_tensors_without_elements(shape: tuple[int, ...]) -> None:
    builder = Builder("empty")
    builder.input("x", DType.F32, shape)
    graph = builder.finish([builder.one("Reshape", ["x"], {"shape": (0,)})])
    check_graph(graph, [np.zeros(shape, np.float32)])
