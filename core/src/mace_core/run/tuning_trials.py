"""What `mace tune` chooses among: candidates for nodes, libraries that compute by them, and times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain

from mace_core.compilation import CompiledModel
from mace_core.json_types import Json
from mace_core.report import LayerReport
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.results import LayerTime, Timing
from mace_core.selection import Selection

GAIN = 0.97
"""The share of the default's time that a candidate must stay under: two measurements differ by as much."""


@dataclass(frozen=True)
class Subject:
    """Nodes that one entry of a tuning file is about, at one level.

    candidates: their names, in the order of the target.  default: what is taken without a file.
    nodes: their names.
    """

    target: str
    level: str
    op: str
    shapes: str
    candidates: tuple[str, ...]
    default: str
    nodes: tuple[str, ...]

    def choose(self, candidate: str) -> dict[str, str]:
        """Return the entry of a tuning file that takes a candidate."""
        key = {"op": self.op, "shapes": self.shapes, "target": self.target, "level": self.level}
        return {**key, "candidate": candidate}


@dataclass(frozen=True)
class Decision:
    """What was measured for a subject.

    ns: nanoseconds of all its nodes by candidate.  candidate: the one for the tuning file, or the default.
    """

    subject: Subject
    ns: Mapping[str, float]
    candidate: str

    def as_json(self) -> Json:
        """Return it as one flat object."""
        entry = self.subject.choose(self.candidate)
        return {**entry, "default": self.subject.default, "ns": dict(self.ns)}


@dataclass(frozen=True)
class Trial:
    """A compiled model that may be timed.  layers: of the model, by number."""

    compiled: CompiledModel
    layers: tuple[LayerReport, ...]

    @property
    def computation(self) -> tuple[tuple[str, str], ...]:
        """Which target computes each node, and by which kernels, of which costs decide as well."""
        places: list[tuple[str, str]] = []
        for region in self.compiled.regions:
            places += [(node.name, region.target.name) for node in region.graph.nodes]
        return (*places, *((layer.node, layer.kernel) for layer in self.layers))

    def digest(self, conditions: str) -> str:
        """Return what differs wherever two libraries compute differently, or under other conditions."""
        levels = [layer.levels for layer in self.layers]
        calls = _describe_calls(self, {*range(len(self.layers))})
        return sha256(repr((conditions, self.computation, levels, calls)).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Series:
    """A trial with what was measured of it.

    built: its library; None where an earlier run of the command measured it.  timings: of this run, which
    grow.  earlier: layers as an earlier run measured them.  can_fail: see `time_once`.
    """

    trial: Trial
    built: BuiltLibrary | None = None
    timings: list[Timing] = field(default_factory=list)
    earlier: tuple[LayerTime, ...] = ()
    can_fail: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether the device could not compute it, though it was tried."""
        return self.can_fail and not self.timings

    @property
    def ns(self) -> float:
        """The shortest run of the whole model in this run of the command."""
        return min(min(timing.ns) for timing in self.timings)

    def find_shortest(self) -> dict[int, int]:
        """Return the shortest time of each layer, by its number."""
        shortest: dict[int, int] = {}
        for layer in chain(self.earlier, chain.from_iterable(timing.layers for timing in self.timings)):
            shortest[layer.number] = min(layer.ns, shortest.get(layer.number, layer.ns))
        return shortest


def list_subjects(selections: Sequence[Selection]) -> list[Subject]:
    """Return what there is to choose, in the order of the nodes."""
    nodes: dict[Subject, list[str]] = defaultdict(list)
    for selection in selections:
        for choice in selection.choices:
            if len(choice.costs) > 1:
                key = selection.key
                names = tuple(choice.costs)
                subject = Subject(key.target, choice.level, key.op, key.shapes, names, choice.candidate, ())
                nodes[subject].append(key.node)
    return [replace(subject, nodes=tuple(names)) for subject, names in nodes.items()]


def pick_candidate(candidates: Sequence[str], rank: int) -> str:
    """Return the candidate of a rank; the last one where there are fewer."""
    return candidates[min(rank, len(candidates) - 1)]


def is_computed(subject: Subject, devices: Sequence[str]) -> bool:
    """Tell whether a subject's level was that of the processor, or stands for a device."""
    return subject.level == subject.target or f"{subject.target}: {subject.level}" in devices


def decide(subject: Subject, ranks: Sequence[Series]) -> Decision:
    """Choose by the shortest time of each candidate; the default unless another is clearly faster."""
    ns: dict[str, float] = {}
    names: dict[Hashable, str] = {}
    # What one candidate computes in a call with its node, others compute in calls that count as well.
    sources = {*chain.from_iterable(_list_sources(subject, series.trial) for series in ranks)}
    for rank, series in enumerate(ranks):
        trial = series.trial
        numbers = _find_layers(subject, trial)
        total = _add_layers(numbers | _find_computing(sources, trial), series)
        if total is None:
            continue
        # Candidates with the same calls are one: between them, only what else the machine does would choose.
        name = names.setdefault(_describe_calls(trial, numbers), pick_candidate(subject.candidates, rank))
        ns[name] = min(total, ns.get(name, total))
    best = min(ns, key=lambda name: ns[name], default=subject.default)
    is_faster = subject.default in ns and ns[best] < GAIN * ns[subject.default]
    return Decision(subject, ns, best if is_faster else subject.default)


def _describe_calls(trial: Trial, numbers: set[int]) -> Hashable:
    """Return what differs wherever two candidates compute differently.

    Kernels of devices are named after their source; those of calls in host memory have arguments.
    """
    calls = trial.compiled.plan.program.calls
    places = sorted(numbers)
    arguments = [sorted(calls[place].args.items()) for place in places if place < len(calls)]
    kernels = [trial.layers[place].kernel for place in places]
    return repr((kernels, arguments))


def _add_layers(numbers: set[int], series: Series) -> float | None:
    """Return the sum of the shortest times of some layers; None if none of them was computed."""
    shortest = [ns for number, ns in series.find_shortest().items() if number in numbers]
    return float(sum(shortest)) if shortest else None


def _find_layers(subject: Subject, trial: Trial) -> set[int]:
    """Return the numbers of the layers that compute a subject's nodes.

    A call may compute several nodes, and is named after the last.
    """
    nodes = {node.name: node for node in trial.compiled.graph.nodes if node.name in subject.nodes}
    named = {number for number, layer in enumerate(trial.layers) if layer.node in nodes}
    sources = {*chain.from_iterable(node.sources for node in nodes.values())}
    return named | _find_computing(sources, trial)


def _find_computing(sources: Collection[str], trial: Trial) -> set[int]:
    """Return the numbers of the layers that compute some of the model's own nodes."""
    return {number for number, layer in enumerate(trial.layers) if {*sources} & {*layer.sources}}


def _list_sources(subject: Subject, trial: Trial) -> Iterator[str]:
    """Yield the model's own nodes that calls compute with a subject's nodes."""
    for number in _find_layers(subject, trial):
        yield from trial.layers[number].sources
