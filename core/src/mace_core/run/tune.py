"""Measures the candidates for the nodes of a model on the device itself, and writes a tuning file.

One library is built for each rank of candidates: in the first every node has its first candidate, in the
second its second one, and so on. All of them are timed layer by layer, in turn, so that what else the machine
does hits each alike. Then the library with the winners is timed beside the one without a tuning file: a file
that does not make the whole model faster is not written.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from mace_core.api import Runner
from mace_core.compilation import Compilation, CompiledModel, compile_model
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.json_types import Json
from mace_core.report import LayerReport
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.calibrate import MeasuredCosts, measure_costs
from mace_core.run.device_binaries import BinaryCollector
from mace_core.run.results import Timing
from mace_core.run.tuning_job import TuningJob
from mace_core.selection import Selection
from mace_core.tuning import TUNING, write_tuning

ROUNDS = 5
"""Runs in one process: enough for its minimum, few enough that libraries take turns often."""

MIN_TURNS = 3
MIN_RANKS = 2
"""Ranks of candidates that are measured however long it takes to build them."""

GAIN = 0.97
"""The share of the default's time that a candidate must stay under: two measurements differ by as much."""

Step = Callable[[str], None]
"""Hears what is done next."""


@dataclass(frozen=True)
class TuningFolders:
    """Where libraries are built, and where the files are written."""

    build: Path
    output: Path


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
class TuningResult:
    """The tuning of one model.

    devices: what computed.  ns, tuned_ns: a run without and with the file; the latter 0 where no candidate
    won.  file: None where it would not help.  binaries: files of what devices compiled of the final library.
    notes: what was done with them.  costs: measured numbers of cost models, by target.
    """

    model: str
    devices: tuple[str, ...]
    decisions: tuple[Decision, ...]
    ns: float
    tuned_ns: float = 0.0
    file: Path | None = None
    binaries: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    costs: MeasuredCosts = field(default_factory=MeasuredCosts)

    def as_json(self) -> Json:
        """Return it for programs."""
        return {
            "model": self.model,
            "devices": list(self.devices),
            "decisions": [decision.as_json() for decision in self.decisions],
            "ns": self.ns,
            "tuned_ns": self.tuned_ns,
            "file": str(self.file) if self.file else "",
            "binaries": list(map(str, self.binaries)),
            "notes": list(self.notes),
            "costs": {target: dict(numbers) for target, numbers in self.costs.numbers.items()},
        }


@dataclass(frozen=True)
class Trial:
    """A library that is timed.  layers: of the model, by number.  can_fail: see `time_in_turn`."""

    built: BuiltLibrary
    compiled: CompiledModel
    layers: tuple[LayerReport, ...]
    can_fail: bool = False

    @property
    def computation(self) -> tuple[tuple[str, str], ...]:
        """Which target computes each node, and by which kernels, of which costs decide as well."""
        places: list[tuple[str, str]] = []
        for region in self.compiled.regions:
            places += [(node.name, region.target.name) for node in region.graph.nodes]
        return (*places, *((layer.node, layer.kernel) for layer in self.layers))


@dataclass(frozen=True)
class Untuned:
    """The libraries before candidates are chosen.

    default: without a tuning file.  base: with measured costs alone.
    """

    default: Trial
    base: Trial


def tune_model(job: TuningJob, model: Model, folders: TuningFolders, step: Step) -> TuningResult:
    """Measure the candidates for a model, and write its tuning file and what devices compile of it.

    The numbers of cost models come first: they decide which nodes a device computes.
    MaceError without a runner, and for a device that another one computed on.
    """
    result, trial = _measure_model(job, model, folders, step)
    return _write_binaries(result, trial, folders, step)


