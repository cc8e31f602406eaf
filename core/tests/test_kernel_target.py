"""Targets of kernels: what a trial lowering costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node
from mace_core.kernel_target import KernelTarget
from mace_core.levels import Level
from mace_core.lowering import Lowering
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
