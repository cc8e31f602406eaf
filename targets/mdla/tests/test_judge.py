"""Verdicts of nodes: what each generation's list of operators and rules say of them."""

from __future__ import annotations

import pytest

from mace_core.ir import DType
from mace_core.testing.samples import sample
from mace_target_mdla.judge import Judgment, judge
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.rules.table import read_table


def judge_sample(op: str, generation: str, dtype: DType = DType.F32, quantized: bool = False) -> Judgment:
    graph = sample(op, dtype, quantized=quantized)
    assert graph is not None
    return judge(graph.nodes[0], graph, read_table(generation))


@pytest.mark.parametrize(
    ("op", "verdicts"),
    [
        ("Conv", ("hardware", "hardware", "hardware")),
        ("Exp", ("unsupported", "hardware", "hardware")),
        ("Softmax", ("unsupported", "hardware", "hardware")),
        ("SpaceToDepth", ("software", "hardware", "hardware")),
        ("HardSwish", ("unknown", "unknown", "hardware")),
        ("LogSoftmax", ("unknown", "unknown", "unknown")),
        ("Erf", ("unsupported", "unsupported", "unsupported")),
    ],
)
def test_operators_by_generation(op: str, verdicts: tuple[str, ...]) -> None:
    assert tuple(judge_sample(op, g).verdict.value for g in ("1.5", "2.0", "3.0")) == verdicts


def test_refusals_follow_the_options() -> None:
    unknown, software = judge_sample("HardSwish", "2.0"), judge_sample("SpaceToDepth", "1.5")
    refusal = unknown.refusal(MdlaOptions("2.0"))
    assert refusal is not None
    assert refusal.code == "unknown"
    assert "rule operator-HARD_SWISH, guide 88" in refusal.reason
    assert unknown.refusal(MdlaOptions("2.0", accepts_unknown=True)) is None
    assert software.refusal(MdlaOptions("1.5")) is None
    refusal = software.refusal(MdlaOptions("1.5", accepts_software=False))
    assert refusal is not None
    assert refusal.code == "unsupported-op"


@pytest.mark.parametrize("op", ["GRU", "LSTM", "RNN"])
def test_recurrent_nodes_are_refused_with_what_the_guide_lists(op: str) -> None:
    (finding, *_) = judge_sample(op, "2.0").findings
    assert (finding.rule, finding.code) == ("operator-recurrent", "unsupported-op")
    assert "quantized LSTM of five operands alone (guide 310)" in finding.sentence
    assert "steps spelled out" in finding.remedy
