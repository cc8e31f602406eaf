"""The builder of graphs: names of outputs, operands that are absent."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.graph_builder import FOLD_LIMIT, Builder
from mace_core.ir import DType
from mace_core.run.reference import execute
from mace_core.verify import verify

X = np.float32([-1, 2])


def test_an_output_has_its_public_name_though_an_inner_tensor_bore_it() -> None:
    new = Builder("names")
    inner = new.one("Neg", [new.input("x", DType.F32, (2,))], outputs=["y"])
    graph = verify(new.finish([new.one("Relu", [inner])], ["y"]))
    assert graph.outputs == ("y",)
    assert execute(graph, {"x": X})["y"].tolist() == [1, 0]


def test_names_that_are_taken_get_the_next_number() -> None:
    builder = Builder("g")
    x = builder.input("x", DType.F32, (1,))
    names = [builder.weight("w", np.zeros(1, np.float32)) for _ in range(2)]
    names += [builder.weight("w.2", np.zeros(1, np.float32)), builder.weight("w", np.zeros(1, np.float32))]
    assert (x, *names) == ("x", "w", "w.1", "w.2", "w.3")


def test_names_may_change_places() -> None:
    new = Builder("names")
    x = new.input("x", DType.F32, (2,))
    a, b = new.one("Neg", [x], outputs=["a"]), new.one("Abs", [x], outputs=["b"])
    values = execute(verify(new.finish([a, b], ["b", "a"])), {"x": X})
    assert (values["b"].tolist(), values["a"].tolist()) == ([1, -2], [1, 2])


def test_a_constant_gives_way_too() -> None:
    new = Builder("names")
    c = new.weight("y", np.float32([3, 4]))
    graph = verify(new.finish([new.one("Add", [new.input("x", DType.F32, (2,)), c])], ["y"]))
    assert execute(graph, {"x": X})["y"].tolist() == [2, 6]


def test_an_input_keeps_its_name() -> None:
    new = Builder("names")
    graph = verify(new.finish([new.one("Neg", [new.input("x", DType.F32, (2,))])], ["x"]))
    assert graph.inputs == ("x",)
    assert graph.outputs != ("x",)


@pytest.mark.parametrize(
    ("op", "operands"), [("Sub", ("x", "")), ("Concat", ("x", "")), ("Where", ("", "x", "x"))]
)
def test_an_absent_operand_is_refused_where_it_is_not_optional(op: str, operands: tuple[str, ...]) -> None:
    new = Builder("g")
    new.input("x", DType.F32, (1, 4, 4, 2))
    with pytest.raises(MaceError, match=r"g: node .*operand '\w+' \(input [01]\) is absent"):
        new.add(op, operands, {"axis": 0} if op == "Concat" else {})


def test_an_operator_that_does_not_exist_is_refused_with_the_closest_name() -> None:
    builder = Builder("m")
    x = builder.input("x", DType.F32, (2,))
    with pytest.raises(MaceError, match=r"m: there is no operator 'Softmx'; did you mean 'Softmax'\?"):
        builder.one("Softmx", [x])
    with pytest.raises(MaceError, match=r"m: there is no operator 'zzz'; docs/operators\.md lists"):
        builder.one("zzz", [x])


@pytest.mark.parametrize(("elements", "is_taken"), [(1 << 32, True), ((1 << 32) + 1, False)])
def test_the_largest_tensor(elements: int, is_taken: bool) -> None:
    new = Builder("g")
    x = new.input("x", DType.I8, (1,))
    if is_taken:
        assert new.shape(new.one("Expand", [x], {"shape": (elements,)})) == (elements,)
        return
    with pytest.raises(
        MaceError, match=r"g: node 'Expand' \(Expand\): makes a tensor of more than 4294967296 elements"
    ):
        new.one("Expand", [x], {"shape": (elements,)})


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "said"),
    [
        ("Relu", ["x", "x"], 1, "2 inputs, expected 1"), ("Relu", [], 1, "0 inputs, expected 1"),
        ("Relu", ["x"], 2, "2 outputs, expected 1"), ("Add", ["x", ""], 1, r"operand 'y' \(input 1\) is absent"),
        ("Relo", ["x"], 1, "there is no operator 'Relo'; did you mean 'Relu'"),
        ("Zzzzzz", ["x"], 1, "there is no operator 'Zzzzzz'; docs/operators.md lists the operators"),
    ],
)  # fmt: skip
def test_nodes_that_cannot_be_are_refused(op: str, inputs: list[str], outputs: int, said: str) -> None:
    new = Builder("g")
    new.input("x", DType.F32, (1,))
    with pytest.raises(MaceError, match=said):
        new.add(op, inputs, outputs=outputs)
    assert new.nodes == []


def test_an_input_that_is_a_state_of_the_deployment_file_stays_an_input() -> None:
    """Also where nothing changes it: the application gives it then."""
    new = Builder("g")
    x, h = new.input("x", DType.F32, (2,)), new.input("h", DType.F32, (2,))
    new.begin(h, np.ones(2, np.float32))
    graph = new.finish([new.one("Add", [x, h], outputs=["y"])])
    assert (graph.inputs, graph.states, "h" in graph.weights) == (("x", "h"), (), False)
    new.set_next(h, "y")
    graph = new.finish(["y"])
    assert [(state.input, state.start.tolist()) for state in graph.states] == [("h", [1, 1])]


def test_a_state_changes_its_type_at_no_run() -> None:
    new = Builder("g")
    h = new.state("h", np.zeros(2, np.float32))
    new.set_next(h, new.one("Cast", [h], {"to": "i32"}))
    with pytest.raises(
        MaceError,
        match=r"g: state 'h': is f32\[2\] before a run and i32\[2\] after it; convert the model again",
    ):
        new.finish([new.one("Relu", [h])])


def test_outputs_are_named_as_stated() -> None:
    """By renaming what computes them; an input, a constant and a tensor of two names go through Identity."""
    new = Builder("g")
    x = new.input("x", DType.F32, (2,))
    a, w = new.one("Relu", [x], outputs=["a"]), new.weight("w", np.ones(2, np.float32))
    b = new.one("Neg", [x], outputs=["b"])
    graph = new.finish([a, a, x, w, "a", b], ["b", "c", "d", "w", "b", "a"])
    assert graph.outputs[:4] == ("b", "c", "d", "w")
    values = execute(graph, {"x": np.array([-1, 2], np.float32)})
    assert [values[name].tolist() for name in graph.outputs] == [
        [0, 2],
        [0, 2],
        [-1, 2],
        [1, 1],
        [0, 2],
        [1, -2],
    ]
    assert set(graph.tensors) >= set(graph.outputs)
    assert new.producer("x") is None


@pytest.mark.parametrize(("size", "folds"), [(FOLD_LIMIT // 4, True), (FOLD_LIMIT // 4 + 1, False)])
def test_small_constants_are_computed_at_once(size: int, folds: bool) -> None:
    new = Builder("g")
    one = new.weight("one", np.ones(1, np.float32))
    result = new.one("Expand", [one], {"shape": (size,)})
    assert (result in new.weights) == folds
    same = new.one("Neg", [new.weight("w", np.zeros(size, np.float32))])
    assert same in new.weights, "no more bytes than what it reads"


@pytest.mark.parametrize(("dtype", "folds"), [(np.float16, True), (np.int8, False)])
def test_large_weights_in_half_precision_are_widened_at_once(dtype: type[np.generic], folds: bool) -> None:
    """Else every run would do so."""
    new = Builder("g")
    values = (np.arange(FOLD_LIMIT // 4 + 1) % 100).astype(dtype)
    result = new.one("Cast", [new.weight("w", values)], {"to": "f32"})
    assert (result in new.weights) == folds
    if folds:
        np.testing.assert_array_equal(new.weights[result], values.astype(np.float32))
