"""Explains a compiled model: the target of each node, who refused it and why, the memory needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from mace_core.compilation import CompiledModel
from mace_core.json_types import Json
from mace_core.refusal import NodeRefusal
from mace_core.report import ModelReport
from mace_core.selection import Selection


@dataclass(frozen=True)
class LedgerLine:
    """One node of the graph: the target that computes it, and those that were asked before and refused."""

    node: str
    op: str
    target: str
    refusals: tuple[NodeRefusal, ...]


@dataclass(frozen=True)
class Explanation:
    """One model: what its report says, and the ledger of its nodes."""

    model: str
    report: ModelReport
    ledger: tuple[LedgerLine, ...]

    def as_json(self) -> Json:
        """Return it as `mace explain --json` prints it."""
        nodes = [{"node": line.node, "op": line.op, "target": line.target} for line in self.ledger]
        return {"model": self.model, **self.report.as_json(), "nodes": nodes}


def explain(compiled: CompiledModel) -> Explanation:
    """Return what there is to tell about a compiled model."""
    refused = defaultdict(list)
    for refusal in compiled.refusals:
        refused[refusal.node].append(refusal)
    lines: list[LedgerLine] = []
    for region in compiled.regions:
        target = region.target.name
        lines += [
            LedgerLine(node.name, node.op.name, target, tuple(refused[node.name]))
            for node in region.graph.nodes
        ]
    return Explanation(compiled.name, compiled.report(), tuple(lines))


def show_explanations(explanations: Sequence[Explanation]) -> str:
    """Return the text of all models: calls, ledger, memory; of a project, what its target says of it."""
    return "".join(chain.from_iterable(map(_show, explanations)))


def _show(explanation: Explanation) -> Iterator[str]:
    report = explanation.report
    if report.summary and not any(part.driver for part in report.parts):
        # A project: core plans nothing of it.
        yield f"{explanation.model}\n{report.summary}\n"
        return
    yield from _show_calls(explanation)
    if report.summary:
        yield f"  {report.summary}\n"
    yield from _show_refusals(explanation.ledger)
    for note in report.notes:
        yield f"  note: {note}\n"
    yield from _show_decisions(report)
    yield from _show_memory(report)


def _show_calls(explanation: Explanation) -> Iterator[str]:
    """Yield the tables of kernels and of parts; of parts only where the CPU's are not all."""
    from mace_core.run.tables import table

    report = explanation.report
    calls = [(layer.node, layer.kernel, ", ".join(layer.sources)) for layer in report.layers]
    yield table((explanation.model, "kernel", "computes"), calls) if calls else f"{explanation.model}\n"
    if len({line.target for line in explanation.ledger}) > 1 or any(part.driver for part in report.parts):
        parts = [
            (part.name, part.target, part.driver or "plain calls", str(len(part.nodes)))
            for part in report.parts
        ]
        yield table(("part", "target", "driver", "nodes"), parts)


def _show_refusals(ledger: Sequence[LedgerLine]) -> Iterator[str]:
    for line in ledger:
        for refused in line.refusals:
            reason = f"{refused.refusal} [{refused.refusal.code}]"
            yield f"  {line.node} ({line.op}): on {line.target}; not on {refused.target}: {reason}\n"


def _show_decisions(report: ModelReport) -> Iterator[str]:
    """Yield the states, the choices among kernels, and what was proven of kernels' numbers."""
    for state in report.states:
        shape = " x ".join(map(str, state.tensor.shape)) or "scalar"
        yield f"  state {state.tensor.name}: {state.tensor.dtype.value} {shape}, at first {state.start}\n"
    for selection in report.selections:
        yield from describe_selection(selection)
    for layer in report.layers:
        if layer.proof:
            yield f"  {layer.node} by {layer.kernel}: {layer.proof}\n"


def _show_memory(report: ModelReport) -> Iterator[str]:
    """Yield the copies between memories, and what each memory holds."""
    for transfer in report.transfers:
        spaces = f"{transfer.source} -> {transfer.destination}"
        yield f"  copy {transfer.tensor}: {spaces}, {transfer.size} bytes\n"
    yield f"  arena {report.arena_bytes} bytes (largest live set {report.arena_lower_bound}), "
    yield f"weights {report.weight_bytes} bytes, {report.transposes} transposes\n"
    for space, size in report.spaces.items():
        yield f"  {space}: {size} bytes\n"


def describe_selection(selection: Selection) -> Iterator[str]:
    """Yield a line for each level: the candidate that computes a node there, why, and what all of them cost.

    Nothing for one alone.
    """
    key = selection.key
    if len(selection.refused) + max(len(choice.costs) for choice in selection.choices) < 2:
        return
    for choice in selection.choices:
        costs = ", ".join(
            f"{name} {cost:g}" for name, cost in sorted(choice.costs.items(), key=lambda item: item[1])
        )
        unit = f" {selection.unit}" if selection.unit else ""
        chosen = f"{choice.candidate}, {choice.reason}; costs: {costs}{unit}"
        yield f"  {key.node} ({key.op} of {key.shapes}) at {choice.level}: {chosen}\n"
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in selection.refused.items():
        names_by_reason[reason].append(name)
    for reason, names in names_by_reason.items():
        yield f"  {key.node} ({key.op} of {key.shapes}): not {', '.join(names)}: {reason}\n"
