"""Finds the variables of a model: who reads them, and who assigns to them.

A variable is known by the container and name of its VAR_HANDLE. A handle that a graph gets as an argument may
stand for any variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mace_frontend_tflite.source import Operator, Subgraph, TfliteFile

READ, ASSIGN, ONCE = "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"

ANY = ""
"""The name of a variable whose handle comes from elsewhere."""

_CALLS = {
    "IF": ("IfOptions", ("ThenSubgraphIndex", "ElseSubgraphIndex")),
    "WHILE": ("WhileOptions", ("CondSubgraphIndex", "BodySubgraphIndex")),
    "CALL": ("CallOptions", ("Subgraph",)),
    "STABLEHLO_COMPOSITE": ("StableHLOCompositeOptions", ("DecompositionSubgraphIndex",)),
}
"""Operators that call graphs -> the table of their options, and the fields that number the graphs."""


def variable_name(graph: Subgraph, index: int) -> str:
    """Return the name of the variable that a handle stands for; ANY where the graph does not say."""
    producer = graph.producers.get(index)
    if producer is None or producer.code != "VAR_HANDLE":
        return ANY
    options = producer.options("VarHandleOptions")
    parts = (options.Container(), options.SharedName())
    return "/".join((part or b"").decode(errors="replace") for part in parts)


def reader_name(source: TfliteFile, variable: str) -> str:
    """Return the name of the tensor that a variable is first read into, by which users know it.

    The variable's own name if nothing reads it.
    """
    for graph in source.subgraphs:
        for operator in graph.operators:
            if operator.code != READ or not (operator.inputs and operator.outputs):
                continue
            if variable_name(graph, operator.inputs[0]) == variable:
                return graph.tensors[operator.outputs[0]].name
    return variable.strip("/")


def find_variables(source: TfliteFile, graph: Subgraph, operator: Operator, code: str) -> set[str]:
    """Return the names of the variables that an operator, or a graph that it calls, reads or assigns to.

    code: READ or ASSIGN.
    """
    if operator.code == code and operator.inputs:
        return {variable_name(graph, operator.inputs[0])}
    names: set[str] = set()
    visited: set[int] = set()
    waiting = list(called_graphs(source, operator))
    while waiting:
        called = waiting.pop()
        if called.index in visited:
            continue
        visited.add(called.index)
        names |= _direct_variables(called, code)
        for inner in called.operators:
            waiting.extend(called_graphs(source, inner))
    return names


def _direct_variables(graph: Subgraph, code: str) -> set[str]:
    """Return the variables that the operators of one graph itself read or assign to."""
    handles = [
        operator.inputs[0] for operator in graph.operators if operator.code == code and operator.inputs
    ]
    return {variable_name(graph, handle) for handle in handles}


def called_graphs(source: TfliteFile, operator: Operator) -> Iterator[Subgraph]:
    """Yield the graphs that an operator calls, those that the file lacks left out."""
    kind, fields = _CALLS.get(operator.code, ("", ()))
    for field in fields:
        index = getattr(operator.options(kind), field)()
        if 0 < index < len(source.subgraphs):
            yield source.subgraphs[index]


def find_lasting_variables(source: TfliteFile) -> set[str]:
    """Return the variables whose values last from one run to the next.

    They are those that anything but an initializer assigns to: what only an initializer sets is the same in
    every run.
    """
    initial: set[int] = set()
    for graph in source.subgraphs:
        calls = [operator for operator in graph.operators if operator.code == ONCE]
        initial.update(call.options("CallOnceOptions").InitSubgraphIndex() for call in calls)
    names: set[str] = set()
    for graph in source.subgraphs:
        if graph.index not in initial:
            names |= _direct_variables(graph, ASSIGN)
    return names


def find_assigning_operators(source: TfliteFile, readers: Sequence[Operator]) -> list[Operator]:
    """Return the operators of the main graph that assign to a variable which one of `readers` reads.

    It may be read in this run or, where it is assigned behind the reader, in the next.
    """
    main = source.subgraphs[0]
    # Most models have no variables, and the walk through all called graphs is long for large ones.
    if not any(_direct_variables(graph, ASSIGN) for graph in source.subgraphs):
        return []
    read: set[str] = set()
    for operator in readers:
        read |= find_variables(source, main, operator, READ)
    assigning = []
    for operator in main.operators:
        assigned = find_variables(source, main, operator, ASSIGN)
        if assigned and read and (assigned & read or ANY in assigned | read):
            assigning.append(operator)
    return assigning
