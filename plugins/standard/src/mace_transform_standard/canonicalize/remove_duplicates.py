"""remove-duplicates: what is computed twice from the same tensors is computed once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Sequence

from mace_core.ir import Graph, Node
from mace_core.rewrite import Match, rewrite

COMMUTATIVE = ("Add", "Mul", "Minimum", "Maximum", "Equal", "And", "Or", "Xor")
"""Ops whose two inputs may change places."""


def remove_duplicates(graph: Graph) -> Graph:
    """Compute once what is computed twice.

    equal constants first, then nodes of equal op, inputs, attributes.

    Inputs of commutative ops count in any order. Exact: results of equal storage are the same tensors.
    """
    same = _find_equal_constants(graph)
    results: dict[Hashable, tuple[str, ...]] = {}

    def rule(match: Match) -> Sequence[str] | None:
        node = match.node
        inputs = tuple(same.get(i, i) for i in node.inputs)
        key = _make_key(match, inputs)
        if key not in results:
            results[key] = match.emit(node.op, inputs, node.attrs)
        return results[key]

    return rewrite(graph, rule)


def _make_key(match: Match, inputs: tuple[str, ...]) -> Hashable:
    node: Node = match.node
    # Sorted, so that a + b and b + a have one key.
    operands = tuple(sorted(inputs)) if node.op.name in COMMUTATIVE else inputs
    # The same numbers stored with another scale are rounded to other values.
    storages = tuple(match.builder.storages.get(o) for o in node.outputs)
    # As text, in which -0.0 is not 0.0: padding with either, and what is divided by it, differs.
    return node.op.name, operands, repr(node.attrs), storages


def _find_equal_constants(graph: Graph) -> dict[str, str]:
    """For each constant that has an equal before it, that one.

    Only constants of one form are compared at all.
    """
    tensors = {name: graph.tensors[name] for name in graph.weights}
    forms = {name: (t.dtype, t.shape, t.quant) for name, t in tensors.items()}
    count = Counter(forms.values())
    first: dict[Hashable, str] = {}
    same = {}
    for name, form in forms.items():
        # Hashing every weight of a large model would take longer than all other transforms.
        if count[form] > 1:
            content = hashlib.blake2b(graph.weights[name].tobytes()).digest()
            twin = first.setdefault((form, content), name)
            if twin != name:
                same[name] = twin
    return same
