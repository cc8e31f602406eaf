"""Operators that call other graphs of the file, and variables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tflite_cases import expected, f32, load
from tflite_write import Step, Value, Written

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import DType
from mace_core.run.reference import ReferenceSession, execute
from mace_frontend_tflite import TfLite
from mace_frontend_tflite.importer import TfliteImporter
from mace_frontend_tflite.ops import control

ONE = Value.constant("one", np.float32([1]))
IF = ("IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})
WHILE = ("WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})
ONCE = ("CallOnceOptions", {"InitSubgraphIndex": 1})


def value(name: str, *shape: int, dtype: DType = DType.F32) -> Value:
    return Value(name, dtype, shape)


def unary(code: str, shape: tuple[int, ...] = (3,)) -> Written:
    """A graph of one operator."""
    return Written(
        [value("x", *shape), value("y", *shape)], [Step(code, ["x"], ["y"])], ["x"], ["y"], code.lower()
    )


def agrees(folder: Path, *graphs: Written) -> None:
    graph, x = load(folder, *graphs), np.float32([-1.5, 0.25, 2])
    inputs = {n: x if graph.tensors[n].dtype is DType.F32 else np.array([True]) for n in graph.inputs}
    for name, array in expected(folder, inputs).items():
        np.testing.assert_allclose(execute(graph, inputs)[name], array, rtol=1e-6)


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
        [
            Step("ADD", ["i", "one"], ["next"], ("AddOptions", {})),
            Step("ADD", ["x", "x"], ["twice"], ("AddOptions", {})),
        ],
        ["i", "x"],
        ["next", "twice"],
    )
    return main, condition, body


def test_a_loop_is_written_out(tmp_path: Path) -> None:
    agrees(tmp_path, *loop(5))
    assert [n.op.name for n in load(tmp_path, *loop(5)).nodes] == ["Add"] * 5


def test_a_loop_turns_as_often_as_is_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert control.MAX_TURNS == 4096
    monkeypatch.setattr(control, "MAX_TURNS", 4)
    assert len(load(tmp_path, *loop(3)).nodes) == 3
    with pytest.raises(MaceError, match="turns more than 4 times, too often to be written out"):
        load(tmp_path, *loop(1 << 30))


def test_a_loop_adds_as_many_nodes_as_are_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(TfliteImporter, "limits", replace(TfliteImporter.limits, nodes=3))
    assert len(load(tmp_path, *loop(3)).nodes) == 3
    with pytest.raises(MaceError, match="it turns too often to be written out"):
        load(tmp_path, *loop(4))


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
    """A model that adds a variable, and the initialiser that sets it to 1.

    after: what else the model does.
    """
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


def counting() -> tuple[Written, Written]:
    """A model that adds to a variable what it is given: y = x + v, and v is y from then on."""
    main, initial = variables(Step("ASSIGN_VARIABLE", ["h", "y"], []))
    values = [replace(v, shape=(1,)) if v.name in ("x", "y") else v for v in main.values]
    return replace(main, values=values), initial


def model(folder: Path, inputs: str = "", outputs: str = "", **keys: object) -> Model:
    """A deployment of the case with these inputs, outputs and keys."""
    ports = [tuple(Port(name) for name in names.split()) for names in (inputs, outputs)]
    return Model("case", (folder / "case.tflite",), inputs=ports[0], outputs=ports[1], keys=keys)


def test_a_variable_that_lasts_is_a_state(tmp_path: Path) -> None:
    graph = load(tmp_path, *counting(), model=model(tmp_path))
    assert [str(state) for state in graph.states] == ["v:f32[1], at first 1.0"]
    assert (graph.port_inputs, graph.port_outputs) == (("x",), ("y",))
    session = ReferenceSession(graph)
    for _ in range(2):
        run = TfLite().recurrent((tmp_path / "case.tflite",), model(tmp_path))
        assert run is not None
        for step in range(60):
            x = {"x": np.float32([step % 7 - 3])}
            assert session.run(x)["y"].tolist() == run(x)["y"].tolist()
        session.reset()


def test_a_variable_is_carried_by_the_application(tmp_path: Path) -> None:
    carried = model(tmp_path, "x v", "y v.next")
    graph = load(tmp_path, *counting(), model=carried)
    run = TfLite().recurrent(carried.files, carried)
    assert run is not None
    state = np.float32([1])
    for step in range(60):
        x = np.float32([step % 7 - 3])
        values = execute(graph, {"x": x, "v": state})
        assert values["y"].tolist() == run({"x": x})["y"].tolist()
        state = values["v.next"]


def test_a_variable_begins_anew_where_the_deployment_file_says_so(tmp_path: Path) -> None:
    graph = load(tmp_path, *counting(), model=model(tmp_path, states="reset"))
    reference = TfLite().reference((tmp_path / "case.tflite",), model(tmp_path))
    assert reference is not None
    for x in (np.float32([1]), np.float32([5])):
        assert execute(graph, {"x": x})["y"] == reference({"x": x})["y"] == x + 1


def test_a_variable_is_read_as_the_run_has_left_it(tmp_path: Path) -> None:
    """The second read sees what was assigned before it, whether the variable is an input or begins anew."""
    main, initial = counting()
    values = [*main.values, value("again", 1), value("z", 1)]
    more = [Step("READ_VARIABLE", ["h"], ["again"]), Step("MUL", ["again", "x"], ["z"], ("MulOptions", {}))]
    graphs = replace(main, values=values, steps=[*main.steps, *more], outputs=["z"]), initial
    x = np.float32([3])
    for chosen_model, inputs in (
        (model(tmp_path, states="reset"), {}),
        (model(tmp_path, "x v", "z v.next"), {"v": np.float32([1])}),
    ):
        graph = load(tmp_path, *graphs, model=chosen_model)
        assert execute(graph, {"x": x, **inputs})["z"] == expected(tmp_path, {"x": x})["z"] == 12


def test_a_branch_chosen_at_run_time_that_changes_a_variable_is_refused(tmp_path: Path) -> None:
    condition = value("condition", 1, dtype=DType.BOOL)
    name = ("VarHandleOptions", {"SharedName": "v", "Container": "c"})
    steps = [
        Step("VAR_HANDLE", [], ["h"], name),
        Step("ASSIGN_VARIABLE", ["h", "x"], []),
        Step("EXP", ["x"], ["y"]),
    ]
    side = Written([value("x", 3), handle("h"), value("y", 3)], steps, ["x"], ["y"])
    with pytest.raises(MaceError, match="a branch that is chosen at run time changes a state"):
        load(tmp_path, chosen(condition), side, unary("SIN"))


@pytest.mark.parametrize("code", ["RANDOM_UNIFORM", "HASHTABLE_FIND"])
def test_what_no_library_can_hold_is_refused_with_advice(code: str, tmp_path: Path) -> None:
    written = Written([f32(3), value("y", 3)], [Step(code, [""], ["y"])], [""], ["y"])
    with pytest.raises(MaceError, match=f"'y' \\({code}\\).*input_tensors"):
        load(tmp_path, written)


def test_branches_of_different_shapes_are_refused(tmp_path: Path) -> None:
    condition = value("condition", 1, dtype=DType.BOOL)
    row = Written([value("x", 3), value("y", 1, 3), Value.constant("s", np.int32([1, 3]))],
                  [Step("RESHAPE", ["x", "s"], ["y"])], ["x"], ["y"])  # fmt: skip
    with pytest.raises(
        MaceError, match=r"its branches give shapes \(3,\) and \(1, 3\); they must be the same"
    ):
        load(tmp_path, chosen(condition), unary("EXP"), row)


def test_branches_of_different_numbers_of_results_are_refused(tmp_path: Path) -> None:
    condition = value("condition", 1, dtype=DType.BOOL)
    two = replace(unary("SIN"), outputs=["y", "y"])
    with pytest.raises(MaceError, match="its branches have different numbers of results"):
        load(tmp_path, chosen(condition), unary("EXP"), two)


@pytest.mark.parametrize(("index", "calls"), [(1, True), (0, False), (2, False)])
def test_a_call_of_a_graph_that_the_file_does_not_hold_is_refused(
    index: int, calls: bool, tmp_path: Path
) -> None:
    call = Step("CALL", ["x"], ["y"], ("CallOptions", {"Subgraph": index}))
    main = Written([value("x", 3), value("y", 3)], [call], ["x"], ["y"])
    if calls:
        assert load(tmp_path, main, unary("EXP")).outputs == ("y",)
        return
    with pytest.raises(MaceError, match=f"it calls graph {index}, which the file does not hold"):
        load(tmp_path, main, unary("EXP"))


def test_a_call_with_other_inputs_than_the_graph_has_is_refused(tmp_path: Path) -> None:
    call = Step("CALL", ["x", "x"], ["y"], ("CallOptions", {"Subgraph": 1}))
    main = Written([value("x", 3), value("y", 3)], [call], ["x"], ["y"])
    with pytest.raises(MaceError, match="it calls a graph of 1 inputs with 2"):
        load(tmp_path, main, unary("EXP"))
