"""`mace lint` over deployment files: chips, models, and a vendor's plan beside the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mace_core.api import Target
from mace_core.cli import main
from mace_core.errors import MaceError
from mace_core.lint import LintNode, LintReport, PlannedOperation, VendorPlan
from mace_core.lint_run import LintRequest, _compare, compare_with_plan, lint_deployment

DIGITS = Path(__file__).parents[2] / "models/digits/digits.yml"


def test_every_target_can_be_asked() -> None:
    (report,) = lint_deployment(LintRequest(DIGITS, "host"))
    assert report.target == "cpu"
    assert report.regions == 1
    assert {node.verdict for node in report.nodes} == {"hardware"}


def test_a_target_without_chips_refuses_soc() -> None:
    with pytest.raises(MaceError, match="'soc' is no option of the target"):
        lint_deployment(LintRequest(DIGITS, "host", ("MT8195",)))


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(MaceError, match="--model nets: no such model; models in this deployment: digits"):
        lint_deployment(LintRequest(DIGITS, "host", model="nets"))


def test_the_command_prints_json_and_tables() -> None:
    result = CliRunner().invoke(main, ["lint", str(DIGITS), "--target", "host", "--json"])
    assert result.exit_code == 0, result.output
    (report,) = json.loads(result.output)
    assert report["share_of_nodes"] == 1.0
    assert "hardware" in CliRunner().invoke(main, ["lint", str(DIGITS), "--target", "host"]).output


def test_a_plan_of_a_target_without_one_is_refused(tmp_path: Path) -> None:
    plan = tmp_path / "plan.txt"
    plan.write_text("OP[0]: CONV_2D\n")
    with pytest.raises(MaceError, match="target 'cpu': reads no plan"):
        compare_with_plan(LintRequest(DIGITS, "host"), plan)
    with pytest.raises(MaceError, match=r"absent\.txt: cannot be read"):
        compare_with_plan(LintRequest(DIGITS, "host"), tmp_path / "absent.txt")


def test_a_plan_is_compared_with_the_one_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tmp_path / "plan.txt"
    plan.write_text("nothing that a target must understand")
    operations = (PlannedOperation("NEW", "NPU"),)
    monkeypatch.setattr(Target, "read_plan", lambda _, text: VendorPlan(operations, frozenset(), (text,)))
    compared = compare_with_plan(LintRequest(DIGITS, "host"), plan)
    (report,) = lint_deployment(LintRequest(DIGITS, "host"))
    assert (compared.model, compared.unread) == ("digits", (plan.read_text(),))
    # Of one length, so the operation of the plan stands in the place of our nodes, none of which it has.
    assert [line.node for line in compared.lines] == [*(node.node for node in report.nodes), ""]


def node(name: str, operator: str, *, is_taken: bool = True) -> LintNode:
    return LintNode(name, operator, "hardware" if is_taken else "unsupported", is_taken, operator)


def test_operations_are_compared_in_order() -> None:
    nodes = (node("a", "CONV_2D"), node("b", "SOFTMAX", is_taken=False), node("c", "ADD"), node("d", "RELU"))
    operations = (
        PlannedOperation("CONV_2D", "NPU_1"),
        PlannedOperation("PAD", ""),
        PlannedOperation("ADD", "CPU"),
    )
    plan = VendorPlan(operations, frozenset({"NPU_1"}), ("strange",))
    comparison = _compare(LintReport("net", "acme", "chip", nodes, 2), plan)
    states = [(line.node, line.operator, line.planned, line.state) for line in comparison.lines]
    assert states == [
        ("a", "CONV_2D", "acme", "same"),
        ("", "PAD", "unknown", "only in the plan"),
        ("c", "ADD", "CPU", "differs"),
        ("d", "RELU", "", "not in the plan"),
    ]
    assert comparison.unread == ("strange",)
