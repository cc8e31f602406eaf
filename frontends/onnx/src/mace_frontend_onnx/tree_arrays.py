"""Lays out tree ensembles as the IR has them: one list, children behind their parents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mace_core.importer import RefusedError
from mace_core.ops.tree_ensemble import LEAF, MAX_NODES, MISSING, TESTS

MEMBER = len(TESTS)
"""The code of a node that tests whether its feature is in a set; becomes a chain of == nodes."""

EQUAL = TESTS.index("==")

PASSED, FAILED = 1, 2
"""Columns of a link: the child after a test that holds, and after one that does not."""

Slot = tuple[int, int]
"""A place in a link that is still open: the number of the parent, and PASSED or FAILED."""

PendingNode = tuple[int, tuple[Slot, ...]]
"""A node of the file that is not laid out yet, and the slots that get its number."""


@dataclass(frozen=True)
class TreeNodes:
    """Trees as a file has them: lists of the same length, in which a node's index stands for the node.

    leaves: for each node whether it is a leaf.  missing: whether NaN passes its test.
    yes, no: the children; without meaning for a leaf.  members: the set of each MEMBER node.
    """

    features: Sequence[int]
    codes: Sequence[int]
    splits: Sequence[float]
    missing: Sequence[int]
    yes: Sequence[int]
    no: Sequence[int]
    leaves: Sequence[bool]
    members: dict[int, Sequence[float]] = field(default_factory=dict)


@dataclass
class TreeArrays:
    """The IR's arrays of a TreeEnsemble, as lists that grow."""

    splits: list[float] = field(default_factory=list)
    links: list[list[int]] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)

    def add(self, feature: int, code: int, split: float) -> int:
        """Append a node whose children are not known yet; return its number."""
        self.links.append([feature, 0, 0])
        self.modes.append(code)
        self.splits.append(split)
        return len(self.links) - 1


def lay_out(nodes: TreeNodes, roots: Sequence[int], ranges: Sequence[tuple[int, int]]) -> TreeArrays:
    """Return the trees that start at `roots` as the IR's arrays.

    ranges: for each node of the file the range of weights that it adds as a leaf.

    A leaf may be shared; it is copied for each parent. Raises RefusedError for an inner node that is reached
    twice, because that covers circles, in which a descent would not end.
    """
    arrays, visited = TreeArrays(), set[int]()
    for root in roots:
        arrays.roots.append(len(arrays.links))
        pending: list[PendingNode] = [(root, ())]
        while pending:
            index, slots = pending.pop()
            _check_index(nodes, index, visited)
            number = len(arrays.links)
            for parent, side in slots:
                arrays.links[parent][side] = number
            if nodes.leaves[index]:
                arrays.add(LEAF, 0, 0.0)
                arrays.links[number][1:] = ranges[index]
            else:
                visited.add(index)
                pending.extend(_add_inner_node(arrays, nodes, index))
            if len(arrays.links) > MAX_NODES:
                raise RefusedError(f"more than {MAX_NODES} nodes")
    return arrays


def _check_index(nodes: TreeNodes, index: int, visited: set[int]) -> None:
    if not 0 <= index < len(nodes.features):
        text = f"a node leads to node {index} of {len(nodes.features)}"
        raise RefusedError(f"{text}; export the model again")
    if index in visited:
        raise RefusedError(f"node {index} is reached twice, so that it is in no tree; export the model again")


def _add_inner_node(arrays: TreeArrays, nodes: TreeNodes, index: int) -> list[PendingNode]:
    """Append an inner node, or the chain of tests that replaces a MEMBER node; return its children.

    The last of them is laid out first, directly behind the node.
    """
    feature, code = int(nodes.features[index]), int(nodes.codes[index])
    missing = MISSING if nodes.missing[index] else 0
    members = nodes.members.get(index, ()) if code == MEMBER else (nodes.splits[index],)
    if not 0 <= code <= MEMBER or not members:
        text = f"node {index} has mode {code} with {len(members)} values"
        raise RefusedError(f"{text}; export the model again")
    # A negative number would say that the node is a leaf: the IR's code for one is -1.
    if feature < 0:
        raise RefusedError(f"node {index} reads feature {feature}; export the model again")
    test_code = EQUAL if code == MEMBER else code
    tests = [arrays.add(feature, test_code + missing, float(value)) for value in members]
    for test, following in pairwise(tests):
        arrays.links[test][FAILED] = following
    passed = tuple((test, PASSED) for test in tests)
    return [(int(nodes.no[index]), ((tests[-1], FAILED),)), (int(nodes.yes[index]), passed)]
