"""Lowerings: constants, aliases, forks, and the limits of arguments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.lowering import Lowering, Refused
from mace_core.program import Call, Kernel

KERNEL = Kernel("k", Path("none"), (("n", "i32"),))


def graph() -> Graph:
    builder = Builder("g")
    x = builder.input("x", DType.F32, (4,))
    w = builder.weight("w", np.arange(4, dtype=np.float32))
    unread = builder.weight("v", np.zeros(4, np.float32))
    y = builder.one("Add", [builder.one("Relu", [x], outputs=["r"]), w], outputs=["y"])
    return builder.finish([y, builder.one("Add", [x, unread], outputs=["z"])])


def lower(n: int = 4) -> Lowering:
    lowering = Lowering(graph())
    node = lowering.graph.nodes[0]
    lowering.call(node, Call(KERNEL, {"n": n}, node.inputs, node.outputs))
    return lowering


def test_a_call_states_its_node_and_source_and_the_levels_of_the_lowering() -> None:
    lowering = lower()
    lowering.aim(None, ("fast",))
    node = lowering.graph.nodes[1]
    lowering.call(node, Call(KERNEL, {"n": 4}, node.inputs, node.outputs))
    first, second = lowering.calls
    assert (first.node, first.sources, first.levels) == ("r", ("r",), ())
    assert (second.node, second.levels) == (node.name, ("fast",))


@pytest.mark.parametrize("number", [1 << 31, -(1 << 31) - 1])
def test_an_argument_beyond_its_type_refuses_the_node(number: int) -> None:
    with pytest.raises(Refused, match=f"its n would be {number}; kernel k counts in 32 bits") as error:
        lower(number)
    assert error.value.refusal.code == "too-large"
    assert lower((1 << 31) - 1).calls


def test_arguments_are_the_fields_of_the_kernel() -> None:
    lowering = Lowering(graph())
    with pytest.raises(AssertionError, match="arguments"):
        lowering.call(lowering.graph.nodes[0], Call(KERNEL, {"m": 1}, ["x"], ["r"]))


def test_equal_weights_are_packed_once() -> None:
    lowering, packed = Lowering(graph()), []

    def pack() -> str:
        packed.append(1)
        return lowering.weight("w.packed", (4,), "float32", lambda: np.zeros(4, np.float32))

    assert lowering.once(("w", 8), pack) == lowering.once(("w", 8), pack) == "w.packed"
    assert lowering.once(("w", 16), pack) == "w.packed.1"
    assert len(packed) == 2


def test_a_program_has_only_the_constants_that_its_calls_read() -> None:
    lowering = Lowering(graph())
    node = lowering.graph.nodes[1]
    lowering.call(node, Call(KERNEL, {"n": 4}, node.inputs, node.outputs))
    lowering.add_folded("unread", np.zeros(4, np.float32))
    assert set(lowering.finish().weights) == {"w"}


def test_outputs_need_bytes_of_their_own() -> None:
    lowering = Lowering(graph())
    assert lowering.may_alias("r", "x")
    assert not lowering.may_alias("y", "x")
    assert not lowering.may_alias("y", "w")
    assert lowering.may_alias("y", "r")
    lowering.alias("y", "r")
    assert not lowering.may_alias("z", "r")


def test_a_fork_that_is_not_adopted_leaves_nothing() -> None:
    lowering = Lowering(graph())
    fork = lowering.fork()
    node = fork.graph.nodes[0]
    fork.call(node, Call(KERNEL, {"n": 4}, node.inputs, node.outputs))
    folded = fork.add_folded("c", np.ones(2, np.float32))
    fork.alias("r", "x")
    assert (lowering.calls, lowering.constant(folded), dict(lowering.aliases)) == ([], None, {})
    assert dict(fork.new_aliases) == {"r": "x"}
    lowering.adopt([fork])
    assert len(lowering.calls) == 1
    assert lowering.aliases["r"] == "x"
    np.testing.assert_array_equal(lowering.constant(folded), [1, 1])


def test_a_fork_sees_the_names_of_its_siblings_alone() -> None:
    lowering = Lowering(graph())
    first = lowering.fork()
    scratch = first.temporary(lowering.tensors["x"])
    second = lowering.fork([first])
    assert scratch in second.tensors
    assert scratch not in lowering.tensors
    assert second.temporary(lowering.tensors["x"]) not in first.tensors


def test_reading_the_parameters_is_noticed() -> None:
    lowering = Lowering(graph(), 8).aim(4)
    assert not lowering.has_read_parameters
    assert lowering.parameters == 4
    assert lowering.has_read_parameters


def test_forks_compute_what_one_key_names_once_until_another_comes() -> None:
    new = Builder("g")
    x = new.input("x", DType.F32, (1,))
    lowering = Lowering(new.finish(new.add("Relu", [x])))
    made: list[str] = []

    def compute(key: str) -> str:
        return lowering.fork().compute_once(key, lambda: made.append(key) or key.upper())  # type: ignore[func-returns-value]

    assert [compute(key) for key in "aab"] == ["A", "A", "B"]
    assert made == ["a", "b"], "once in a row"
    assert compute("a") == "A"
    assert made == ["a", "b", "a"], "only the latest is kept"
