"""Targets of kernels: what a trial lowering costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node, Quant, Storage
from mace_core.kernel_target import MAX_DIMENSION, KernelTarget
from mace_core.levels import Level
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.program import Call, Kernel

TEMPLATE = files("mace_core") / "SConstruct"


def lower_relu(node: Node, to: Lowering) -> None:
    to.call(node, Call(Kernel("relu", TEMPLATE), {}, node.inputs, node.outputs))


def lower_view(node: Node, to: Lowering) -> None:
    if to.may_alias(node.outputs[0], node.inputs[0]):
        to.alias(node.outputs[0], node.inputs[0])
    else:
        to.call(node, Call(Kernel("copy", TEMPLATE), {}, node.inputs, node.outputs))


class Small(KernelTarget):
    name = "small"
    device = "cpu"
    lowerings = {"Relu": lower_relu, "Reshape": lower_view, "Identity": lower_view}  # noqa: RUF012

    def levels(self, abi: str) -> tuple[Level, ...]:
        return ()


class OneByOne(Mapping[str, Any]):
    """A table that may be looked into and not gone through."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table = table

    def __getitem__(self, key: str) -> Any:
        return self.table[key]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a question about one node went through the whole graph")

    def __len__(self) -> int:
        return len(self.table)


def test_a_question_about_a_node_does_not_go_through_the_graph() -> None:
    new = Builder("chain")
    last = new.input("x", DType.F32, (2,))
    for _ in range(5):
        last = new.one("Reshape", [new.one("Relu", [last])], {"shape": (1, 2)})
    new.weight("w", np.zeros(2, np.float32))
    graph = new.finish([last])
    graph = replace(graph, tensors=OneByOne(graph.tensors), weights=OneByOne(graph.weights))
    assert [Small().refuses(node, graph) for node in graph.nodes] == [None] * len(graph.nodes)


def views(outputs: list[str]) -> Graph:
    new = Builder("views")
    x = new.input("x", DType.F32, (2,))
    y = new.one("Relu", [x], outputs=["y"])
    new.one("Reshape", [y], {"shape": (1, 2)}, outputs=["z"])
    new.one("Reshape", ["z"], {"shape": (2, 1)}, outputs=["v"])
    new.one("Reshape", [x], {"shape": (2, 1)}, outputs=["u"])
    return new.finish(outputs)


def test_each_output_of_the_model_has_bytes_of_its_own() -> None:
    program = Small().lower(views(["y", "z", "v", "u"]))
    assert len({program.root(o) for o in program.outputs}) == len(program.outputs)
    assert "x" not in {program.root(o) for o in program.outputs}
    assert [c.kernel.name for c in program.calls] == ["relu", "copy", "copy", "copy"]


def test_one_output_of_several_views_takes_the_bytes_of_what_computes_them() -> None:
    program = Small().lower(views(["v"]))
    assert program.root("v") == program.root("z") == "y"
    assert [c.kernel.name for c in program.calls] == ["relu"]


def lower_by(name: str) -> Lower:
    """A lowering that calls the same kernel for every node."""

    def lower(node: Node, to: Lowering) -> None:
        to.call(node, Call(Kernel(name, TEMPLATE), {}, tuple(filter(None, node.inputs)), node.outputs))

    return lower


def lower_then_refuse(node: Node, to: Lowering) -> None:
    to.call(node, Call(Kernel("vain", TEMPLATE), {}, node.inputs, node.outputs))
    raise Refused("not these integers", code="quantization")


def lower_wide(node: Node, to: Lowering) -> None:
    """As kernels do that have no half precision."""
    if to.tensors[node.inputs[0]].dtype is DType.F16:
        raise Refused("no half precision", code="unsupported-op")
    lower_by("relu")(node, to)


class Integers(Small):
    name = "integers"
    lowerings = {  # noqa: RUF012
        **{op: lower_by(op.lower()) for op in ("Add", "Reshape", "Cast", "Concat")},
        "Relu": lower_wide,
    }
    quantized = {  # noqa: RUF012
        "Add": lower_by("add_i8"), "Relu": lower_then_refuse,
        "Quantize": lower_by("quantize"), "Dequantize": lower_by("dequantize"),
    }  # fmt: skip


class FloatsOnly(Small):
    name = "floats_only"
    lowerings = Integers.lowerings


HALF, THIRD = Storage(DType.I8, Quant.of(0.5)), Storage(DType.I8, Quant.of(0.25, 3))


def quantized(op: str, *stores: Storage | DType, result: Storage | None = None, **attrs: Attribute) -> Graph:
    """One node: operands and result stored as stated; a DType stands for plain elements of the type."""
    new = Builder("m")
    names = []
    for i, store in enumerate(stores):
        dtype, quant = (store.dtype, store.quant) if isinstance(store, Storage) else (store, None)
        names.append(new.input(f"x{i}", dtype, (2,), quant))
    output = new.reserve_output("y", result) if result else "y"
    return new.finish(new.add(op, names, attrs, outputs=[output]))


def kernels(target: KernelTarget, graph: Graph) -> list[str]:
    return [call.kernel.name for call in target.lower(graph).calls]


