"""Asks targets what would become of the models of a deployment file, and compares it with a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path

from mace_core.api import Target
from mace_core.commands import load_job
from mace_core.deployment import Deployment, Model
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.json_types import Json
from mace_core.lint import LintFinding, LintNode, LintReport, VendorPlan
from mace_core.partition import count_regions
from mace_core.pipeline import load
from mace_core.transforms import run_phases

MAX_PLAN_BYTES = 1 << 26
"""The largest file that is read as a vendor's plan, in bytes."""


@dataclass(frozen=True)
class LintRequest:
    """What to lint.

    socs: chips to compare, by the names that the target knows; () for the one of the deployment file.
    model: the name of one model; "" for all.
    """

    deployment: Path
    target: str = ""
    socs: tuple[str, ...] = ()
    model: str = ""


@dataclass(frozen=True)
class PlanDifference:
    """One line of the comparison of a report with a vendor's plan.

    node: "" for an operation that only the plan has.  predicted, planned: who computes it; "" for nobody.
    """

    node: str
    operator: str
    predicted: str
    planned: str

    @property
    def state(self) -> str:
        """Whether both agree, in words."""
        if not self.predicted:
            return "only in the plan"
        if not self.planned:
            return "not in the plan"
        return "same" if self.predicted == self.planned else "differs"

    def as_json(self) -> Json:
        """Return its fields and its state."""
        return {
            "node": self.node,
            "operator": self.operator,
            "predicted": self.predicted,
            "planned": self.planned,
            "state": self.state,
        }


@dataclass(frozen=True)
class PlanComparison:
    """A report compared with a vendor's plan.

    unread: lines of the plan that the target did not understand.
    """

    model: str
    device: str
    lines: tuple[PlanDifference, ...]
    unread: tuple[str, ...]

    def as_json(self) -> Json:
        """Return it as `mace lint --diff --json` prints it."""
        lines = [line.as_json() for line in self.lines]
        return {"model": self.model, "device": self.device, "operations": lines, "unread": self.unread}


def lint_deployment(request: LintRequest) -> list[LintReport]:
    """Return a report for each model and chip; MaceError where a model or a chip is not known."""
    parsed, choice, registry = load_job(request.deployment, request.target)
    reports = []
    for model in _choose_models(parsed, request.model):
        graph = run_phases(load(model, registry), registry)
        targets = registry.targets_for(choice, model.runtimes)
        for soc in request.socs or ("",):
            target = _configure(targets[0], model, soc)
            report = target.lint(graph) or lint_by_refusals(target, graph)
            reports.append(replace(report, model=model.name))
    return reports


def lint_by_refusals(target: Target, graph: Graph) -> LintReport:
    """Return the report of a target that knows no more than what it refuses."""
    nodes = []
    for node in graph.nodes:
        refusal = target.refuses(node, graph)
        if refusal is None:
            nodes.append(LintNode(node.name, node.op.name, "hardware", is_taken=True))
            continue
        verdict = "unknown" if refusal.code == "unknown" else "unsupported"
        finding = LintFinding(refusal.code, verdict, refusal.reason, refusal.remedy)
        nodes.append(LintNode(node.name, node.op.name, verdict, is_taken=False, findings=(finding,)))
    taken = {node.node for node in nodes if node.is_taken}
    return LintReport(graph.name, target.name, "", tuple(nodes), count_regions(graph, taken))


def compare_with_plan(request: LintRequest, file: Path) -> PlanComparison:
    """Return how the report of one model on one chip differs from the plan of a vendor's compiler."""
    reports = lint_deployment(request)
    if len(reports) != 1:
        raise MaceError(
            "--diff", f"there are {len(reports)} reports to compare", "name one model and one chip"
        )
    _, _, registry = load_job(request.deployment, request.target)
    plan = registry.targets[reports[0].target].read_plan(_read_text(file))
    return _compare(reports[0], plan)


def _choose_models(deployment: Deployment, name: str) -> Sequence[Model]:
    models = [model for model in deployment.models if name in ("", model.name)]
    if not models:
        known = ", ".join(model.name for model in deployment.models)
        raise MaceError(f"--model {name}", "no such model", f"models in this deployment: {known}")
    return models


def _configure(target: Target, model: Model, soc: str) -> Target:
    """Return a target for a chip; MaceError of the target where it knows none of that name."""
    if not soc:
        return target.configure(model)
    chosen = target.options_for_chip(model.options(target.name), soc)
    options = {**model.all_options, target.name: chosen}
    model = replace(model, keys={**model.keys, "target_options": options})
    target.check_options(model)
    return target.configure(model)


def _read_text(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_PLAN_BYTES:
            raise MaceError(file, f"has more than {MAX_PLAN_BYTES} bytes", "name the output of the compiler")
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise MaceError(file, f"cannot be read: {error.strerror}", "name a readable file") from None


def _compare(report: LintReport, plan: VendorPlan) -> PlanComparison:
    """Compare by the order of operators: a plan numbers operations, and knows no names of nodes."""
    taken = [node for node in report.nodes if node.is_taken]
    ours = [node.operator for node in taken]
    theirs = [operation.operator for operation in plan.operations]
    lines: list[PlanDifference] = []
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    for tag, first, last, start, stop in matcher.get_opcodes():
        if tag == "equal":
            for node, operation in zip(taken[first:last], plan.operations[start:stop], strict=True):
                planned = report.target if operation.unit in plan.device_units else operation.unit
                lines.append(PlanDifference(node.node, node.operator, report.target, planned))
            continue
        lines += [PlanDifference(n.node, n.operator, report.target, "") for n in taken[first:last]]
        lines += _only_planned(plan, start, stop)
    return PlanComparison(report.model, report.device, tuple(lines), plan.unread)


def _only_planned(plan: VendorPlan, start: int, stop: int) -> Iterator[PlanDifference]:
    for operation in plan.operations[start:stop]:
        yield PlanDifference("", operation.operator, "", operation.unit or "unknown")
