"""What a graph must be for later stages to trust it: every fault is found and told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Tensor
from mace_core.ops.unary_attrs import AlphaAttributes
from mace_core.verify import MOST_ALONG_AN_AXIS, verify


def sound() -> Graph:
    """y = Relu(x + w)."""
    new = Builder("g")
    total = new.one(
        "Add", [new.input("x", DType.F32, (2,)), new.weight("w", np.ones(2, np.float32))], outputs=["t"]
    )
    return new.finish([new.one("Relu", [total], outputs=["y"])])


def with_tensor(graph: Graph, tensor: Tensor, name: str = "") -> Graph:
    return replace(graph, tensors={**graph.tensors, name or tensor.name: tensor})


def with_node(graph: Graph, number: int, **changes: object) -> Graph:
    nodes = list(graph.nodes)
    nodes[number] = replace(nodes[number], **changes)  # type: ignore[arg-type]  # any field
    return replace(graph, nodes=tuple(nodes))


FAULTS: dict[str, tuple[Callable[[Graph], Graph], str]] = {
    "name": (lambda g: with_tensor(g, Tensor("z", DType.F32, (2,)), "t"), "tensor 'z' is filed under 't'"),
    "negative": (
        lambda g: with_tensor(g, Tensor("x", DType.F32, (-1,))),
        "every dimension must be a known number",
    ),
    "huge": (
        lambda g: with_tensor(g, Tensor("x", DType.F32, (MOST_ALONG_AN_AXIS,))),
        "dimensions must be below",
    ),
    "quant": (lambda g: with_tensor(g, Tensor("x", DType.I8, (2,), Quant.of(0.0))), "its scale is 0.0"),
    "weight": (lambda g: replace(g, weights={"w": np.ones(3, np.float32)}), r"weight 'w' is float32\[3\]"),
    "writable": (lambda g: replace(g, weights={"w": np.ones(2, np.float32)}), "weight 'w' is writable"),
    "twice": (lambda g: with_node(g, 1, name=g.nodes[0].name), "its name is used twice"),
    "unknown": (
        lambda g: with_node(g, 0, inputs=("x", "gone")),
        "reads 'gone', which nothing before it computes",
    ),
    "order": (lambda g: replace(g, nodes=g.nodes[::-1]), "reads 't', which nothing before it computes"),
    "overwritten": (lambda g: with_node(g, 1, outputs=("w",)), "writes 'w', which exists already"),
    "output": (lambda g: replace(g, outputs=("z",)), "output 'z' is never computed"),
    "inputs": (lambda g: replace(g, inputs=("x", "x")), "input 'x' is there 2 times"),
    "arity": (lambda g: with_node(g, 1, inputs=("t", "t")), "2 inputs, expected 1"),
    "absent": (lambda g: with_node(g, 0, inputs=("x", "")), "is absent"),
    "attribute": (
        lambda g: with_node(g, 1, attrs=AlphaAttributes(1.0)),
        "its attributes are AlphaAttributes, expected Attributes",
    ),
    "type": (lambda g: with_tensor(g, Tensor("y", DType.F64, (2,))), r"must be f32\[2\]"),
    "shape": (lambda g: with_tensor(g, Tensor("t", DType.F32, (1,))), r"must be f32\[2\]"),
}


def test_a_sound_graph_is_returned_as_it_is() -> None:
    graph = sound()
    assert verify(graph) is graph


def test_a_dimension_may_be_0() -> None:
    builder = Builder("g")
    graph = builder.finish([builder.one("Relu", [builder.input("x", DType.F32, (0, 3))])])
    assert verify(graph) == graph


def test_a_tensor_may_be_several_outputs() -> None:
    graph = replace(sound(), outputs=("y", "t", "y"))
    assert verify(graph) is graph


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_told(name: str) -> None:
    damage, said = FAULTS[name]
    with pytest.raises(MaceError, match=said) as error:
        verify(damage(sound()))
    assert all(line.startswith("g: ") for line in str(error.value).splitlines())


def test_all_faults_are_told_at_once() -> None:
    graph = replace(with_tensor(sound(), Tensor("x", DType.F32, (-1,))), outputs=("y", "z"))
    with pytest.raises(MaceError) as error:
        verify(graph)
    assert len(str(error.value).splitlines()) >= 2


@pytest.mark.parametrize(("size", "is_sound"), [(2_147_483_647, True), (2_147_483_648, False)])
def test_the_longest_dimension(size: int, is_sound: bool) -> None:
    new = Builder("g")
    graph = new.finish([new.one("Relu", [new.input("x", DType.I8, (size,))], outputs=["y"])])
    if is_sound:
        assert verify(graph) is graph
        return
    with pytest.raises(
        MaceError, match=r"'x' has shape \(2147483648,\); dimensions must be below 2147483648"
    ):
        verify(graph)
