"""Judges a node by the rules of a generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mace_core.api import Refusal
from mace_core.ir import Graph, Node
from mace_target_mdla.operation import TfliteOperation
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.rules.checks import CHECKS
from mace_target_mdla.rules.table import OperatorEntry, Rule, RuleSource, RuleTable, Verdict

RECURRENT = ("GRU", "LSTM", "RNN")
"""Recurrent ops, which no single operator of the file format expresses."""


@dataclass(frozen=True)
class RuleFinding:
    """A rule that a node breaks.

    rule: its identifier.  is_computed: whether the node runs on the device nevertheless.
    """

    rule: str
    verdict: Verdict
    is_computed: bool
    code: str
    sentence: str
    remedy: str
    source: RuleSource


@dataclass(frozen=True)
class Judgment:
    """What becomes of a node on a generation of the MDLA.

    operator: TFLite's name; "" for a node that no operator states.  findings: the most severe first.
    """

    operator: str
    findings: tuple[RuleFinding, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the most severe finding; HARDWARE without one."""
        return self.findings[0].verdict if self.findings else Verdict.HARDWARE

    def refusal(self, options: MdlaOptions) -> Refusal | None:
        """Return why the target does not take the node, under the options of the model; None if it does."""
        for finding in self.findings:
            if _is_refused(finding, options):
                reason = (
                    f"{finding.sentence} (MDLA {options.generation}, rule {finding.rule}, {finding.source})"
                )
                return Refusal(finding.code, reason, finding.remedy)
        return None


def judge(node: Node, graph: Graph, table: RuleTable, uses: Mapping[str, int] | None = None) -> Judgment:
    """Return the verdict of a generation's rules on a node, with every rule that it breaks.

    uses: how often each tensor of the graph is read, for rules about shared operands; None leaves these out.
    """
    operation = TfliteOperation.of(node, graph, uses)
    findings = [*filter(None, (_apply(rule, operation) for rule in table.rules.values()))]
    if listed := _judge_operator(operation, table):
        findings.insert(0, listed)
    # The sort is stable, so that of findings of one verdict that about the operator itself stays first.
    findings.sort(key=lambda finding: -finding.verdict.rank)
    return Judgment(operation.operator, tuple(findings))


def _is_refused(finding: RuleFinding, options: MdlaOptions) -> bool:
    if finding.verdict is Verdict.SOFTWARE:
        return not options.accepts_software
    if finding.verdict is Verdict.UNKNOWN:
        # Where only a remark of the guide is lost, the operator's own row still promises that the node runs.
        return not finding.is_computed and not options.accepts_unknown
    return finding.verdict is Verdict.UNSUPPORTED


def _apply(rule: Rule, operation: TfliteOperation) -> RuleFinding | None:
    if rule.operators and operation.operator not in rule.operators:
        return None
    violation = CHECKS[rule.check](operation, rule.limits)
    if not violation:
        return None
    sentence = rule.sentence.format(violation=violation, operator=operation.operator)
    return RuleFinding(rule.id, rule.verdict, rule.is_computed, rule.code, sentence, rule.remedy, rule.source)


def _judge_operator(operation: TfliteOperation, table: RuleTable) -> RuleFinding | None:
    """Return what the list of operators says of a node; None for what the hardware computes."""
    name = operation.operator
    if not name:
        sentence = (
            f"no operator of TFLite computes {operation.node.op.name} with these operands and attributes"
        )
        if operation.node.op.name in RECURRENT:
            # Its five operands are those of TFLite's LSTM of uint8, which no frontend here keeps as one node.
            sentence += "; the guide lists the quantized LSTM of five operands alone (guide 310)"
            remedy = "give it to the CPU, or export the model with its steps spelled out"
            return _find_operator("operator-recurrent", Verdict.UNSUPPORTED, sentence, remedy, table.unlisted)
        return _find_operator("operator", Verdict.UNSUPPORTED, sentence, "", table.unlisted)
    entry = table.operators.get(name, table.unlisted)
    if entry.verdict is Verdict.HARDWARE:
        return None
    remedies = {Verdict.SOFTWARE: f"write it with other operators than {name}"}
    if entry.since:
        sentence = f"the guide lists {name} from MDLA {entry.since} on"
        remedies[Verdict.UNSUPPORTED] = f"choose a chip with MDLA {entry.since}"
    elif entry.verdict is Verdict.SOFTWARE:
        sentence = f"{name} is computed by software"
    else:
        sentence = f"what is published of MDLA {table.generation} does not list {name}"
        remedies[Verdict.UNKNOWN] = "state `unknown: accept` to try it on a device"
    return _find_operator(f"operator-{name}", entry.verdict, sentence, remedies.get(entry.verdict, ""), entry)


def _find_operator(
    rule: str, verdict: Verdict, sentence: str, remedy: str, entry: OperatorEntry
) -> RuleFinding:
    code = "unknown" if verdict is Verdict.UNKNOWN else "unsupported-op"
    return RuleFinding(rule, verdict, verdict is Verdict.SOFTWARE, code, sentence, remedy, entry.source)
