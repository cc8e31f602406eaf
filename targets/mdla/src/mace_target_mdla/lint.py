"""Describes what would become of a graph on an MDLA, for `mace lint`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from mace_core.ir import Graph, Node
from mace_core.lint import Interval, LintFinding, LintNode, LintReport
from mace_core.partition import count_regions
from mace_target_mdla.acceptance import Acceptance, examine
from mace_target_mdla.cost.estimate import CostModel, GraphCost, NodeCost
from mace_target_mdla.cost.rates import DeviceRates
from mace_target_mdla.judge import Judgment, judge
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.rules.table import Verdict, read_table

NOTES = (
    "verdicts follow the vendor's guide (seed), other published material (found) or our reading (inferred); "
    "nothing was run on silicon, and the vendor's compiler may decide otherwise",
    "figures are estimates from published peak rates, unvalidated on hardware: from the optimistic fusion, "
    "all cores, and computing beside moving, to the safe fusion, one core, and moving after computing; the "
    "upper end counts 1 ms for each change to the device and each one back",
)


def lint_graph(graph: Graph, options: MdlaOptions) -> LintReport:
    """Return the report of a graph."""
    table, uses = read_table(options.generation), graph.uses()
    answers = {node.name: examine(node, graph, options) for node in graph.nodes}
    taken = tuple(name for name, answer in answers.items() if answer.refusal is None)
    rates = DeviceRates.of(options)
    # Every node is estimated, so that the share of products that stays away is known; only taken ones count.
    everything = CostModel(graph, tuple(node.name for node in graph.nodes), rates).estimate(0).nodes
    regions = count_regions(graph, taken)
    cost = CostModel(graph, taken, rates).estimate(regions)
    nodes = []
    for node in graph.nodes:
        # Judged again with the readers counted: `examine` looks at one node and leaves such rules out.
        judgment = judge(node, graph, table, uses)
        described = _describe(node, judgment, answers[node.name], options)
        group = f"{cost.groups[node.name]}" if node.name in cost.groups else ""
        figures = _figures(everything[node.name], is_taken=described.is_taken)
        layout = everything[node.name].layout if described.is_taken else ""
        nodes.append(replace(described, group=group, layout=layout, figures=figures))
    figures = {"ms": cost.milliseconds, "cycles": cost.cycles, "bytes": cost.bytes}
    notes = (*NOTES, *_describe_gaps(cost, options))
    return LintReport(
        graph.name, "mdla", options.device, tuple(nodes), regions, figures if taken else {}, notes
    )


def _describe(node: Node, judgment: Judgment, answer: Acceptance, options: MdlaOptions) -> LintNode:
    """Describe a node by the judgment that counts readers, and by what the target answers."""
    verdict = judgment.verdict
    findings = [
        LintFinding(f.rule, f.verdict.value, f.sentence, f.remedy, f"{f.source.mark}: {f.source}")
        for f in judgment.findings
    ]
    if answer.refusal and judgment.refusal(options) is None:
        # The rules allow the node, and the file that takes it to the vendor's compiler cannot state it, or
        # not with the integers that the options ask for.
        verdict = Verdict.UNSUPPORTED
        findings.insert(
            0, LintFinding(answer.rule, verdict.value, answer.refusal.reason, answer.refusal.remedy)
        )
    if answer.steps:
        verdict = max((step.verdict for step in answer.steps), key=lambda v: v.rank)
        names = ", ".join(step.operator for step in answer.steps)
        findings.insert(0, LintFinding("rewrite", verdict.value, f"it is rewritten as {names}"))
    for loss in answer.losses:
        findings.insert(0, LintFinding("weights-per-tensor", verdict.value, str(loss)))
    return LintNode(
        node.name,
        node.op.name,
        verdict.value,
        is_taken=answer.refusal is None,
        operator=judgment.operator,
        findings=tuple(findings),
    )


def _figures(cost: NodeCost, *, is_taken: bool) -> Mapping[str, Interval]:
    """Return what a node costs; of one that another target computes, its products alone."""
    macs = {"macs": Interval(cost.macs.useful, cost.macs.useful)} if cost.macs.useful else {}
    if not is_taken:
        return macs
    wasted = {"wasted": Interval(cost.wasted, cost.wasted)} if cost.macs.padded else {}
    moved = Interval(cost.bytes, cost.bytes)
    return {**macs, **wasted, "cycles": cost.cycles, "bytes": moved, "ms": cost.milliseconds}


def _describe_gaps(cost: GraphCost, options: MdlaOptions) -> list[str]:
    """Return what the estimate leaves out."""
    notes = []
    if cost.unrated:
        counts = ", ".join(f"{count} {name}" for name, count in Counter(cost.unrated).most_common())
        notes.append(f"the guide has no rate for {counts}: the upper end has their traffic alone")
    if options.soc is None:
        notes.append("no chip is named, and one core was assumed; state `soc` to count those of a chip")
    elif options.soc.cores is None:
        notes.append(f"no source says how many cores {options.soc.name} has; one was assumed")
    return notes
