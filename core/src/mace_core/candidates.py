"""Chooses among several candidates for a node: for each level the cheapest, or the one of a tuning file.

A table of lowerings has for each op one function or a tuple of `Candidate`s. Each level of a library may get
another candidate, with other kernels, arguments and packed weights; its calls are made at those levels only
(`Call.levels`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from mace_core.errors import MaceError, PluginError
from mace_core.ir import Node
from mace_core.levels import Level
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.numerics import Numerics
from mace_core.selection import CandidateChoice, NodeKey, Selection
from mace_core.tuning import NO_TUNING, Tuning, TuningEntry, shape_key

Cost = Callable[[Node, Lowering, Level], float]
"""Estimates the cost of a node at a level, in the target's `cost_unit`; lower is better."""


@dataclass(frozen=True)
class Candidate:
    """One way to compute a node.

    name: its name in tuning files and `mace explain`.
    lower: appends its calls, with their kernels, packed weights and scratch; raises Refused for a node that
    it does not take.
    cost: returns the finite cost of a node at a level; called only for nodes that `lower` takes.
    levels: names of the only levels at which it may be used, because its kernel needs their instructions; ()
    for all.
    """

    name: str
    lower: Lower
    cost: Cost
    levels: tuple[str, ...] = ()

    def serves(self, level: Level) -> bool:
        """Tell whether it may be used at a level."""
        return not self.levels or level.name in self.levels


@dataclass(frozen=True)
class Chooser:
    """The rules by which candidates are chosen.

    target: its name.
    levels: those of the library; () in a trial lowering, which runs before an ABI is chosen.
    parameters: returns what lowerings read at a level, see `KernelTarget.parameters`.  unit: that of costs.
    """

    target: str
    levels: tuple[Level, ...]
    parameters: Callable[[Level | None], Hashable]
    unit: str = ""
    tuning: Tuning = NO_TUNING


def lower_by_choice(
    offered: Lower | Sequence[Candidate], node: Node, lowering: Lowering, chooser: Chooser
) -> None:
    """Append the calls of a node, at each level those of the candidate that is chosen for it.

    Raises Refused if no candidate takes the node.
    """
    if not chooser.levels:
        _try(offered, node, lowering)
        return
    # The lowering may still have what a candidate of the node before has set for itself.
    lowering.aim(chooser.parameters(chooser.levels[0]))
    has_integers = any(lowering.tensors[name].quant for name in (*node.inputs, *node.outputs) if name)
    if lowering.numerics is Numerics.REPRODUCIBLE and not callable(offered) and not has_integers:
        # Another candidate would add floats in another order: one serves all levels, on every processor.
        offered = _take_first(offered, node, lowering).lower
    if callable(offered):
        chosen = {level.name: offered for level in chooser.levels}
    else:
        chosen = {
            name: candidate.lower for name, candidate in _choose(offered, node, lowering, chooser).items()
        }
    # Each function is called once for all levels that chose it, in the order of the levels: calls and names
    # must not depend on the order of a set.
    lowers = dict.fromkeys(chosen.values())
    if len(lowers) == 1 and len({chooser.parameters(level) for level in chooser.levels}) == 1:
        # Nearly every node takes this way: nothing depends on the level, so one lowering serves all levels,
        # and no forks have to be made and compared.
        next(iter(lowers))(node, lowering.aim(chooser.parameters(chooser.levels[0])))
        return
    forks: list[Lowering] = []
    for lower in lowers:
        levels = tuple(level for level in chooser.levels if chosen[level.name] is lower)
        forks += _Forking(node, lowering, chooser, forks).lower_at(lower, levels)
    _check_shared_bytes(node, chooser, forks)
    lowering.adopt(forks)


