"""Reports of `mace lint`: what a target that has no rules of its own can say, and sums of figures."""

from __future__ import annotations

import json
import math

import pytest

from mace_core.api import BuildConfig, Part, Refusal, Region, Target
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node
from mace_core.lint import Interval, LintNode, LintReport
from mace_core.lint_run import lint_by_refusals


class Picky(Target):
    """Takes Relu; knows nothing of Abs."""

    name = "picky"
    device = "picky"

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        if node.op.name == "Relu":
            return None
        code = "unknown" if node.op.name == "Abs" else "unsupported-op"
        return Refusal(code, f"no {node.op.name}", "use Relu")

    def compile(self, region: Region, config: BuildConfig) -> Part:
        raise NotImplementedError


def graph() -> Graph:
    builder = Builder("three")
    tensor = builder.input("x", DType.F32, (4,))
    for op in ("Relu", "Abs", "Exp"):
        tensor = builder.one(op, [tensor])
    return builder.finish([tensor])


def test_refusals_become_verdicts() -> None:
    report = lint_by_refusals(Picky(), graph())
    assert [node.verdict for node in report.nodes] == ["hardware", "unknown", "unsupported"]
    assert [node.is_taken for node in report.nodes] == [True, False, False]
    assert report.nodes[2].findings[0].sentence == "no Exp"
    assert report.nodes[2].findings[0].remedy == "use Relu"
    assert report.share() == pytest.approx(1 / 3)
    assert Picky().lint(graph()) is None


def test_shares_weigh_nodes_by_a_figure() -> None:
    nodes = (
        LintNode("a", "Conv", "hardware", is_taken=True, figures={"macs": Interval(30, 30)}),
        LintNode("b", "Conv", "unsupported", is_taken=False, figures={"macs": Interval(10, 10)}),
        LintNode("c", "Relu", "unsupported", is_taken=False),
    )
    report = LintReport("m", "t", "", nodes, 1)
    assert report.share("macs") == pytest.approx(0.75)
    assert report.share() == pytest.approx(1 / 3)
    assert report.share("cycles") is None
    assert LintReport("m", "t", "", (), 0).share() is None


def test_intervals_add_with_what_they_stand_on() -> None:
    total = Interval(1, 2, ("a", "b")) + Interval(3, math.inf, ("b", "c"))
    assert total == Interval(4, math.inf, ("a", "b", "c"))
    assert total.as_json() == {"low": 4, "high": None, "provenance": ("a", "b", "c")}


def test_json_has_no_infinity() -> None:
    node = LintNode("a", "Conv", "hardware", is_taken=True, figures={"ms": Interval(0, math.inf)})
    text = json.dumps(LintReport("m", "t", "", (node,), 1).as_json(), allow_nan=False)
    assert json.loads(text)["nodes"][0]["figures"]["ms"]["high"] is None


def test_a_verdict_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="no verdict 'maybe'; the verdicts are hardware, "):
        LintNode("a", "Conv", "maybe", is_taken=True)


def test_a_target_reads_no_plan_by_default() -> None:
    with pytest.raises(Exception, match="reads no plan of a vendor's compiler; leave --diff out"):
        Picky().read_plan("anything")
