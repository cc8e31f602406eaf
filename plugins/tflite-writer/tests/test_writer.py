"""The file around the operators: names, order, determinism, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import tflite
from writer_oracle import check_graph, interpreter, run, verify

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant
from mace_tflite_writer import refuses, write_tflite
from mace_tflite_writer.names import file_names

HOSTILE = ("a\0b", "a\nerror: forged", "\x1b[2J", "\ud800", "$(touch x)", "../../x", "😀", "x" * 5000, 'q"\\')


def two_inputs(first: str, second: str, result: str) -> Graph:
    builder = Builder("two")
    builder.input(first, DType.F32, (2,))
    builder.input(second, DType.F32, (2,))
    return builder.finish([builder.one("Sub", [first, second], outputs=[result])])


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_escaped_and_stay_apart(name: str) -> None:
    graph = two_inputs(name, f"{name}.1", f"{name}.2")
    content = write_tflite(graph)
    verify(content)
    actual = run(content, [np.float32([5, 7]), np.float32([1, 2])])
    (detail,) = actual.get_output_details()
    np.testing.assert_array_equal(actual.get_tensor(detail["index"]), np.float32([4, 5]))
    names = [d["name"] for d in actual.get_tensor_details()]
    assert len(set(names)) == len(names)
    assert all(text.isprintable() for text in names)


def test_a_name_that_escaping_makes_equal_gets_a_number() -> None:
    graph = two_inputs("a\nb", "a\\nb", "c")
    first, second = (file_names(graph)[name] for name in graph.inputs)
    assert first != second


def test_ports_keep_their_names_and_order() -> None:
    builder = Builder("ports")
    for name in ("z", "a", "m"):
        builder.input(name, DType.F32, (2,))
    total = builder.one("Add", ["m", "a"], outputs=["total"])
    left = builder.one("Sub", [total, "z"], outputs=["left"])
    graph = builder.finish([left, total])
    result = interpreter(write_tflite(graph))
    assert [d["name"] for d in result.get_input_details()] == ["z", "a", "m"]
    assert [d["name"] for d in result.get_output_details()] == ["left", "total"]


def test_an_input_that_nothing_reads_stays() -> None:
    builder = Builder("unread")
    builder.input("x", DType.F32, (2,))
    builder.input("unread", DType.I8, (3,), Quant.of(0.5, 3))
    check_graph(builder.finish([builder.one("Relu", ["x"])]))


def test_the_same_graph_gives_the_same_bytes() -> None:
    assert write_tflite(two_inputs("a", "b", "c")) == write_tflite(two_inputs("a", "b", "c"))


def test_equal_constants_share_a_buffer() -> None:
    builder = Builder("shared")
    builder.input("x", DType.F32, (64,))
    first = builder.one("Add", ["x", builder.weight("w", np.arange(64, dtype=np.float32))])
    second = builder.one("Mul", [first, builder.weight("v", np.arange(64, dtype=np.float32))])
    content = check_graph(builder.finish([second]))
    model = tflite.Model.GetRootAs(content)
    assert model.BuffersLength() == 2, "the empty one, and that of both constants"


def test_constants_begin_at_multiples_of_16() -> None:
    builder = Builder("aligned")
    builder.input("x", DType.F32, (3,))
    graph = builder.finish([builder.one("Add", ["x", builder.weight("w", np.float32([1, 2, 3]))])])
    content = write_tflite(graph)
    place = content.index(np.float32([1, 2, 3]).tobytes())
    assert place % 16 == 0


def test_every_node_that_has_no_operator_is_named() -> None:
    builder = Builder("refused")
    builder.input("x", DType.F32, (1, 4))
    inner = builder.one("Tan", ["x"], outputs=["tan"])
    graph = builder.finish([builder.one("Asin", [inner], outputs=["y"])])
    assert [refuses(node, graph) is None for node in graph.nodes] == [False, False]
    with pytest.raises(MaceError) as error:
        write_tflite(graph)
    assert "node 'tan' (Tan)" in str(error.value)
    assert "node 'y' (Asin)" in str(error.value)


def test_an_output_that_is_an_input_is_an_error() -> None:
    graph = Graph("copy", (), two_inputs("a", "b", "c").tensors, {}, ("a",), ("a",))
    with pytest.raises(MaceError, match="put an Identity behind it"):
        write_tflite(graph)


def test_constants_beyond_the_offsets_of_a_file_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mace_tflite_writer.writer.MAX_BYTES", 100)
    builder = Builder("large")
    builder.input("x", DType.F32, (20,))
    sums = ["x"]
    for value in range(3):
        sums.append(builder.one("Add", [sums[-1], builder.weight("w", np.full(20, value, np.float32))]))
    with pytest.raises(MaceError, match="at most 2 GiB"):
        write_tflite(builder.finish(sums[-1:]))


def test_a_dimension_beyond_32_bits_is_refused() -> None:
    builder = Builder("huge")
    builder.input("x", DType.F32, (2**31, 0))
    graph = builder.finish([builder.one("Relu", ["x"])])
    refusal = refuses(graph.nodes[0], graph)
    assert refusal is not None
    assert refusal.code == "too-large"
