"""Tests all stages of a build with models, most of them damaged.

Every model is read, transformed, lowered and emitted as C for the CPU of this machine, and given to the
targets that make projects. Each stage must end in its result or in one MaceError; anything else is a finding.
Some of the models that reach C are compiled with gaps between all tensors and run under sanitizers (see
`sanitized`); their outputs are compared with the numpy references of the graph as it was read.

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
from mace_core.testing.malformed import Damaged, listen, write_models

PATIENCE = 900.0
"""Seconds of silence after which the process is killed; it takes minutes to compile many models."""


@dataclass(frozen=True)
class WholePathOptions:
    """How many models are compiled, and how.

    compiled: maximum number of models that are compiled and run.  together: how many of them in one library.
    projects: targets that make a project of every model.
    """

    compiled: int = 0
    together: int = 40
    projects: tuple[str, ...] = ()


@dataclass
class Report:
    """The numbers of models that reached each stage, and the findings.

    refused: number of models for each stage that raised a MaceError.  projects: number for each result.
    findings: a message for each thing that is wrong.
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
        projects = "".join(f"; {count} {result}" for result, count in sorted(self.projects.items()))
        head = (
            f"{self.models} models, {self.valid} valid ({share}), {self.compiled} compiled and run; "
            f"refused: {refused}{projects}; {len(self.findings)} findings"
        )
        return "\n".join([head, *self.findings])


def take_whole_path(
    frontend: str, models: Sequence[Damaged], folder: Path, plan: WholePathOptions | None = None
) -> Report:
    """Build each model as far as possible, in another process, whose end or silence is a finding as well.

    The first model should be valid: the modules that it loads are not counted.  folder: an empty one.
    Raises MaceError if this machine has no toolchain for a target; that is no finding about a model.
    """
    plan = plan or WholePathOptions()
    registry = Registry.load()
    for target in ("host", *plan.projects):
        registry.select(target)
    named = write_models(models, folder)
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
            lines, is_late = listen(process, PATIENCE)
            for number, kind, text in lines:
                next_model = max(next_model, number + (kind in ("valid", "refused", "fault")))
                if 0 <= number < len(models):
                    _count(report, kind, text, f"{models[number].description} ({' '.join(named[number])})")
            if process.wait() == 0 and not is_late:
                break
            reason = f"nothing happens for {PATIENCE:.0f} s"
            if not is_late:
                status = process.returncode
                reason = f"the process exits with status {status}: {errors.read_text()[-2000:]}"
            suspect = models[min(next_model, len(models) - 1)].description
            report.findings.append(f"{suspect}, or one compiled with it: {reason}")
            next_model += 1
    return report


def _count(report: Report, kind: str, text: str, model: str) -> None:
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
        report.findings.append(f"{model}: {text}")