@dataclass(frozen=True)
class _Forking:
    """A node that is lowered separately for different levels.  siblings: its forks so far."""

    node: Node
    lowering: Lowering
    chooser: Chooser
    siblings: Sequence[Lowering]

    def lower_at(self, lower: Lower, levels: Sequence[Level]) -> list[Lowering]:
        """Lower the node for some levels; once if the lowering does not depend on their parameters."""
        # Grouped by value: two levels with equal tiles and packing share calls and packed weights, which
        # makes the library smaller.
        groups: dict[Hashable, list[Level]] = {}
        for level in levels:
            groups.setdefault(self.chooser.parameters(level), []).append(level)
        # Whether a lowering reads the parameters is known only after it ran; its result is then used or
        # dropped.
        first = self._fork(lower, levels, self.siblings)
        if len(groups) == 1 or not first.has_read_parameters:
            return [first]
        forks: list[Lowering] = []
        for group in groups.values():
            forks.append(self._fork(lower, group, [*self.siblings, *forks]))
        return forks

    def _fork(self, lower: Lower, levels: Sequence[Level], siblings: Sequence[Lowering]) -> Lowering:
        is_all = len(levels) == len(self.chooser.levels)
        names = () if is_all else tuple(str(level.name) for level in levels)
        fork = self.lowering.fork(siblings).aim(self.chooser.parameters(levels[0]), names)
        lower(self.node, fork)
        return fork


def _check_shared_bytes(node: Node, chooser: Chooser, forks: Sequence[Lowering]) -> None:
    """Raise PluginError unless all levels alias the same tensors."""
    # The level is chosen when a library is opened, but offsets in the arena are constants of the build.
    first, *others = (fork.new_aliases for fork in forks)
    if any(dict(other) != dict(first) for other in others):
        problem = (
            f"node {node.name!r} ({node.op.name}): its calls at different levels alias different tensors"
        )
        remedy = "let every candidate write its results, or alias the same tensors"
        raise PluginError(f"target {chooser.target!r}", problem, remedy)


def _try(offered: Lower | Sequence[Candidate], node: Node, lowering: Lowering) -> None:
    """Append the calls of the first candidate that takes the node at every level.

    Candidates of single levels do not count: whether a target takes a node, and with it the partition, must
    not depend on what is chosen later.
    """
    if callable(offered):
        offered(node, lowering)
        return
    reasons: dict[str, Refused] = {}
    for candidate in offered:
        if not candidate.levels and (fork := _try_candidate(candidate, node, lowering, reasons)):
            lowering.adopt([fork])
            return
    raise _join_reasons(node, reasons)


def _take_first(offered: Sequence[Candidate], node: Node, lowering: Lowering) -> Candidate:
    """Return the first candidate that takes the node at every level; raises Refused if none does."""
    reasons: dict[str, Refused] = {}
    for candidate in offered:
        if not candidate.levels and _try_candidate(candidate, node, lowering, reasons):
            return candidate
    raise _join_reasons(node, reasons)


def _try_candidate(
    candidate: Candidate, node: Node, lowering: Lowering, reasons: dict[str, Refused]
) -> Lowering | None:
    """Return a fork with the calls of a candidate; None if it refuses the node, see `reasons`."""
    fork = lowering.fork()
    try:
        candidate.lower(node, fork)
    except Refused as reason:
        reasons[candidate.name] = reason
        return None
    return fork


def _join_reasons(node: Node, reasons: Mapping[str, Refused]) -> Refused:
    if len({str(reason) for reason in reasons.values()}) == 1:
        return next(iter(reasons.values()))
    if not reasons:
        return Refused(f"no candidate for {node.op.name} serves every level", code="unsupported-op")
    reason = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    # Targets list their candidates from the most special to the most general. What the last one lacks is what
    # the user can change with the best chance.
    last = [*reasons.values()][-1].refusal
    return Refused(reason, code=last.code, remedy=last.remedy)


