"""Measures the candidates for the nodes of a model on the device itself, and writes a tuning file.

One library is built for each rank of candidates: in the first every node has its first candidate, in the
second its second one, and so on. All of them are timed layer by layer, in turn, so that what else the machine
does hits each alike. Then the library with the winners is timed beside the one without a tuning file: a file
that does not make the whole model faster is not written. The times of layers are kept in a file of their own,
so that a later run measures only what is left; an interrupt ends the measuring alone, see `_Tuner.measure`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.fingerprint import digest
from mace_core.json_types import Json
from mace_core.run.calibrate import MeasuredCosts, measure_costs
from mace_core.run.device_binaries import BinaryCollector
from mace_core.run.tuning_job import TuningJob
from mace_core.run.tuning_record import TuningRecord
from mace_core.run.tuning_trials import (
    Decision,
    Series,
    Subject,
    Trial,
    decide,
    is_computed,
    list_subjects,
    pick_candidate,
)
from mace_core.tuning import TUNING, write_tuning

ROUNDS = 5
"""Runs in one process: enough for its minimum, few enough that libraries take turns often."""

STEP_SECONDS = 10
"""How exactly progress tells the time that is left."""

MIN_TURNS = 2
MIN_BUILDS = 2
"""Ranks of candidates that are built and measured however long it takes."""

INTERRUPTED = "interrupted: what has been measured counts; interrupt again to end at once"

Step = Callable[[str], None]
"""Hears what is done next."""


@dataclass(frozen=True)
class TuningFolders:
    """Where libraries are built, and where the files are written."""

    build: Path
    output: Path


@dataclass(frozen=True)
class TuningResult:
    """The tuning of one model.

    devices: what computed.  ns, tuned_ns: a run without and with the file; the latter 0 where no candidate
    won.  file: None where it would not help.  binaries: files of what devices compiled of the final library.
    costs: measured numbers of cost models, by target.  notes: what the user should know.
    is_interrupted: whether the user ended the measuring.
    """

    model: str
    devices: tuple[str, ...]
    decisions: tuple[Decision, ...]
    ns: float
    tuned_ns: float = 0.0
    file: Path | None = None
    binaries: tuple[Path, ...] = ()
    costs: MeasuredCosts = field(default_factory=MeasuredCosts)
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False

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
            "costs": {target: dict(numbers) for target, numbers in self.costs.numbers.items()},
            "notes": list(self.notes),
            "is_interrupted": self.is_interrupted,
        }


@dataclass(frozen=True)
class Untuned:
    """The libraries before candidates are chosen.

    default: without a tuning file.  base: with measured costs alone.
    """

    default: Series
    base: Series


def tune_model(job: TuningJob, model: Model, folders: TuningFolders, step: Step) -> TuningResult:
    """Measure the candidates for a model, and write its tuning file and what devices compile of it.

    The numbers of cost models come first: they decide which nodes a device computes.
    MaceError without a runner, and for a device that another one computed on.
    """
    result, series = _measure_model(job, model, folders, step)
    return _write_binaries(result, series, folders, step)


def _measure_model(
    job: TuningJob, model: Model, folders: TuningFolders, step: Step
) -> tuple[TuningResult, Series]:
    """Return the result, and the library that is the fastest."""
    model = replace(model, keys={k: v for k, v in model.keys.items() if k != TUNING})
    costs = measure_costs(job, model, folders.build / f"{model.name}-costs", step)
    tuner = _Tuner(job, model, folders.build, costs, step)
    step(f"{model.name}: building it without a tuning file")
    untuned = replace(tuner, costs=MeasuredCosts())
    default = untuned.build("default", untuned.compile("default", []))
    base = tuner.build("base", tuner.compile("base", [])) if costs.numbers else default
    devices = tuner.check_device(dict.fromkeys((default, base)))
    selections = base.trial.compiled.report().selections
    subjects = [subject for subject in list_subjects(selections) if is_computed(subject, devices)]
    record = TuningRecord.read(
        folders.output / f"{model.name}.times.json", repr((devices, job.threads, _list_versions(job)))
    )
    ranks = tuner.measure(base, subjects, record)
    decisions = tuple(decide(subject, ranks) for subject in subjects)
    result = TuningResult(model.name, devices, decisions, base.ns, costs=costs)
    result, series = _compare(result, tuner, Untuned(default, base), folders)
    return replace(result, notes=tuple(tuner.notes), is_interrupted=INTERRUPTED in tuner.notes), series


def _list_versions(job: TuningJob) -> list[str]:
    """Return what stands for the kernels of the targets, so that times of others do not count."""
    modules = {type(target).__module__.partition(".")[0] for target in job.choice.targets}
    return [digest(module) for module in sorted(modules)]


def _compare(
    result: TuningResult, tuner: _Tuner, untuned: Untuned, folders: TuningFolders
) -> tuple[TuningResult, Series]:
    """Write a tuning file, if the library with it is the faster one, or computes alike."""
    default, base = untuned.default, untuned.base
    entries = [d.subject.choose(d.candidate) for d in result.decisions if d.candidate != d.subject.default]
    is_same = default.trial.computation == base.trial.computation
    if entries or not is_same:
        tuner.step(f"{result.model}: comparing the library with and without {len(entries)} entries")
        tuned = tuner.build("tuned", tuner.compile("tuned", entries)) if entries else base
        # Without the earlier times of the default: both are measured under the same load.
        both = [replace(series, timings=[], can_fail=False) for series in (default, tuned)]
        tuner.time_in_turn(both, tuner.job.seconds / 4)
        before, after = (series.ns for series in both)
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


def _write_binaries(result: TuningResult, series: Series, folders: TuningFolders, step: Step) -> TuningResult:
    """Write what devices compile of a library."""
    if not series.built or not series.trial.compiled.plan.drivers:
        return result
    targets = [region.target for region in series.trial.compiled.regions]
    collector = BinaryCollector.of(series.built, result.model, targets, folders.build, step)
    binaries = collector.collect()
    files = binaries.write(folders.output, result.model, result.devices)
    return replace(result, binaries=files, notes=(*result.notes, *binaries.notes))


@dataclass(frozen=True)
class _Tuner:
    """Builds and times the libraries of one model.

    costs: in each tuning file that they are built with.  notes: what the user should know in the end.
    """

    job: TuningJob
    model: Model
    folder: Path
    costs: MeasuredCosts
    step: Step
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Tell the user now, and in the end: a bar of progress shows a line only until the next one."""
        self.notes.append(text)
        self.step(f"{self.model.name}: {text}")

    def compile(self, name: str, entries: Sequence[Mapping[str, str]]) -> Trial:
        """Return the model compiled with these entries of a tuning file."""
        model = self.model
        if entries or self.costs.numbers:
            file = self._make_folder(name) / "tuning.yml"
            write_tuning(file, entries, "candidates of one rank", self.costs.numbers)
            model = replace(model, keys={**model.keys, TUNING: str(file)})
        compiled = compile_model(model, Compilation(self.job.choice, self.job.registry))
        return Trial(compiled, compiled.report().layers)

    def build(self, name: str, trial: Trial) -> Series:
        """Return the library of a compiled model, which keeps what devices compile."""
        folder = self._make_folder(name)
        built = self.job.build([trial.compiled], self.job.find_runner(self.model), folder)
        if trial.compiled.plan.drivers:
            compiled = folder / "compiled"
            compiled.mkdir()
            built = replace(built, compiled=compiled.resolve())
        return Series(trial, built)

    def _make_folder(self, name: str) -> Path:
        folder = self.folder / f"{self.model.name}-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def measure(self, base: Series, subjects: Sequence[Subject], record: TuningRecord) -> list[Series]:
        """Return the series of each rank of candidates.

        An interrupt by the user ends it with what has been measured; a second one is not caught.
        """
        ranks: list[Series] = []
        try:
            self._add_ranks(ranks, base, subjects, record)
            series = [one for one in {id(one): one for one in (base, *ranks)}.values() if one.built]
            self.time_in_turn(series, self.job.seconds if subjects else 0)
        except KeyboardInterrupt:
            self.note(INTERRUPTED)
        finally:
            record.write(ranks)
        return ranks

    def _add_ranks(
        self, ranks: list[Series], base: Series, subjects: Sequence[Subject], record: TuningRecord
    ) -> None:
        """Add the library of each rank of candidates, until the time for measuring would be as much again.

        Targets list the candidates that promise most first, so that the others are left out where time is
        short. Each is timed once, because devices compile its kernels then, which takes longer than gcc.
        """
        count = max((len(subject.candidates) for subject in subjects), default=0)
        known = {base.trial.digest(record.conditions): base}
        builds = 0
        end = time.monotonic() + self.job.seconds
        for rank in range(count):
            if builds >= MIN_BUILDS and time.monotonic() > end:
                text = (
                    f"no time for the last {count - rank} of {count} candidates: run it again, which goes on"
                )
                self.note(text)
                return
            entries = [subject.choose(pick_candidate(subject.candidates, rank)) for subject in subjects]
            trial = self.compile(f"rank{rank}", entries)
            key = trial.digest(record.conditions)
            if key not in known and (earlier := record.find(key)):
                known[key] = Series(trial, earlier=earlier)
            elif key not in known:
                self.step(f"{self.model.name}: building candidates {rank + 1} of {count}")
                known[key] = replace(self.build(f"rank{rank}", trial), can_fail=True)
                builds += 1
                self.time_once(known[key])
            ranks.append(known[key])

    def time_in_turn(self, running: Sequence[Series], seconds: float) -> None:
        """Time each library again and again until the time is over."""
        end = time.monotonic() + seconds
        running = [series for series in running if not series.has_failed]
        turns = 0
        while turns < MIN_TURNS or time.monotonic() < end:
            turns += 1
            # By tens of seconds: where nobody watches, in a log, each text of a step is a line.
            left = max(1, math.ceil((end - time.monotonic()) / STEP_SECONDS)) * STEP_SECONDS
            self.step(f"{self.model.name}: measuring {len(running)} libraries, less than {left} s left")
            for series in running:
                if turns > MIN_TURNS and time.monotonic() > end:
                    return
                self.time_once(series)
            running = [series for series in running if not series.has_failed]

    def time_once(self, series: Series) -> None:
        """Append the timing of a library.

        Of one that can fail and does, whose kernels may want more than the device has, none is left.
        """
        assert series.built
        try:
            timing = series.built.time(self.model.name, self.job.threads, ROUNDS, layers=True)
            series.timings.append(timing)
        except MaceError as error:
            if not series.can_fail:
                raise
            series.timings.clear()
            self.note(f"{series.built.programs.name} is left out: {error}")

    def check_device(self, libraries: Iterable[Series]) -> tuple[str, ...]:
        """Return what computes the last library, by parts.

        MaceError where the device that the user named computes no part of any.
        """
        computing: tuple[str, ...] = ()
        devices = dict.fromkeys(self.costs.devices)
        for series in libraries:
            self.time_once(series)
            computing = series.timings[0].devices
            devices |= dict.fromkeys(computing)
        # A device that measured costs leave nothing to was there, and its costs are worth a file.
        if self.job.device and not any(map(self._is_chosen, devices)):
            problem = f"no part was computed by it, but by {', '.join(devices)}"
            raise MaceError(f"--device {self.job.device}", problem, "connect the device, or name another")
        return computing

    def _is_chosen(self, device: str) -> bool:
        """Tell whether what computed a part is the device that the user named."""
        # A driver that was asked for it takes it, or fails: "gpu" is in no name.
        drivers = tuple(f"{name}: " for name in self.job.device_options)
        return self.job.device in device or device.startswith(drivers)
