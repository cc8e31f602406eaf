"""The nodes of a tree ensemble as the IR wants them: in one list, children behind their parents, every descent known to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mace_core.importer import RefusedError
from mace_core.ops.tree_ensemble import LEAF, MAX_NODES, MISSING, TESTS

MEMBER = len(TESTS)
"""The code of a node that asks whether its feature is one of several; written out as a chain of ==."""

EQUAL = TESTS.index("==")


End = tuple[int, tuple[tuple[int, int], ...]]
"""A node of the file that is not laid out yet, and where it hangs: numbers of parents and their sides, 1 or 2."""


@dataclass(frozen=True)
class Nodes:
    """Trees as a file holds them, all lists of the same length, children by their place in them.

    leaves: for each node whether it is a leaf.  missing: whether NaN passes its test.
    yes, no: the children; of a leaf nothing.  members: of a MEMBER node what it asks for.
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
class Plan:
    """The IR's arrays of a TreeEnsemble, as lists that grow."""

    splits: list[float] = field(default_factory=list)
    links: list[list[int]] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)

    def add(self, feature: int, code: int, split: float) -> int:
        """Append a node whose children are not known yet; its number."""
        self.links.append([feature, 0, 0])
        self.modes.append(code)
        self.splits.append(split)
        return len(self.links) - 1


def plan(nodes: Nodes, roots: Sequence[int], ranges: Sequence[tuple[int, int]]) -> Plan:
    """Lay out the trees that start at `roots`.

    ranges: for each node of the file the range of weights that it adds as a leaf.
    RefusedError for an inner node that is reached twice, which a circle is, too. A leaf may be shared: it is
    written down for each parent.
    """
    made, seen = Plan(), set[int]()
    for root in roots:
        made.roots.append(len(made.links))
        open_ends: list[End] = [(root, ())]
        while open_ends:
            at, slots = open_ends.pop()
            if not 0 <= at < len(nodes.features):
                raise RefusedError(
                    f"a node leads to node {at} of {len(nodes.features)}; export the model again"
                )
            if at in seen:
                raise RefusedError(
                    f"node {at} is reached twice, so that it is in no tree; export the model again"
                )
            number = len(made.links)
            for parent, side in slots:
                made.links[parent][side] = number
            if nodes.leaves[at]:
                made.add(LEAF, 0, 0.0)
                made.links[number][1:] = ranges[at]
            else:
                seen.add(at)
                open_ends.extend(_inner(made, nodes, at))
            if len(made.links) > MAX_NODES:
                raise RefusedError(f"more than {MAX_NODES} nodes")
    return made


def _inner(made: Plan, nodes: Nodes, at: int) -> list[End]:
    """Append an inner node, or the chain of tests that a MEMBER node is.

    Its children, the first to be laid out last.
    """
    feature, passes, code = int(nodes.features[at]), MISSING * bool(nodes.missing[at]), int(nodes.codes[at])
    members = nodes.members.get(at, ()) if code == MEMBER else (nodes.splits[at],)
    if not 0 <= code <= MEMBER or not members:
        raise RefusedError(f"node {at} has mode {code} with {len(members)} values; export the model again")
    tests = [
        made.add(feature, (EQUAL if code == MEMBER else code) + passes, float(value)) for value in members
    ]
    for test, following in pairwise(tests):
        made.links[test][2] = following
    return [(int(nodes.no[at]), ((tests[-1], 2),)), (int(nodes.yes[at]), tuple((test, 1) for test in tests))]
