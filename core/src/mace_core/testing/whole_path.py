"""Takes models, most of them damaged, through all that a build does, and runs a share of them under sanitizers beside numpy.

Every model is read, transformed, lowered and emitted as C for the CPU of this machine, and offered to the
targets that make projects. Each stage ends in its result or in one MaceError; everything else is a finding.
Of the models that reach C, a share is compiled with redzones between all tensors (see `sanitized`) and
compared with the ops' numpy references on the graph as it was read.

    report = take_whole_path("acme", models, folder, Plan(compiled=100))
    assert not report.findings, report
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mace_core.registry import Registry
from mace_core.testing.malformed import Damaged, listen, place

PATIENCE = 900.0
"""Seconds of silence after which the process is given up: compiling a library of many models takes minutes on a busy machine."""


@dataclass(frozen=True)
class Plan:
    """Says how far models go.

    compiled: how many are compiled and run, at most; together: how many of them in one library.

    projects: the targets that make projects of their own, each asked for its project of every model.
    """

    compiled: int = 0
    together: int = 40
    projects: tuple[str, ...] = ()


@dataclass
class Report:
    """Counts what became of models.

    refused: by the stage that raised a MaceError; findings: what is wrong, one text each.
    """

    models: int = 0
    valid: int = 0
    compiled: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    projects: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        share = f"{100 * self.valid / max(self.models, 1):.0f} %"
        refused = ", ".join(f"{count} by {stage}" for stage, count in self.refused.most_common()) or "none"
        projects = "".join(f"; {count} {what}" for what, count in sorted(self.projects.items()))
        head = f"{self.models} models, {self.valid} valid ({share}), {self.compiled} compiled and run; refused: {refused}{projects}"
        return "\n".join([f"{head}; {len(self.findings)} findings", *self.findings])


def take_whole_path(
    frontend: str, models: Sequence[Damaged], folder: Path, plan: Plan | None = None
) -> Report:
    """Take each model as far as it goes.

    The first ought to be sound: what is loaded with it only once does not count.

    folder: an empty one. The work is done by another process, so that its end, or its silence, is a finding
    as well. MaceError where this machine has no toolchain for a target: that is no finding about a model.
    """
    plan = plan or Plan()
    registry = Registry.load()
    for target in ("host", *plan.projects):
        registry.select(target)
    named = place(models, folder)
    (folder / "files.json").write_text(json.dumps(named))
    report, next_model = Report(), 0
    while next_model < len(models):
        rest = {**asdict(plan), "compiled": max(plan.compiled - report.compiled, 0)}
        arguments = [frontend, str(folder), str(next_model), json.dumps(rest)]
        command = [sys.executable, "-P", "-m", "mace_core.testing.whole_path_worker", *arguments]
        errors = folder / "errors.txt"
        with (
            errors.open("w") as stderr,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
        ):
            lines, late = listen(process, PATIENCE)
            for number, kind, text in lines:
                next_model = max(next_model, number + (kind in ("valid", "refused", "fault")))
                if 0 <= number < len(models):
                    _count(report, kind, text, f"{models[number].what} ({' '.join(named[number])})")
            if process.wait() == 0 and not late:
                break
            why = (
                "it takes for ever"
                if late
                else f"the process ends with {process.returncode}: {errors.read_text()[-2000:]}"
            )
            report.findings.append(
                f"{models[min(next_model, len(models) - 1)].what}, or one compiled with it: {why}"
            )
            next_model += 1
    return report


def _count(report: Report, kind: str, text: str, what: str) -> None:
    if kind in ("valid", "refused", "fault"):
        report.models += 1
    if kind == "valid":
        report.valid += 1
    elif kind == "ran":
        report.compiled += 1
    elif kind == "refused":
        report.refused[text] += 1
    elif kind == "project":
        report.projects[text] += 1
    if kind in ("fault", "wrong"):
        report.findings.append(f"{what}: {text}")
