"""Finds the variables of a model: who reads them, who assigns to them, and which operators must be translated for that.

A variable is known by the container and name of its VAR_HANDLE. A handle that a graph gets as an argument may
stand for any variable.
"""

from __future__ import annotations

from collections.abc import Iterator

from mace_frontend_tflite.source import Operator, Source, Subgraph

READ, ASSIGN, ONCE = "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"

ANY = ""
"""The name of a variable whose handle comes from elsewhere."""

_CALLS = {
    "IF": ("IfOptions", ("ThenSubgraphIndex", "ElseSubgraphIndex")),
    "WHILE": ("WhileOptions", ("CondSubgraphIndex", "BodySubgraphIndex")),
    "CALL": ("CallOptions", ("Subgraph",)),
    "STABLEHLO_COMPOSITE": ("StableHLOCompositeOptions", ("DecompositionSubgraphIndex",)),
}


def variable_name(graph: Subgraph, index: int) -> str:
    """Return the name of the variable that a handle stands for; ANY where the graph does not tell."""
    maker = graph.makers.get(index)
    if maker is None or maker.code != "VAR_HANDLE":
        return ANY
    options = maker.options("VarHandleOptions")
    return "/".join(
        (part or b"").decode(errors="replace") for part in (options.Container(), options.SharedName())
    )


def reader_name(source: Source, variable: str) -> str:
    """Return the name of the tensor that a variable is first read into, by which users know it.

    Else its own.
    """
    for graph in source.subgraphs:
        for operator in graph.operators:
            if (
                operator.code == READ
                and operator.inputs
                and variable_name(graph, operator.inputs[0]) == variable
                and operator.outputs
            ):
                return graph.tensors[operator.outputs[0]].name
    return variable.strip("/")


def touched(source: Source, graph: Subgraph, operator: Operator, code: str) -> set[str]:
    """Return the names of the variables that an operator, or a graph that it calls, reads or assigns to, as `code` says."""
    if operator.code == code and operator.inputs:
        return {variable_name(graph, operator.inputs[0])}
    found: set[str] = set()
    seen: set[int] = set()
    waiting = list(called_graphs(source, operator))
    while waiting:
        called = waiting.pop()
        if called.index in seen:
            continue
        seen.add(called.index)
        for inner in called.operators:
            if inner.code == code and inner.inputs:
                found.add(variable_name(called, inner.inputs[0]))
            waiting.extend(called_graphs(source, inner))
    return found


def called_graphs(source: Source, operator: Operator) -> Iterator[Subgraph]:
    """Yield the graphs that an operator calls, those that the file lacks left out."""
    kind, fields = _CALLS.get(operator.code, ("", ()))
    for field in fields:
        index = getattr(operator.options(kind), field)()
        if 0 < index < len(source.subgraphs):
            yield source.subgraphs[index]


def lasting(source: Source) -> set[str]:
    """Return the variables that anything but an initializer assigns to, so that their values last from one run to the next."""
    initial = {
        o.options("CallOnceOptions").InitSubgraphIndex()
        for g in source.subgraphs
        for o in g.operators
        if o.code == ONCE
    }
    found: set[str] = set()
    for graph in source.subgraphs:
        if graph.index not in initial:
            found |= {
                variable_name(graph, o.inputs[0]) for o in graph.operators if o.code == ASSIGN and o.inputs
            }
    return found


def assigning(source: Source, read: list[Operator]) -> list[Operator]:
    """Return the operators of the main graph that assign to a variable which one of the operators `read` reads, in this run or the next."""
    main = source.subgraphs[0]
    if not any(operator.code == ASSIGN for graph in source.subgraphs for operator in graph.operators):
        return []
    wanted: set[str] = set()
    for operator in read:
        wanted |= touched(source, main, operator, READ)
    found = []
    for operator in main.operators:
        names = touched(source, main, operator, ASSIGN)
        if names and wanted and (names & wanted or ANY in names | wanted):
            found.append(operator)
    return found
