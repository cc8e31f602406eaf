"""Translates operations in the order in which they depend on each other: of the main graph, of branches and of loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mace_core.errors import MaceError
from mace_frontend_tensorflow.flat import Flat, Operation, Ref
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.importer import FlatScope, TensorFlowImporter
from mace_frontend_tensorflow.messages import AttrValue
from mace_frontend_tensorflow.node import TensorFlowNode

OUTPUTS = 64
"""Outputs of a node that failed, as far as anything asks for them."""


def inline(node: TensorFlowNode, function: AttrValue, held: Sequence[Held], tag: str) -> list[Held]:
    """Translate a function that a node names as the body of a branch or loop.

    What its outputs stand for.
    """
    flat = node.importer.called(function)
    node.refuse_unless(
        len(held) == len(flat.arguments),
        f"it gives {len(held)} arguments to a function of {len(flat.arguments)}",
    )
    scope = node.inner(flat, tag)
    scope.bind(((argument, 0) for argument in flat.arguments), held)
    return turn(node.importer, scope, flat.outputs)


def turn(importer: TensorFlowImporter, scope: FlatScope, refs: Sequence[Ref]) -> list[Held]:
    """Translate what computes these outputs in a scope.

    SkippedError if any of its nodes fails, which is noted.
    """
    with importer.enter_subgraph():
        evaluate(importer, scope, refs)
    return [scope.get(ref) for ref in refs]


def evaluate(importer: TensorFlowImporter, scope: FlatScope, refs: Sequence[Ref]) -> None:
    """Translate all operations that these outputs depend on; MaceError for too many."""
    for operation in order(scope.flat, refs, scope.values):
        if not importer.count_expanded(1):
            raise MaceError(
                importer.location,
                f"has more than {importer.limits.nodes} nodes with its loops written out",
                "shorten its loops",
            )
        results = importer.translate(TensorFlowNode(operation, scope, importer))
        # All outputs of a node that failed, as far as anything can ask for them.
        if results is None or results[:1] == [None]:
            results = [None] * OUTPUTS
        for index, result in enumerate(results):
            scope.values.setdefault((operation.name, index), result)


def order(flat: Flat, refs: Sequence[Ref], held: Mapping[Ref, Held]) -> list[Operation]:
    """The operations that compute these outputs from what is held, each after those it reads.

    A cycle is left open.
    """
    found: list[Operation] = []
    entered: set[str] = set()
    stack = [(flat.resolved(ref)[0], False) for ref in reversed(refs) if flat.resolved(ref) not in held]
    while stack:
        name, left = stack.pop()
        operation = flat.operations.get(name)
        if operation is None:
            continue
        if left:
            found.append(operation)
        elif name not in entered:
            entered.add(name)
            stack.append((name, True))
            stack.extend((before, False) for before in _before(flat, operation, held))
    return found


def _before(flat: Flat, operation: Operation, held: Mapping[Ref, Held]) -> Iterator[str]:
    yield from gating(flat, operation)
    yield from (ref[0] for ref in reversed(flat.inputs(operation)) if ref not in held)


def gating(flat: Flat, operation: Operation) -> Iterator[str]:
    """The nodes without whose side of a branch an operation does not run: switches that it waits for."""
    for name in operation.controls:
        source = flat.source((name, 0)) if name in flat.operations else None
        if source is not None and source.op == "Switch":
            yield name