def _measure_model(
    job: TuningJob, model: Model, folders: TuningFolders, step: Step
) -> tuple[TuningResult, Trial]:
    """Return the result, and the library that is the fastest."""
    model = replace(model, keys={k: v for k, v in model.keys.items() if k != TUNING})
    costs = measure_costs(job, model, folders.build / f"{model.name}-costs", step)
    tuner = _Tuner(job, model, folders.build, job.find_runner(model), costs)
    step(f"{model.name}: building it without a tuning file")
    default = replace(tuner, costs=MeasuredCosts()).build("default", [])
    base = tuner.build("base", []) if costs.numbers else default
    tuner.check_device([default, base])
    subjects = list_subjects(base.compiled.report().selections)
    trials = [base, *_build_ranks(tuner, subjects, step)]
    step(f"{model.name}: measuring {len(trials)} libraries")
    timings = tuner.time_in_turn(trials, job.seconds if subjects else 0, step)
    devices = timings[0][0].devices
    measured = [subject for subject in subjects if _is_computed(subject, devices)]
    decisions = tuple(decide(subject, trials[1:], timings[1:]) for subject in measured)
    result = TuningResult(model.name, devices, decisions, _find_min(timings[0]), costs=costs)
    return _compare(result, tuner, Untuned(default, base), folders, step)


def _compare(
    result: TuningResult, tuner: _Tuner, untuned: Untuned, folders: TuningFolders, step: Step
) -> tuple[TuningResult, Trial]:
    """Write a tuning file, if the library with it is the faster one, or computes alike."""
    default, base = untuned.default, untuned.base
    entries = [d.subject.choose(d.candidate) for d in result.decisions if d.candidate != d.subject.default]
    is_same = default.computation == base.computation
    if entries or not is_same:
        step(f"{result.model}: comparing the library with and without {len(entries)} entries")
        tuned = tuner.build("tuned", entries) if entries else base
        before, after = map(_find_min, tuner.time_in_turn([default, tuned], tuner.job.seconds / 4, step))
        result = replace(result, ns=before, tuned_ns=after)
        if after < before:
            return _write(result, entries, folders), tuned
    # Costs that change nothing for this model are right for a device all the same.
    if result.costs.numbers and is_same:
        return _write(replace(result, tuned_ns=0.0), [], folders), default
    return result, default


def _write(
    result: TuningResult, entries: Sequence[Mapping[str, str]], folders: TuningFolders
) -> TuningResult:
    """Write the tuning file, whose first line says what was measured where."""
    file = folders.output / f"{result.model}.tuning.yml"
    devices = dict.fromkeys((*result.devices, *result.costs.devices))
    head = f"measured by mace tune on {', '.join(devices)}"
    if result.tuned_ns:
        head += f": {result.ns / 1e6:.3f} ms without, {result.tuned_ns / 1e6:.3f} ms with"
    write_tuning(file, entries, head, result.costs.numbers)
    return replace(result, file=file)


def _build_ranks(tuner: _Tuner, subjects: Sequence[Subject], step: Step) -> Iterator[Trial]:
    """Yield the library of each rank of candidates, until the time for measuring would be as much again.

    Targets list the candidates that promise most first, so that the others are left out where time is short.
    """
    ranks = max((len(subject.candidates) for subject in subjects), default=0)
    end = time.monotonic() + tuner.job.seconds
    for rank in range(ranks):
        if rank >= MIN_RANKS and time.monotonic() > end:
            left = ranks - rank
            step(f"{tuner.model.name}: no time for the last {left} of {ranks} candidates; state more seconds")
            return
        step(f"{tuner.model.name}: building candidates {rank + 1} of {ranks}")
        entries = [subject.choose(_pick(subject.candidates, rank)) for subject in subjects]
        yield replace(tuner.build(f"rank{rank}", entries), can_fail=True)


def _write_binaries(result: TuningResult, trial: Trial, folders: TuningFolders, step: Step) -> TuningResult:
    """Write what devices compile of a library."""
    if not trial.compiled.plan.drivers:
        return result
    targets = [region.target for region in trial.compiled.regions]
    collector = BinaryCollector.of(trial.built, result.model, targets, folders.build, step)
    binaries = collector.collect()
    files = binaries.write(folders.output, result.model, result.devices)
    return replace(result, binaries=files, notes=binaries.notes)


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


