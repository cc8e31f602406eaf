"""Operators that call other graphs of the file: branches, loops, functions.

And variables that initialisers fill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.importer import RefusedError
from mace_core.ir import Array
from mace_frontend_tflite.boundary import between
from mace_frontend_tflite.importer import GraphScope
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler
from mace_frontend_tflite.subgraphs import called_graph, inline, perform
from mace_frontend_tflite.variables import ANY, variable_name

TURNS = 4096
"""How often a loop may turn and still be written out."""


def _if(node: TfliteNode) -> Sequence[str]:
    """Of a known condition the one graph.

    Else both, and one of their results: neither has an effect besides.
    """
    options, condition = node.options("IfOptions"), node.array(0)
    graphs = (options.ThenSubgraphIndex(), options.ElseSubgraphIndex())
    inputs = [node.stored(i) for i in range(1, node.count)]
    if condition is not None:
        return inline(node, graphs[0 if bool(condition.reshape(())) else 1], inputs)
    before = node.importer.marks()
    sides = []
    for graph in graphs:
        sides.append(inline(node, graph, inputs))
        node.refuse_unless(
            node.importer.marks() == before,
            "a branch that is chosen at run time changes a state; convert the model without it",
        )
    node.refuse_unless(len(sides[0]) == len(sides[1]), "its branches have different numbers of results")
    return [_chosen(node, i, pair) for i, pair in enumerate(zip(*sides, strict=True))]


def _chosen(node: TfliteNode, index: int, pair: Sequence[str]) -> str:
    shapes = [node.tensor(name).shape for name in pair]
    node.refuse_unless(
        shapes[0] == shapes[1], f"its branches give shapes {shapes[0]} and {shapes[1]}; they must be the same"
    )
    storage = node.storage(index) if node.has_output(index) else None
    return node.emit("Where", [node.stored(0), *pair], tag="chosen", storage=storage)


def _while(node: TfliteNode) -> Sequence[str]:
    """Write the body out once a turn; whether to go on must be known each time."""
    options = node.options("WhileOptions")
    carried = [node.stored(i) for i in range(node.count)]
    for _ in range(TURNS):
        (going,) = inline(node, options.CondSubgraphIndex(), carried)
        held: Array | None = node.builder.weights.get(going)
        if held is None:
            raise RefusedError(
                "whether it goes on is computed at run time; convert the model with a fixed number of turns"
            )
        if not bool(held.reshape(())):
            return carried
        node.refuse_unless(node.importer.has_room_for(1), "it turns too often to be written out")
        carried = inline(node, options.BodySubgraphIndex(), carried)
    raise RefusedError(f"it turns more than {TURNS} times, too often to be written out")


def _call(node: TfliteNode) -> Sequence[str]:
    return inline(node, node.options("CallOptions").Subgraph(), node.inputs())


def _composite(node: TfliteNode) -> Sequence[str]:
    """A function of the model, written out."""
    index = node.options("StableHLOCompositeOptions").DecompositionSubgraphIndex()
    return inline(node, index, [node.stored(i) for i in range(node.count)])


def _call_once(node: TfliteNode) -> Sequence[str]:
    """An initialiser: what it assigns to variables, and nothing else of it."""
    graph = called_graph(node, node.options("CallOnceOptions").InitSubgraphIndex())
    assigned = [o for o in graph.operators if o.code == "ASSIGN_VARIABLE"]
    makers, _ = between(graph, (), [i for o in assigned for i in o.inputs])
    needed = {o.index: o for o in (*makers, *assigned)}
    importer = node.importer
    before, importer.variables = importer.variables, {}
    perform(node, GraphScope(graph=graph), [needed[i] for i in sorted(needed)])
    starts, importer.variables = importer.variables, before
    importer.begin_variables(starts)
    return ()


def _named(node: TfliteNode) -> str:
    name = variable_name(node.graph, node.info(0).index)
    if name == ANY:
        raise RefusedError("its variable is not known here; convert the model without variables")
    return name


def _read_variable(node: TfliteNode) -> str:
    """What the variable holds at this place of the run."""
    name = _named(node)
    if name not in node.importer.variables:
        raise RefusedError(f"variable {name!r} is never given a value; convert the model again")
    return node.importer.variables[name]


def _var_handle(node: TfliteNode) -> Sequence[str]:
    """A variable's handle is no tensor: whoever reads it asks for the name."""
    return ()


def _assign_variable(node: TfliteNode) -> Sequence[str]:
    name = _named(node)
    node.importer.variables[name] = node.stored(1)
    return ()


def _no_table(node: TfliteNode) -> Sequence[str]:
    raise RefusedError(
        "tables that are looked up at run time are not supported; cut the graph behind it with input_tensors"
    )


def _densify(node: TfliteNode) -> str:
    """A sparse constant with all its elements: that is how it was read."""
    node.constant(0, "elements")
    return node.stored(0)


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
