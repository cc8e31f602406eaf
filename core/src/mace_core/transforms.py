"""Runs the installed transforms, phase by phase.

Core knows the phases and no transform by name: a transform joins a phase by being installed, and states
with a reason which others of that phase it must follow or precede.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from itertools import pairwise

from mace_core.api import Reasons, Repeat, Transform
from mace_core.distributions import advise_install
from mace_core.errors import MaceError, PluginError
from mace_core.ir import Graph
from mace_core.plugin_loader import Plugin
from mace_core.registry import Registry
from mace_core.verify import verify


@dataclass(frozen=True)
class Phase:
    """A stage of the transforms.

    before, after: what holds of a graph when the phase begins, and when it has ended, as a sentence each.
    rounds: how often the whole phase runs; because: why more than once.
    """

    name: str
    before: str
    after: str
    rounds: int = 1
    because: str = ""


PHASES = (
    Phase(
        "layout",
        "The graph is as its frontend wrote it: Transposes surround channels-first spatial ops.",
        "One order of axes goes through the model as far as its operators allow.",
    ),
    Phase(
        "canonicalize",
        "Operators are written in the ways of their framework, and some of them change nothing.",
        "Every node has an effect, nothing is computed twice, and each computation has one form.",
    ),
    Phase(
        "fuse",
        "Functions that the framework spelled out are patterns of canonical nodes.",
        "A function that one op computes is one node; what filters can absorb is next to them.",
    ),
    Phase(
        "fold",
        "Factors and summands along the channels follow convolutions and products.",
        "They are part of the filters and the bias before them.",
        rounds=2,
        because="a factor behind an addend reaches the filters only after round 1 made the addend their bias",
    ),
    Phase(
        "combine",
        "All constants that filters take in from behind are part of them.",
        "Constants before filters, 1x1 filters and limits are part of their neighbors; the rest is one node.",
    ),
    Phase(
        "quantize",
        "Quantized models compute in floats between Dequantize and Quantize.",
        "Operators between the two compute on the stored integers.",
    ),
    Phase(
        "cleanup",
        "No transform needs a Transpose or Reshape in its place any more.",
        "The Transposes that remain move elements, and no two nodes that only move or reshape can be one.",
    ),
)
"""All phases, in the order in which they run: the fewest that need no transform twice in a phase."""


@dataclass(frozen=True)
class Pass:
    """A transform in its place in a phase.

    plugin: who offers it.  because: why the transform runs in this phase besides its own; empty in its own.
    """

    phase: Phase
    transform: Transform
    plugin: Plugin
    after: Reasons
    before: Reasons
    because: str = ""

    def __str__(self) -> str:
        return f"transform {self.transform.name!r} of {self.plugin}"


def run_phases(graph: Graph, registry: Registry) -> Graph:
    """Return the graph after every installed transform, verified; it computes the same.

    A graph is right as a frontend gives it: transforms only make what is built of it smaller and faster. They
    may add notes.
    """
    passes: list[Pass] = []
    for ordered in order_phases(registry):
        passes += ordered * ordered[0].phase.rounds
    result = graph
    for step in passes:
        result = _apply(step, result)
    try:
        verify(result)
    except MaceError as error:
        if culprit := _find_culprit(passes, graph):
            raise culprit from error
        raise
    return result


def order_phases(registry: Registry) -> tuple[tuple[Pass, ...], ...]:
    """Return the passes of each phase that has any, in the order in which they run.

    MaceError names every fault with the transforms and distributions that it lies between.
    """
    passes = list(_list_passes(registry))
    if faults := [*_find_faults(passes)]:
        raise MaceError.of(faults)
    ordered = (_order_phase({p.transform.name: p for p in passes if p.phase is phase}) for phase in PHASES)
    return tuple(filter(None, ordered))


def describe_empty_phases(registry: Registry) -> str | None:
    """Say for which phases no transform is installed, and what installs some; None if all have one."""
    filled = {passes[0].phase.name for passes in order_phases(registry)}
    empty = [phase.name for phase in PHASES if phase.name not in filled]
    if not empty:
        return None
    installs = sorted({*filter(None, (advise_install("phase", name) for name in empty))})
    effect = "the library is right, but larger and slower"
    return f"no transforms are installed for {', '.join(empty)}: {effect}; {' && '.join(installs)}"


def _list_passes(registry: Registry) -> Iterator[Pass]:
    """The places of all transforms, in no order; MaceError for phases that do not exist."""
    phases = {phase.name: phase for phase in PHASES}
    faults = []
    for name, transform in sorted(registry.transforms.items()):
        plugin = registry.owner("transforms", name)
        first = Repeat(transform.phase, "", transform.after, transform.before)
        for place in (first, *transform.repeats):
            if phase := phases.get(place.phase):
                yield Pass(phase, transform, plugin, place.after, place.before, place.because)
            else:
                close = get_close_matches(str(place.phase), phases, 1)
                remedy = f"did you mean {close[0]!r}?" if close else f"the phases are {', '.join(phases)}"
                faults.append(f"transform {name!r} of {plugin}: there is no phase {place.phase!r}; {remedy}")
    if faults:
        raise MaceError.of(faults)


def _find_faults(passes: list[Pass]) -> Iterator[str]:
    places: dict[str, list[Pass]] = {}
    for step in passes:
        places.setdefault(step.transform.name, []).append(step)
    for steps in places.values():
        first, *repeats = steps
        names = [step.phase.name for step in steps]
        # Within a phase a name must mean one place, or `after` and `before` would not say which.
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{first}: joins phase {name!r} twice; name it once, a phase says itself how often it runs"
        for step in repeats:
            if not step.because:
                yield f"{step}: repeats in phase {step.phase.name!r} without a reason; say why in `because`"
    for step in passes:
        yield from _find_constraint_faults(step, places)


def _find_constraint_faults(step: Pass, places: Mapping[str, list[Pass]]) -> Iterator[str]:
    position = PHASES.index(step.phase)
    for side, reasons in (("after", step.after), ("before", step.before)):
        if not isinstance(reasons, Mapping):
            yield f"{step}: `{side}` is {reasons!r}; write a dictionary of names and reasons"
            continue
        for name, because in reasons.items():
            if not because:
                yield f"{step}: runs {side} {name!r} without a reason; say why, {{{name!r}: '...'}}"
            others = places.get(name, [])
            positions = [PHASES.index(other.phase) for other in others]
            possible = [p <= position if side == "after" else p >= position for p in positions]
            if others and not any(possible):
                phase = others[0].phase.name
                where = f"which is in phase {phase!r} and not in {step.phase.name!r}"
                problem = f"cannot run {side} {others[0]}, {where}"
                yield f"{step}: {problem}; move one of them to the other's phase"


def _order_phase(passes: Mapping[str, Pass]) -> tuple[Pass, ...]:
    """The passes of one phase as their constraints demand, those that are free by name."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for name, step in passes.items():
        sorter.add(name, *(other for other in step.after if other in passes))
        for other in step.before:
            if other in passes:
                sorter.add(other, name)
    try:
        sorter.prepare()
    except CycleError as error:
        raise MaceError.of([_describe_cycle([passes[name] for name in error.args[1]])]) from error
    ready = list(sorter.get_ready())
    heapify(ready)
    ordered = []
    # One at a time, so that the order depends on names alone and not on how many are ready together.
    while ready:
        name = heappop(ready)
        ordered.append(passes[name])
        sorter.done(name)
        for following in sorter.get_ready():
            heappush(ready, following)
    return tuple(ordered)


