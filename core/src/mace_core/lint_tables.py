"""Prints what `mace lint` finds, as tables for people."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from mace_core.lint import Interval, LintFinding, LintNode, LintReport
from mace_core.lint_run import PlanComparison
from mace_core.run.tables import table

SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
COLUMNS = ("macs", "cycles", "bytes", "ms")
"""Figures that have a column of their own, in this order."""


def show_reports(reports: Sequence[LintReport]) -> str:
    """Return a table of nodes for each model, or one that compares chips where there are several."""
    text = ""
    for _, group in groupby(reports, key=lambda report: report.model):
        same_model = list(group)
        if len(same_model) > 1:
            text += show_chips(same_model)
        else:
            text += "".join(_show_report(same_model[0]))
    return text


def show_chips(reports: Sequence[LintReport]) -> str:
    """Return what becomes of each node of one model on several chips, and a summary of each chip."""
    first = reports[0]
    names = [report.device or report.target for report in reports]
    rows = [
        (node.node, node.operator or node.op, *(report.nodes[index].verdict for report in reports))
        for index, node in enumerate(first.nodes)
    ]
    text = table((first.model, "op", *names), rows)
    return text + table(
        ("chip", "nodes", "MACs", "regions", "ms", "not taken"), [_summarize(report) for report in reports]
    )


def show_comparison(comparison: PlanComparison) -> str:
    """Return a table of operations beside the vendor's plan, and what of the plan was not understood."""
    rows = [(line.node, line.operator, line.predicted, line.planned, line.state) for line in comparison.lines]
    text = table(("name", "op", "predicted", "planned", "state"), rows)
    counts = Counter(line.state for line in comparison.lines)
    text += ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) + "\n"
    if comparison.unread:
        text += f"{len(comparison.unread)} lines of the plan were not understood, first: "
        text += f"{comparison.unread[0][:100]!r}\n"
    return text


def show_interval(interval: Interval | None) -> str:
    """Return both bounds with a unit prefix, once where they are the same; "" for no estimate."""
    if interval is None:
        return ""
    if math.isinf(interval.high):
        return f"{_short(interval.low)}..?"
    low, high = _short(interval.low), _short(interval.high)
    return low if low == high else f"{low}..{high}"


def _short(number: float) -> str:
    for scale, prefix in SCALES:
        if abs(number) >= scale:
            return f"{number / scale:.3g}{prefix}"
    return f"{number:.3g}"


def _show_report(report: LintReport) -> Iterator[str]:
    columns = [name for name in COLUMNS if any(name in node.figures for node in report.nodes)]
    head = (report.model, "op", "state", "group", "layout", *columns)
    yield table(head, [_node_cells(node, columns) for node in report.nodes])
    yield from _show_findings(report)
    yield table(("chip", "nodes", "MACs", "regions", "ms", "not taken"), [_summarize(report)])
    for note in report.notes:
        yield f"  {note}\n"


def _show_findings(report: LintReport) -> Iterator[str]:
    """Yield a line for each finding; one for all nodes where a rule only tells what costs more."""
    costs: Counter[str] = Counter()
    for node in report.nodes:
        costs.update(finding.rule for finding in _costs(node))
    seen: set[str] = set()
    for node in report.nodes:
        for finding in node.findings:
            others = ""
            if finding in _costs(node):
                if finding.rule in seen:
                    continue
                seen.add(finding.rule)
                others = f" and {costs[finding.rule] - 1} more" if costs[finding.rule] > 1 else ""
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            source = f", {finding.source}" if finding.source else ""
            text = f"{finding.sentence}{remedy} [{finding.rule}{source}]"
            yield f"  {node.node} ({node.operator or node.op}){others}: {finding.verdict}: {text}\n"


def _costs(node: LintNode) -> list[LintFinding]:
    return [finding for finding in node.findings if finding.verdict == "hardware" and finding.source]


def _node_cells(node: LintNode, columns: Sequence[str]) -> tuple[str, ...]:
    figures = (show_interval(node.figures.get(name)) for name in columns)
    return (node.node, node.operator or node.op, node.verdict, node.group, node.layout, *figures)


def _summarize(report: LintReport) -> tuple[str, ...]:
    refused = Counter(node.operator or node.op for node in report.nodes if not node.is_taken)
    names = ", ".join(f"{count} {name}" for name, count in refused.most_common(4))
    shares = (_percent(report.share()), _percent(report.share("macs")))
    milliseconds = show_interval(report.figures.get("ms"))
    return (report.device or report.target, *shares, str(report.regions), milliseconds, names)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}%"