@dataclass(frozen=True)
class _Tuner:
    """Builds and times the libraries of one model.  costs: in each tuning file that they are built with."""

    job: TuningJob
    model: Model
    folder: Path
    runner: Runner
    costs: MeasuredCosts

    def build(self, name: str, entries: Sequence[Mapping[str, str]]) -> Trial:
        """Return a library with these entries of a tuning file."""
        folder = self.folder / f"{self.model.name}-{name}"
        folder.mkdir(parents=True)
        model = self.model
        if entries or self.costs.numbers:
            file = folder / "tuning.yml"
            write_tuning(file, entries, "candidates of one rank", self.costs.numbers)
            model = replace(model, keys={**model.keys, TUNING: str(file)})
        compiled = compile_model(model, Compilation(self.job.choice, self.job.registry))
        built = self.job.build([compiled], self.runner, folder)
        return Trial(built, compiled, built.figures(model.name).layers)

    def time_in_turn(self, trials: Sequence[Trial], seconds: float, step: Step) -> list[list[Timing]]:
        """Time each library again and again until the time is over; return the timings of each.

        There are none of one that can fail and does: its kernels may want more than the device has.
        """
        timings: list[list[Timing]] = [[] for _ in trials]
        running = list(zip(trials, timings, strict=True))
        end = time.monotonic() + seconds
        turns = 0
        while turns < MIN_TURNS or time.monotonic() < end:
            running = [(trial, taken) for trial, taken in running if self._time_once(trial, taken, step)]
            turns += 1
        return timings

    def _time_once(self, trial: Trial, taken: list[Timing], step: Step) -> bool:
        """Append the timing of a library, or clear its timings and return False where it fails."""
        try:
            taken.append(trial.built.time(self.model.name, self.job.threads, ROUNDS, layers=True))
        except MaceError as error:
            if not trial.can_fail:
                raise
            taken.clear()
            step(f"{self.model.name}: {trial.built.programs.name} is left out: {error}")
        return bool(taken)

    def check_device(self, trials: Sequence[Trial]) -> None:
        """Raise MaceError where the device that the user named computes no part of any library."""
        timings = [trial.built.time(self.model.name, self.job.threads, 1, layers=False) for trial in trials]
        # A device that measured costs leave nothing to was there, and its costs are worth a file.
        computing = chain.from_iterable(timing.devices for timing in timings)
        devices = dict.fromkeys((*computing, *self.costs.devices))
        if self.job.device and not any(self.job.device in device for device in devices):
            problem = f"no part was computed by it, but by {', '.join(devices)}"
            raise MaceError(f"--device {self.job.device}", problem, "connect the device, or name another")


def _pick(candidates: Sequence[str], rank: int) -> str:
    return candidates[min(rank, len(candidates) - 1)]


def _is_computed(subject: Subject, devices: Sequence[str]) -> bool:
    """Tell whether a subject's level was that of the processor, or stands for a device."""
    return subject.level == subject.target or f"{subject.target}: {subject.level}" in devices


def _find_min(timings: Sequence[Timing]) -> float:
    return min(min(timing.ns) for timing in timings)


def decide(subject: Subject, trials: Sequence[Trial], timings: Sequence[Sequence[Timing]]) -> Decision:
    """Choose by the shortest time of each candidate; the default unless another is clearly faster."""
    ns: dict[str, float] = {}
    names: dict[Hashable, str] = {}
    # What one candidate computes in a call with its node, others compute in calls that count as well.
    sources = {*chain.from_iterable(_list_sources(subject, trial) for trial in trials)}
    for rank, (trial, taken) in enumerate(zip(trials, timings, strict=True)):
        numbers = _find_layers(subject, trial)
        total = _add_layers(numbers | _find_computing(sources, trial), taken)
        if total is None:
            continue
        # Candidates with the same calls are one: between them, only what else the machine does would choose.
        name = names.setdefault(_describe_calls(trial, numbers), _pick(subject.candidates, rank))
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


def _add_layers(numbers: set[int], timings: Sequence[Timing]) -> float | None:
    """Return the sum of the shortest times of some layers; None if none of them was computed."""
    shortest: dict[int, int] = {}
    for layer in chain.from_iterable(timing.layers for timing in timings):
        if layer.number in numbers:
            shortest[layer.number] = min(layer.ns, shortest.get(layer.number, layer.ns))
    return float(sum(shortest.values())) if shortest else None


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