def _choose(
    offered: Sequence[Candidate], node: Node, lowering: Lowering, chooser: Chooser
) -> dict[str, Candidate]:
    """Return the candidate for each level, by the level's name, and record the selection."""
    names = [candidate.name for candidate in offered]
    if len({*names}) < len(names):
        raise PluginError(
            f"target {chooser.target!r}",
            f"two candidates for {node.op.name} have the same name: {', '.join(names)}",
        )
    # Every candidate is tried on a fork that is dropped: only the calls of the chosen one may stay. Those of
    # other levels are not tried, because what they would pack or prove may take long.
    serving_any = [candidate for candidate in offered if any(map(candidate.serves, chooser.levels))]
    reasons: dict[str, Refused] = {}
    taking = [candidate for candidate in serving_any if _try_candidate(candidate, node, lowering, reasons)]
    shapes = shape_key([lowering.tensors[name] for name in node.inputs if name])
    key = NodeKey(chooser.target, node.name, node.op.name, shapes)
    chosen: dict[str, Candidate] = {}
    choices: list[CandidateChoice] = []
    for level in chooser.levels:
        serving = {candidate.name: candidate for candidate in taking if candidate.serves(level)}
        if not serving:
            raise _join_reasons(node, reasons)
        costs = {
            name: _cost(candidate, node, lowering.aim(chooser.parameters(level)), level)
            for name, candidate in serving.items()
        }
        choice = _decide(key, str(level.name), costs, chooser.tuning)
        choices.append(choice)
        chosen[level.name] = serving[choice.candidate]
    refused = MappingProxyType({name: str(reason) for name, reason in reasons.items()})
    lowering.selections.append(Selection(key, chooser.unit, tuple(choices), refused))
    return chosen


def _decide(key: NodeKey, level: str, costs: Mapping[str, float], tuning: Tuning) -> CandidateChoice:
    """Choose by the tuning file, else by cost; of equal costs the candidate that the target lists first.

    An entry that names no candidate of the level decides nothing here: `check_tuning` refuses it, together
    with all others.
    """
    entry = tuning.find(key, level)
    if entry and entry.candidate in costs:
        return CandidateChoice(level, entry.candidate, f"named by {tuning.place(entry)}", costs)
    cheapest = min(costs, key=lambda name: costs[name])
    return CandidateChoice(level, cheapest, "lowest cost" if len(costs) > 1 else "only candidate", costs)


def _cost(candidate: Candidate, node: Node, lowering: Lowering, level: Level) -> float:
    cost = float(candidate.cost(node, lowering, level))
    if not math.isfinite(cost):
        remedy = "return a finite number, and let `lower` refuse a node that it does not take"
        raise PluginError(
            f"candidate {candidate.name!r}", f"says that {node.op.name} costs {cost} at {level.name}", remedy
        )
    return cost


def check_tuning(tuning: Tuning, selections: Sequence[Selection]) -> None:
    """Raise MaceError with every entry of a tuning file that names an unknown node, level or candidate."""
    faults = []
    for entry in tuning.entries:
        selected = [selection for selection in selections if entry.is_about(selection.key)]
        if problem := _problem(entry, selected, selections):
            faults.append(str(MaceError(tuning.place(entry), *problem)))
    if faults:
        raise MaceError.of(faults)


def _problem(
    entry: TuningEntry, selected: Sequence[Selection], selections: Sequence[Selection]
) -> tuple[str, str] | None:
    """Return what is wrong with an entry and what to do; None if it applies to each node that it names.

    selected: the selections of those nodes.
    """
    if not selected:
        known = sorted({_describe(entry, selection) for selection in selections})
        problem = f"{entry.subject}: the model has no such node with several candidates"
        return problem, f"nodes with several candidates: {', '.join(known) or 'none'}"
    for selection in selected:
        choices = [choice for choice in selection.choices if entry.level in ("", choice.level)]
        if not choices:
            levels = ", ".join(choice.level for choice in selection.choices)
            problem = f"target {selection.key.target} has no level {entry.level!r} here"
            return problem, f"its levels are {levels}; write abi for an entry about another ABI"
        if entry.candidate in selection.refused:
            reason = selection.refused[entry.candidate]
            problem = f"candidate {entry.candidate!r} does not take {entry.subject}: {reason}"
            return problem, f"choose one of {', '.join(choices[0].costs)}"
        for choice in choices:
            if entry.candidate not in choice.costs:
                known_names = ", ".join(choice.costs)
                return (
                    f"no candidate {entry.candidate!r} for {entry.subject} at level {choice.level}",
                    f"choose one of {known_names}",
                )
    return None


def _describe(entry: TuningEntry, selection: Selection) -> str:
    """Return how an entry of this kind would name the node of a selection."""
    return selection.key.node if entry.node else f"{selection.key.op} of {selection.key.shapes!r}"
