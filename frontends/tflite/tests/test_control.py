"""Operators that call other graphs of the file, and variables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import DType
from mace_core.run.reference import execute
from mace_frontend_tflite.cases import expected, f32, load
from mace_frontend_tflite.write import Step, Value, Written

ONE = Value.constant("one", np.float32([1]))
IF = ("IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})
WHILE = ("WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})
ONCE = ("CallOnceOptions", {"InitSubgraphIndex": 1})


def value(name: str, *shape: int, dtype: DType = DType.F32) -> Value:
    return Value(name, dtype, shape)


def unary(code: str, shape: tuple[int, ...] = (3,)) -> Written:
    """A graph of one operator."""
    return Written([value("x", *shape), value("y", *shape)], [Step(code, ["x"], ["y"])], ["x"], ["y"], code.lower())


def agrees(folder: Path, *graphs: Written) -> None:
    graph, x = load(folder, *graphs), np.float32([-1.5, 0.25, 2])
    given = {n: x if graph.tensors[n].dtype is DType.F32 else np.array([True]) for n in graph.inputs}
    for name, array in expected(folder, given).items():
        np.testing.assert_allclose(execute(graph, given)[name], array, rtol=1e-6)


def chosen(condition: Value) -> Written:
    values = [value("x", 3), condition, value("y", 3)]
    inputs = ["x"] if condition.data is not None else ["condition", "x"]
    return Written(values, [Step("IF", ["condition", "x"], ["y"], IF)], inputs, ["y"])


@pytest.mark.parametrize("known", [True, False])
def test_a_known_condition_leaves_one_branch(known: bool, tmp_path: Path) -> None:
    condition = Value.constant("condition", np.array([known]))
    agrees(tmp_path, chosen(condition), unary("EXP"), unary("SIN"))
    graph = load(tmp_path, chosen(condition), unary("EXP"), unary("SIN"))
    assert [n.op.name for n in graph.nodes] == ["Exp" if known else "Sin"]


def test_an_unknown_condition_chooses_between_results(tmp_path: Path) -> None:
    agrees(tmp_path, chosen(value("condition", 1, dtype=DType.BOOL)), unary("EXP"), unary("SIN"))


def loop(turns: int, limit: Value | None = None) -> tuple[Written, Written, Written]:
    """Double x so often; limit: in place of the constant."""
    i32 = DType.I32
    start = limit or Value.constant("start", np.int32([0]))
    main = Written(
        [start, value("x", 3), value("count", 1, dtype=i32), value("y", 3)],
        [Step("WHILE", [start.name, "x"], ["count", "y"], WHILE)],
        ["x"] if limit is None else [start.name, "x"],
        ["y"],
    )
    state = [value("i", 1, dtype=i32), value("x", 3)]
    condition = Written(
        [*state, Value.constant("limit", np.int32([turns])), value("going", 1, dtype=DType.BOOL)],
        [Step("LESS", ["i", "limit"], ["going"], ("LessOptions", {}))],
        ["i", "x"],
        ["going"],
    )
    body = Written(
        [*state, Value.constant("one", np.int32([1])), value("next", 1, dtype=i32), value("twice", 3)],
        [Step("ADD", ["i", "one"], ["next"], ("AddOptions", {})), Step("ADD", ["x", "x"], ["twice"], ("AddOptions", {}))],
        ["i", "x"],
        ["next", "twice"],
    )
    return main, condition, body


def test_a_loop_is_written_out(tmp_path: Path) -> None:
    agrees(tmp_path, *loop(5))
    assert [n.op.name for n in load(tmp_path, *loop(5)).nodes] == ["Add"] * 5


def test_an_endless_loop_ends_in_an_error(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="turns more than 4096 times"):
        load(tmp_path, *loop(1 << 30))


def test_a_loop_that_runs_as_its_input_says_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=r"'count' \(WHILE\).*computed at run time; convert"):
        load(tmp_path, *loop(5, value("start", 1, dtype=DType.I32)))


def test_a_graph_that_calls_itself_ends_in_an_error(tmp_path: Path) -> None:
    call = Step("CALL", ["x"], ["y"], ("CallOptions", {"Subgraph": 1}))
    graph = Written([value("x", 3), value("y", 3)], [call], ["x"], ["y"])
    with pytest.raises(MaceError, match="call each other more than 32 deep"):
        load(tmp_path, graph, graph)


def test_calls_stand_for_what_they_call(tmp_path: Path) -> None:
    call = Step("CALL", ["x"], ["y"], ("CallOptions", {"Subgraph": 1}))
    graph = load(tmp_path, Written([value("x", 3), value("y", 3)], [call], ["x"], ["y"]), unary("EXP"))
    x = np.float32([1, 2, 3])
    np.testing.assert_allclose(execute(graph, {"x": x})["y"], np.exp(x), rtol=1e-6)


def handle(name: str) -> Value:
    import tflite

    return Value(name, DType.I32, (), kind=tflite.TensorType.RESOURCE)


def variables(*after: Step) -> tuple[Written, Written]:
    """A model that adds a variable, and the initialiser that sets it to 1; after: what else the model does."""
    name = ("VarHandleOptions", {"SharedName": "v", "Container": "c"})
    main = Written(
        [value("x", 3), handle("h"), value("v", 1), value("y", 3)],
        [
            Step("CALL_ONCE", [], [], ONCE),
            Step("VAR_HANDLE", [], ["h"], name),
            Step("READ_VARIABLE", ["h"], ["v"]),
            Step("ADD", ["x", "v"], ["y"], ("AddOptions", {})),
            *after,
        ],
        ["x"],
        ["y"],
    )
    initial = Written(
        [ONE, handle("h"), value("unused")],
        [Step("VAR_HANDLE", [], ["h"], name), Step("ASSIGN_VARIABLE", ["h", "one"], [])],
        [],
        [],
    )
    return main, initial


def test_a_variable_that_only_an_initialiser_sets_is_a_constant(tmp_path: Path) -> None:
    agrees(tmp_path, *variables())


def test_a_variable_that_lasts_is_to_be_carried_by_the_application(tmp_path: Path) -> None:
    graphs = variables(Step("ASSIGN_VARIABLE", ["h", "y"], []))
    with pytest.raises(MaceError, match=r"'v' \(READ_VARIABLE\).*under input_tensors and 'y' under output_tensors"):
        load(tmp_path, *graphs)
    model = Model("cut", (tmp_path / "case.tflite",), inputs=(Port("x"), Port("v")), outputs=(Port("y"),))
    graph = load(tmp_path, *graphs, model=model)
    assert execute(graph, {"x": np.ones(3, "f4"), "v": np.ones(1, "f4")})["y"].tolist() == [2, 2, 2]


@pytest.mark.parametrize("code", ["RANDOM_UNIFORM", "HASHTABLE_FIND"])
def test_what_no_library_can_hold_is_refused_with_advice(code: str, tmp_path: Path) -> None:
    written = Written([f32(3), value("y", 3)], [Step(code, [""], ["y"])], [""], ["y"])
    with pytest.raises(MaceError, match=f"'y' \\({code}\\).*input_tensors"):
        load(tmp_path, written)