@pytest.mark.parametrize(
    ("graph", "called"),
    [
        (quantized("Add", DType.F32, DType.F32), ["add"]),
        (quantized("Add", HALF, THIRD, result=HALF), ["add_i8"]),
        (quantized("Relu", HALF, result=HALF), ["dequantize", "relu", "quantize"]),
        (quantized("Relu", HALF), ["dequantize", "relu"]),
        (quantized("Relu", DType.F32, result=HALF), ["relu", "quantize"]),
        (quantized("Relu", DType.F16), ["cast", "relu", "cast"]),
        (quantized("Reshape", HALF, shape=(2, 1)), ["reshape"]),
        (quantized("Reshape", DType.F16, shape=(2, 1)), ["reshape"]),
        (quantized("Reshape", HALF, result=THIRD, shape=(2, 1)), ["dequantize", "reshape", "quantize"]),
        (quantized("Concat", HALF, HALF, axis=0), ["concat"]),
        (
            quantized("Concat", HALF, THIRD, result=HALF, axis=0),
            ["dequantize", "dequantize", "concat", "quantize"],
        ),
    ],
)
def test_integers_are_computed_as_stored_or_through_floats(graph: Graph, called: list[str]) -> None:
    target = Integers()
    assert kernels(target, graph) == called
    assert target.refuses(graph.nodes[0], graph) is None


def test_operands_and_results_of_the_conversions() -> None:
    calls = Integers().lower(quantized("Relu", HALF, result=THIRD)).calls
    assert [(call.reads[0], call.writes[0]) for call in calls] == [
        ("x0", "x0.1"),
        ("x0.1", "y.1"),
        ("y.1", "y"),
    ]
    assert {call.node for call in calls} == {"y"}
    tensors = Integers().lower(quantized("Relu", HALF, result=THIRD)).tensors
    assert (tensors["x0.1"].dtype, tensors["x0.1"].quant, tensors["y"].dtype) == (DType.F32, None, DType.I8)


def test_constants_become_floats_once_at_build_time() -> None:
    new = Builder("m")
    x = new.input("x", DType.I8, (2,), HALF.quant)
    w = new.weight("w", np.array([1, 5], np.int8), THIRD.quant)
    y = new.one("Concat", [x, w], {"axis": 0})
    program = Integers().lower(new.finish([new.one("Concat", [y, w], {"axis": 0}, outputs=["z"])]))
    (folded,) = (name for name in program.weights)
    assert program.weights[folded].make().tolist() == [-0.5, 0.5]
    assert [call.kernel.name for call in program.calls] == ["dequantize", "concat", "concat"]
    half = Builder("m")
    weight = half.weight("w", np.array([1.5, 2], np.float16))
    result = Integers().lower(
        half.finish([half.one("Concat", [half.input("x", DType.F16, (2,)), weight], {"axis": 0})])
    )
    assert "concat" in [call.kernel.name for call in result.calls]


@pytest.mark.parametrize(
    ("target", "graph", "code", "reason"),
    [
        (Integers(), quantized("Exp", DType.F32), "unsupported-op", "integers has no kernel for Exp"),
        (Integers(), quantized("Exp", HALF), "unsupported-op", "integers has no kernel for Exp"),
        (
            FloatsOnly(),
            quantized("Relu", HALF, result=HALF),
            "quantization",
            "floats_only has no kernels for quantized tensors",
        ),
        (Integers(), quantized("Relu", DType.I32), None, None),
    ],
)
def test_refusals_of_integers(
    target: KernelTarget, graph: Graph, code: str | None, reason: str | None
) -> None:
    refusal = target.refuses(graph.nodes[0], graph)
    assert (refusal and refusal.code, refusal and refusal.reason) == (code, reason)
    if code == "quantization":
        assert refusal is not None
        assert refusal.remedy == "use the model in floats"


@pytest.mark.parametrize(("size", "is_taken"), [(MAX_DIMENSION, True), (MAX_DIMENSION + 1, False)])
def test_dimensions_that_the_interface_describes(size: int, is_taken: bool) -> None:
    new = Builder("m")
    graph = new.finish([new.one("Relu", [new.input("x", DType.I8, (1, size))], outputs=["y"])])
    refusal = Small().refuses(graph.nodes[0], graph)
    assert (refusal is None) == is_taken
    if refusal:
        assert (refusal.code, str(refusal)) == (
            "too-large",
            "x has a dimension of 2147483648; libraries support at most 2147483647; state a smaller one under input_shapes",
        )


@pytest.mark.parametrize(("ctype", "bits"), [("i32", 32), ("i64", 64), ("i32[2]", 32), ("f32", 0)])
def test_arguments_have_room_in_their_type(ctype: str, bits: int) -> None:
    def lower(node: Node, to: Lowering, number: int) -> None:
        value = (0, number) if "[" in ctype else number
        to.call(
            node, Call(Kernel("relu", TEMPLATE, (("n", ctype),)), {"n": value}, node.inputs, node.outputs)
        )

    graph = quantized("Relu", DType.F32)
    limit = 1 << (bits or 64) - 1
    for number in (-limit, limit - 1):
        lower(graph.nodes[0], Lowering(graph, None), number)
    for number in (-limit - 1, limit):
        if not bits:
            lower(graph.nodes[0], Lowering(graph, None), number)
            continue
        with pytest.raises(Refused) as error:
            lower(graph.nodes[0], Lowering(graph, None), number)
        assert str(error.value.refusal) == (
            f"its n would be {number}; kernel relu counts in {bits} bits; make its tensors smaller, as with input_shapes"
        )
        assert error.value.refusal.code == "too-large"


def test_a_target_widens_weights_if_it_has_the_kernels() -> None:
    class Widening(Small):
        def widening_kernels(self) -> Any:
            return object()

    assert (Small().widens_weights(), Widening().widens_weights()) == (False, True)
