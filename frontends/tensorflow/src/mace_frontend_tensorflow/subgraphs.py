"""Translates operations of the main graph, of branches and of loops, each after those that it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mace_core.errors import MaceError
from mace_frontend_tensorflow.flat import Flat, GraphOperation, Ref
from mace_frontend_tensorflow.importer import FlatScope, TensorFlowImporter
from mace_frontend_tensorflow.messages import AttrValue
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.values import OptionalValue

MAX_OUTPUTS = 64
"""Outputs of a node that failed or is not run: how many it would have had is not known."""


def inline(
    node: TensorFlowNode, function: AttrValue, arguments: Sequence[OptionalValue], tag: str
) -> list[OptionalValue]:
    """Translate the body of a branch or loop, a function that a node names; return its outputs' values."""
    flat = node.importer.find_body(function)
    node.refuse_unless(
        len(arguments) == len(flat.arguments),
        f"it gives {len(arguments)} arguments to a function of {len(flat.arguments)}",
    )
    scope = node.inner(flat, tag)
    scope.bind(((argument, 0) for argument in flat.arguments), arguments)
    return translate_outputs(node.importer, scope, flat.outputs)


def translate_outputs(
    importer: TensorFlowImporter, scope: FlatScope, refs: Sequence[Ref]
) -> list[OptionalValue]:
    """Translate what computes these outputs in a scope; return their values.

    SkippedError if one of its nodes fails, whose fault is noted.
    """
    with importer.enter_subgraph():
        evaluate(importer, scope, refs)
    return [scope.get(ref) for ref in refs]


def evaluate(importer: TensorFlowImporter, scope: FlatScope, refs: Sequence[Ref]) -> None:
    """Translate all operations that these outputs depend on; MaceError for too many."""
    for operation in order_operations(scope.flat, refs, scope.values):
        if not importer.count_expanded(1):
            raise MaceError(
                importer.location,
                f"has more than {importer.limits.nodes} nodes when its loops are unrolled",
                "shorten its loops",
            )
        results = importer.translate(TensorFlowNode(operation, scope, importer))
        # A node that fails has no outputs: without values for them its readers would be reported as faults
        # too.
        if results is None or results[:1] == [None]:
            results = [None] * MAX_OUTPUTS
        for index, result in enumerate(results):
            # A value that is there already is one at which the deployment file cuts the graph.
            scope.values.setdefault((operation.name, index), result)


def order_operations(
    flat: Flat, refs: Sequence[Ref], known: Mapping[Ref, OptionalValue]
) -> list[GraphOperation]:
    """Return the operations that compute these outputs from known ones, each after those that it reads.

    Files list operations in any order. A cycle is left open: the first operation of it reads one that
    follows.
    """
    ordered: list[GraphOperation] = []
    entered: set[str] = set()
    # A stack of our own: models are deeper than Python's.
    stack = [(flat.resolve(ref)[0], False) for ref in reversed(refs) if flat.resolve(ref) not in known]
    while stack:
        name, is_complete = stack.pop()
        operation = flat.operations.get(name)
        if operation is None:
            continue
        if is_complete:
            ordered.append(operation)
        elif name not in entered:
            entered.add(name)
            stack.append((name, True))
            stack.extend((name_before, False) for name_before in _dependencies(flat, operation, known))
    return ordered


def _dependencies(flat: Flat, operation: GraphOperation, known: Mapping[Ref, OptionalValue]) -> Iterator[str]:
    yield from gating_switches(flat, operation)
    yield from (ref[0] for ref in reversed(flat.inputs(operation)) if ref not in known)


def gating_switches(flat: Flat, operation: GraphOperation) -> Iterator[str]:
    """Yield the names of operations that an operation waits for and that pass a side of a Switch on.

    TensorFlow 1 holds constants inside of a branch to that branch in this way: without it they would run
    always.
    """
    for name in operation.controls:
        source = flat.source((name, 0)) if name in flat.operations else None
        if source is not None and source.op == "Switch":
            yield name
