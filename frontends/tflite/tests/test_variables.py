"""Who reads and who assigns to the variables of a model, also through the graphs that operators call."""

from __future__ import annotations

from pathlib import Path

import pytest
import tflite
from tflite_write import Step, Value, Written, write

from mace_core.ir import DType
from mace_frontend_tflite import source, variables
from mace_frontend_tflite.source import TfliteFile
from mace_frontend_tflite.variables import ANY, ASSIGN, READ


def handle(name: str) -> Value:
    return Value(name, DType.I32, (), kind=tflite.TensorType.RESOURCE)


def declare(name: str, container: str = "c") -> Step:
    return Step(
        "VAR_HANDLE", [], [f"h{name}"], ("VarHandleOptions", {"SharedName": name, "Container": container})
    )


def read_of(name: str, result: str = "r") -> Step:
    return Step("READ_VARIABLE", [f"h{name}"], [result])


def assign(name: str) -> Step:
    return Step("ASSIGN_VARIABLE", [f"h{name}", "x"], [])


def graph(*steps: Step, inputs: str = "x") -> Written:
    values = [
        Value("x", shape=(1,)),
        Value("r", shape=(1,)),
        Value("s", shape=(1,)),
        handle("hu"),
        handle("hv"),
    ]
    return Written(values, steps, inputs.split(), ["x"])


def parse(folder: Path, *graphs: Written) -> TfliteFile:
    file = folder / "case.tflite"
    file.write_bytes(write(*graphs))
    return source.read(file)


CALLS = {
    "IF": ("IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}),
    "WHILE": ("WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}),
    "CALL": ("CallOptions", {"Subgraph": 1}),
    "STABLEHLO_COMPOSITE": ("StableHLOCompositeOptions", {"DecompositionSubgraphIndex": 2}),
    "RELU": None,
}


def call(code: str = "CALL", **fields: int) -> Step:
    options = CALLS[code]
    return Step(code, ["x"], ["r"], (options[0], {**options[1], **fields}) if options else None)


@pytest.mark.parametrize(
    ("step", "called"),
    [
        (call("IF"), [1, 2]),
        (call("WHILE"), [1, 2]),
        (call("CALL"), [1]),
        (call("STABLEHLO_COMPOSITE"), [2]),
        (call("RELU"), []),
        (call("CALL", Subgraph=0), []),
        (call("CALL", Subgraph=2), [2]),
        (call("CALL", Subgraph=3), []),
        (call("IF", ThenSubgraphIndex=-1), [2]),
    ],
)
def test_called_graphs(step: Step, called: list[int], tmp_path: Path) -> None:
    """The main graph, which has the number 0, is called by nothing."""
    file = parse(tmp_path, graph(step), graph(), graph())
    (operator,) = file.subgraphs[0].operators
    assert [inner.index for inner in variables.called_graphs(file, operator)] == called


def test_variable_has_the_name_of_its_handle(tmp_path: Path) -> None:
    file = parse(tmp_path, graph(declare("u"), declare("v", ""), Step("RELU", ["x"], ["r"])))
    main = file.subgraphs[0]
    numbers = {info.name: info.index for info in main.tensors}
    assert variables.variable_name(main, numbers["hu"]) == "c/u"
    assert variables.variable_name(main, numbers["hv"]) == "/v"
    assert variables.variable_name(main, numbers["r"]) == ANY
    assert variables.variable_name(main, numbers["x"]) == ANY


def test_reader_gives_a_variable_its_name(tmp_path: Path) -> None:
    empty = Step("READ_VARIABLE", [], ["r"]), Step("READ_VARIABLE", ["hu"], [])
    steps = (declare("u"), declare("v"), *empty, read_of("v"), read_of("u", "s"), read_of("v", "x"))
    file = parse(tmp_path, graph(*steps))
    assert variables.reader_name(file, "c/v") == "r"
    assert variables.reader_name(file, "c/u") == "s"
    assert variables.reader_name(file, "/w") == "w"


@pytest.mark.parametrize(("code", "names"), [(READ, {"c/u"}), (ASSIGN, {"c/v"})])
def test_variables_of_called_graphs_are_found_once(code: str, names: set[str], tmp_path: Path) -> None:
    """Graph 1 calls graph 2, which calls graph 1 again: the walk ends."""
    first = graph(call("CALL", Subgraph=2), declare("u"), read_of("u"))
    second = graph(call("CALL", Subgraph=1), declare("v"), assign("v"))
    file = parse(tmp_path, graph(call("CALL")), first, second)
    main = file.subgraphs[0]
    assert variables.find_variables(file, main, main.operators[0], code) == names


def test_variables_of_an_operator_itself(tmp_path: Path) -> None:
    steps = (declare("u"), read_of("u"), assign("u"), Step("READ_VARIABLE", [], ["s"]), read_of("v"))
    file = parse(tmp_path, graph(*steps))
    main = file.subgraphs[0]
    results = [
        (
            variables.find_variables(file, main, operator, READ),
            variables.find_variables(file, main, operator, ASSIGN),
        )
        for operator in main.operators
    ]
    assert results == [(set(), set()), ({"c/u"}, set()), (set(), {"c/u"}), (set(), set()), ({ANY}, set())]


def test_what_only_an_initializer_assigns_to_does_not_last(tmp_path: Path) -> None:
    once = Step("CALL_ONCE", [], [], ("CallOnceOptions", {"InitSubgraphIndex": 1}))
    initial = graph(declare("u"), assign("u"), declare("v"), assign("v"))
    file = parse(tmp_path, graph(once, declare("v"), assign("v")), initial)
    assert variables.find_lasting_variables(file) == {"c/v"}
    file = parse(tmp_path, graph(once), initial, graph(declare("u"), assign("u")))
    assert variables.find_lasting_variables(file) == {"c/u"}
    assert variables.find_lasting_variables(parse(tmp_path, graph(), initial)) == {"c/u", "c/v"}
    assert variables.find_lasting_variables(parse(tmp_path, graph(Step("ASSIGN_VARIABLE", [], [])))) == set()


@pytest.mark.parametrize(
    ("steps", "inputs", "assigning"),
    [
        ((declare("u"), read_of("u"), assign("u")), "x", [2]),
        ((declare("u"), assign("u"), read_of("u")), "x", [1]),
        ((declare("u"), declare("v"), read_of("u"), assign("v")), "x", []),
        ((declare("u"), read_of("u"), assign("v")), "x hv", [2]),
        ((declare("v"), read_of("u"), assign("v")), "x hu", [2]),
        ((declare("u"), assign("u")), "x", []),
        ((declare("u"), read_of("u")), "x", []),
        ((read_of("u"), assign("u")), "x hu", [1]),
    ],
)
def test_operators_that_assign_to_what_is_read(
    steps: tuple[Step, ...], inputs: str, assigning: list[int], tmp_path: Path
) -> None:
    """A handle of unknown origin may stand for any variable."""
    file = parse(tmp_path, graph(*steps, inputs=inputs))
    readers = [operator for operator in file.subgraphs[0].operators if operator.code == READ]
    result = variables.find_assigning_operators(file, readers)
    assert [operator.index for operator in result] == assigning
