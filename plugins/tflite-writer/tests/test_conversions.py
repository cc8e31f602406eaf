"""Conversions between types and storages, and operators of few types."""

from __future__ import annotations

import math

import numpy as np
import pytest
from writer_grower import Grower
from writer_oracle import check_graph, evaluate, outputs, run

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_tflite_writer import refuses, write_tflite
from mace_tflite_writer.rewrites import legalize

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


@pytest.mark.parametrize("after", ["f32", "f16", "i32", "i64", "i8", "bool"])
@pytest.mark.parametrize("before", ["f32", "f16", "i8", "u8", "i32", "bool"])
def test_casts_keep_numbers(before: str, after: str) -> None:
    builder = Builder("cast")
    builder.input("x", DType(before), (4, 5))
    graph = builder.finish([builder.one("Cast", ["x"], {"to": after})])
    refusal = refuses(graph.nodes[0], graph)
    # Floats that an integer cannot hold saturate in the IR, and are undefined in the format.
    if before in ("f32", "f16") and after not in ("f32", "f16", "bool"):
        assert refusal is not None
        assert refusal.code == "dtype"
        assert "a float that its result cannot hold saturates" in refusal.reason
        return
    assert refusal is None
    check_graph(graph)


EDGES = {
    "f32": [0.0, -0.0, 0.3, -1e-40, math.nan, math.inf, 256.0],
    "f16": [0.0, -0.0, 0.3, 6e-8, math.nan, -math.inf, 256.0],
    "i8": [0, 1, -1, 127, -128],
    "u8": [0, 1, 2, 128, 255],
    "i32": [0, 1, -1, 256, 65536, -(2**31)],
    "i64": [0, 1, 256, 2**32, -(2**63)],
}


@pytest.mark.parametrize("before", EDGES)
def test_every_number_but_0_is_cast_to_true(before: str) -> None:
    builder = Builder("truth")
    values = np.array(EDGES[before], DType(before).numpy)
    builder.input("x", DType(before), values.shape)
    graph = builder.finish([builder.one("Cast", ["x"], {"to": "bool"})])
    (actual,) = outputs(run(write_tflite(graph), [values]))
    np.testing.assert_array_equal(actual, evaluate(graph, [values])[0])


def gather(storage: Storage, *, constant: bool) -> Graph:
    builder = Builder("gather")
    builder.input("x", DType.I8, (4, 3), Quant.of(0.5))
    indices = builder.weight("i", np.array([2, 0])) if constant else builder.input("i", DType.I64, (2,))
    y = builder.reserve_output("y", storage)
    return builder.finish([builder.one("Gather", ["x", indices], {"axis": 0}, outputs=[y])])


@pytest.mark.parametrize(
    ("scale", "constant", "words", "code"),
    [
        (0.5, False, "its indices are computed", "other"),
        (0.25, True, "copies stored integers as they are", "quantization"),
        (0.25, False, "its indices are computed", "other"),
    ],
)
def test_a_gather_is_refused_for_what_is_wrong_with_it(
    scale: float, constant: bool, words: str, code: str
) -> None:
    graph = gather(Storage(DType.I8, Quant.of(scale)), constant=constant)
    refusal = refuses(graph.nodes[0], graph)
    assert refusal is not None
    assert words in refusal.reason
    assert refusal.code == code
    assert refusal.remedy


@pytest.mark.parametrize(("exponent", "is_refused"), [(2, False), (-1, True)])
def test_negative_powers_of_integers_are_refused(exponent: int, is_refused: bool) -> None:
    new = Builder("powers")
    x, power = new.input("x", DType.I32, (3,)), new.weight("power", np.array([exponent], np.int32))
    graph = new.finish([new.one("Pow", [x, power])])
    assert (refuses(graph.nodes[0], graph) is not None) is is_refused


def test_a_gather_of_another_storage_becomes_legal() -> None:
    legal = legalize(gather(Storage(DType.I8, Quant.of(0.25)), constant=True))
    assert [refuses(node, legal) for node in legal.nodes] == [None, None]
    check_graph(legal)


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