def _describe_cycle(cycle: list[Pass]) -> str:
    """Name the transforms of a cycle with the reasons.

    Each runs before the next; the first is the last as well.
    """
    links = []
    for first, second in pairwise(cycle):
        because = second.after.get(first.transform.name) or first.before[second.transform.name]
        links.append(f"{first} must run before {second}, because {because}")
    place = f"phase {cycle[0].phase.name!r}"
    return f"{place}: its transforms cannot be ordered: {'; '.join(links)}; remove one of these"


def _apply(step: Pass, graph: Graph) -> Graph:
    """Return the graph after one transform.

    PluginError if it fails or answers with no rewrite of the graph.
    """
    try:
        result = step.transform.apply(graph)
    except MaceError:
        raise
    except Exception as error:  # foreign code may raise anything
        raise _blame(step, "fails", error) from error
    if not isinstance(result, Graph):
        raise _blame(step, f"gives {type(result).__name__} instead of a graph")
    if (result.inputs, result.outputs) != (graph.inputs, graph.outputs):
        raise _blame(step, "changes the model's inputs or outputs")
    # A transform that builds a new graph need not know of these: states refer to inputs and
    # outputs by name, which it keeps, and the others are about the model. It may add notes of its own.
    notes = tuple(dict.fromkeys((*graph.notes, *result.notes)))
    return replace(result, states=graph.states, notes=notes, origin=graph.origin, numerics=graph.numerics)


def _find_culprit(passes: list[Pass], graph: Graph) -> PluginError | None:
    """Name the pass after which the graph is no longer well formed.

    Runs them again, each result verified: too slow for every build, and worth it where one has failed.
    """
    for step in passes:
        graph = _apply(step, graph)
        try:
            verify(graph)
        except MaceError as error:
            return _blame(step, "makes a graph that is not well formed", error)
    return None


def _blame(step: Pass, problem: str, error: Exception | None = None) -> PluginError:
    return step.plugin.fault(
        f"its transform {step.transform.name!r} in phase {step.phase.name!r} {problem}", error
    )
