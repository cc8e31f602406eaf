"""What `mace lint` prints for people."""

from __future__ import annotations

import math

import pytest

from mace_core.lint import Interval, LintFinding, LintNode, LintReport
from mace_core.lint_run import PlanComparison, PlanDifference
from mace_core.lint_tables import show_comparison, show_interval, show_reports


def report(device: str, verdict: str) -> LintReport:
    finding = LintFinding("limit", verdict, "x is large", "make it small", "guide 7")
    conv = LintNode(
        "conv",
        "Conv",
        verdict,
        is_taken=verdict == "hardware",
        operator="CONV_2D",
        findings=(finding,),
        figures={"macs": Interval(2e6, 2e6), "ms": Interval(0.5, math.inf)},
    )
    return LintReport("net", "acme", device, (conv,), 1, {"ms": Interval(0.5, 2)}, ("an estimate",))


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (None, ""),
        (Interval(1, 1), "1"),
        (Interval(1234, 2.5e6), "1.23k..2.5M"),
        (Interval(0, math.inf), "0..?"),
        (Interval(3e9, 3e9), "3G"),
    ],
)
def test_intervals_are_short(interval: Interval | None, text: str) -> None:
    assert show_interval(interval) == text


def test_one_report_shows_nodes_rules_and_notes() -> None:
    text = show_reports([report("chip 1", "unsupported")])
    assert "conv (CONV_2D): unsupported: x is large; make it small [limit, guide 7]" in text
    assert "0.5..?" in text
    assert "1 CONV_2D" in text
    assert "an estimate" in text
    assert "0.0%" in text


def test_what_only_costs_more_is_told_once() -> None:
    cost = LintFinding("wide", "hardware", "x is wide", "make it small", "guide 7")
    nodes = [LintNode(name, "Conv", "hardware", is_taken=True, findings=(cost,)) for name in "abc"]
    text = show_reports([LintReport("net", "acme", "", tuple(nodes), 1)])
    assert text.count("x is wide") == 1
    assert "a (Conv) and 2 more: hardware: x is wide" in text
    for count, others in ((1, ""), (2, " and 1 more")):
        text = show_reports([LintReport("net", "acme", "", tuple(nodes[:count]), 1)])
        assert f"a (Conv){others}: hardware: x is wide" in text


def test_several_chips_stand_side_by_side() -> None:
    text = show_reports([report("chip 1", "unsupported"), report("chip 2", "hardware")])
    (line,) = (line for line in text.splitlines() if line.strip().startswith("conv"))
    assert line.split() == ["conv", "CONV_2D", "unsupported", "hardware"]
    assert "100.0%" in text


def test_a_comparison_counts_and_shows_what_was_not_understood() -> None:
    lines = (
        PlanDifference("conv", "CONV_2D", "acme", "acme"),
        PlanDifference("relu", "RELU", "acme", "CPU"),
        PlanDifference("", "PAD", "", "DMA"),
        PlanDifference("add", "ADD", "acme", ""),
    )
    text = show_comparison(PlanComparison("net", "chip", lines, ("??? \x1b[31m",)))
    assert "1 differs, 1 not in the plan, 1 only in the plan, 1 same" in text
    assert "1 lines of the plan were not understood, first: '??? \\x1b[31m'" in text


def test_a_chip_without_a_name_is_its_target() -> None:
    text = show_reports([report("", "unsupported"), report("chip 2", "hardware")])
    rows = [line.split() for line in text.splitlines()]
    assert [row[:2] for row in rows if row[:1] == ["acme"] or row[:2] == ["chip", "2"]] == [
        ["acme", "0.0%"],
        ["chip", "2"],
    ]
