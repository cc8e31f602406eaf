"""Operators that call other graphs of the file, and variables that initializers fill.

The IR has neither calls nor branches: called graphs are translated in place of the operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.importer import RefusedError
from mace_core.ir import Array
from mace_frontend_tflite.boundary import needed_operators
from mace_frontend_tflite.importer import GraphScope
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler
from mace_frontend_tflite.subgraphs import called_graph, inline, perform
from mace_frontend_tflite.variables import ANY, variable_name

MAX_TURNS = 4096
"""Iterations of a loop that are translated, one after another; the limit on nodes is usually met before."""


def _if(node: TfliteNode) -> Sequence[str]:
    """Translate the one graph that a constant condition selects.

    Else both graphs, and select their results.
    """
    options, condition = node.options("IfOptions"), node.array(0)
    graphs = (options.ThenSubgraphIndex(), options.ElseSubgraphIndex())
    inputs = [node.stored_input(i) for i in range(1, node.count)]
    if condition is not None:
        return inline(node, graphs[0 if bool(condition.reshape(())) else 1], inputs)
    # Both graphs are computed in every run, so neither may have an effect beside its results.
    before = node.importer.snapshot_states()
    sides = []
    for graph in graphs:
        sides.append(inline(node, graph, inputs))
        node.refuse_unless(
            node.importer.snapshot_states() == before,
            "a branch that is chosen at run time changes a state; convert the model without it",
        )
    node.require_consistent(len(sides[0]) == len(sides[1]), "its branches have different numbers of results")
    return [_select_result(node, i, pair) for i, pair in enumerate(zip(*sides, strict=True))]


def _select_result(node: TfliteNode, index: int, pair: Sequence[str]) -> str:
    first, second = (node.tensor(name).shape for name in pair)
    node.refuse_unless(
        first == second, f"its branches give shapes {first} and {second}; they must be the same"
    )
    storage = node.storage(index) if node.has_output(index) else None
    return node.emit("Where", [node.stored_input(0), *pair], tag="chosen", storage=storage)


def _while(node: TfliteNode) -> Sequence[str]:
    """Translate the body once for each iteration; the condition must be a constant each time."""
    options = node.options("WhileOptions")
    carried = [node.stored_input(i) for i in range(node.count)]
    for _ in range(MAX_TURNS):
        # The counter of a loop of fixed length is a constant, so the builder folds its comparison to one as
        # well.
        (condition,) = inline(node, options.CondSubgraphIndex(), carried)
        goes_on: Array | None = node.builder.weights.get(condition)
        if goes_on is None:
            raise RefusedError(
                "whether it goes on is computed at run time; convert the model with a fixed number of turns"
            )
        if not bool(goes_on.reshape(())):
            return carried
        node.require_supported(node.importer.has_room_for(1), "it turns too often to be written out")
        carried = inline(node, options.BodySubgraphIndex(), carried)
    raise RefusedError(f"it turns more than {MAX_TURNS} times, too often to be written out")


def _call(node: TfliteNode) -> Sequence[str]:
    return inline(node, node.options("CallOptions").Subgraph(), node.inputs())


def _composite(node: TfliteNode) -> Sequence[str]:
    """Translate the graph that a composite stands for, as a runtime without a kernel for it does."""
    index = node.options("StableHLOCompositeOptions").DecompositionSubgraphIndex()
    return inline(node, index, [node.stored_input(i) for i in range(node.count)])


def _call_once(node: TfliteNode) -> Sequence[str]:
    """Translate the part of an initializer that assigns to variables.

    The rest of an initializer fills hash tables, whose readers are refused one by one.
    """
    graph = called_graph(node, node.options("CallOnceOptions").InitSubgraphIndex())
    assigning = [operator for operator in graph.operators if operator.code == "ASSIGN_VARIABLE"]
    importer = node.importer
    # The values are collected apart: a variable that lasts begins with its value, and keeps a later one from
    # run to run.
    before, importer.variables = importer.variables, {}
    perform(node, GraphScope(graph=graph), needed_operators(graph, (), (), assigning))
    starts, importer.variables = importer.variables, before
    importer.begin_variables(starts)
    return ()


def _known_variable(node: TfliteNode) -> str:
    name = variable_name(node.graph, node.info(0).index)
    if name == ANY:
        raise RefusedError("its variable is not known here; convert the model without variables")
    return name


def _read_variable(node: TfliteNode) -> str:
    """Return the value that the variable has before this node."""
    name = _known_variable(node)
    if name not in node.importer.variables:
        raise RefusedError(f"variable {name!r} is never given a value; convert the model again")
    return node.importer.variables[name]


def _var_handle(node: TfliteNode) -> Sequence[str]:
    """Add nothing: a handle is no tensor, and its readers look the variable up by its name."""
    return ()


def _assign_variable(node: TfliteNode) -> Sequence[str]:
    name = _known_variable(node)
    node.importer.variables[name] = node.stored_input(1)
    return ()


def _no_table(node: TfliteNode) -> Sequence[str]:
    raise RefusedError(
        "tables that are looked up at run time are not supported; cut the graph behind it with input_tensors"
    )


def _densify(node: TfliteNode) -> str:
    """Return the constant: a sparse one was read with all its elements."""
    node.constant(0, "elements")
    return node.stored_input(0)


def _no_random(node: TfliteNode) -> Sequence[str]:
    raise RefusedError(
        "random numbers are not supported; cut the graph behind it: name its result under input_tensors"
    )


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "IF": _if,
        "WHILE": _while,
        "CALL": _call,
        "STABLEHLO_COMPOSITE": _composite,
        "CALL_ONCE": _call_once,
        "VAR_HANDLE": _var_handle,
        "READ_VARIABLE": _read_variable,
        "ASSIGN_VARIABLE": _assign_variable,
        "DENSIFY": _densify,
        **{f"HASHTABLE{name}": _no_table for name in ("", "_FIND", "_IMPORT", "_LOOKUP", "_SIZE")},
        **dict.fromkeys(("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"), _no_random),
    }
)
