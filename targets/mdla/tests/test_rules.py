"""The tables: each rule holds exactly beyond its limit, and states its source, sentence and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from itertools import chain, pairwise

import pytest
import yaml
from mdla_rule_cases import CASES, Case

from mace_core.refusal import CODES
from mace_target_mdla.judge import Judgment, judge
from mace_target_mdla.rules.checks import CHECKS
from mace_target_mdla.rules.table import Verdict, read_sources, read_table
from mace_target_mdla.socs import GENERATIONS

MARKS = {"guide": "seed", "page-2.0": "found", "page-3.0": "found", "inferred": "inferred"}
PAIRS = [(rule, case) for rule, cases in CASES.items() for case in cases]


def stated_rules(generation: str) -> Mapping[str, Mapping[str, str]]:
    """The rules that a generation's own file states, without those that it inherits."""
    name = f"generation_{generation.replace('.', '_')}.yml"
    text = (files("mace_target_mdla") / "rules" / name).read_text()
    return {rule["id"]: rule for rule in yaml.safe_load(text)["rules"]}


def judge_first(case: Case, side: int) -> Judgment:
    generation, graph = case[0], (case[1], case[2])[side]()
    return judge(graph.nodes[0], graph, read_table(generation), graph.uses())


@pytest.mark.parametrize(("rule", "case"), PAIRS, ids=[f"{rule}-{case[0]}" for rule, case in PAIRS])
def test_a_rule_holds_beyond_its_limit_and_not_before(rule: str, case: Case) -> None:
    assert rule not in {finding.rule for finding in judge_first(case, 0).findings}
    (finding,) = (f for f in judge_first(case, 1).findings if f.rule == rule)
    stated = stated_rules(case[0])[rule]
    assert finding.verdict is Verdict(stated["verdict"])
    assert "{" not in finding.sentence


def test_every_rule_of_every_generation_has_a_case() -> None:
    stated = {(rule, generation) for generation in GENERATIONS for rule in stated_rules(generation)}
    tried = {(rule, case[0]) for rule, case in PAIRS}
    assert tried == stated


@pytest.mark.parametrize("generation", GENERATIONS)
def test_rules_are_whole(generation: str) -> None:
    table = read_table(generation)
    for rule in table.rules.values():
        assert rule.code in CODES, rule.id
        assert rule.check in CHECKS, rule.id
        assert set(rule.operators) <= set(table.operators), rule.id
        assert rule.sentence.strip(), rule.id
        assert rule.remedy or rule.is_computed, f"{rule.id}: a refusal needs a remedy"
        assert rule.source.mark == MARKS.get(rule.source.document, "found"), rule.id
    for name, entry in table.operators.items():
        assert entry.source.document in read_sources(), name
        assert (entry.verdict is Verdict.UNSUPPORTED) == bool(entry.since), name


def test_every_check_serves_a_rule() -> None:
    rules = chain.from_iterable(read_table(g).rules.values() for g in GENERATIONS)
    assert {rule.check for rule in rules} == set(CHECKS)


def test_no_operator_becomes_worse_with_a_later_generation() -> None:
    """What the accelerator computes, its successors compute."""
    for earlier, later in pairwise(GENERATIONS):
        after = read_table(later).operators
        for name, entry in read_table(earlier).operators.items():
            assert after[name].verdict.rank <= entry.verdict.rank, f"{name}: {earlier} -> {later}"


@pytest.mark.parametrize(
    ("generation", "absent"),
    [
        ("2.0", {"asymmetric-int8", "requantization"}),
        ("3.0", {"concatenation", "transposed-convolution", "pad-axes", "average-pool-1x1"}),
    ],
)
def test_generations_drop_rules_of_their_predecessors(generation: str, absent: set[str]) -> None:
    before = GENERATIONS[GENERATIONS.index(generation) - 1]
    assert absent == set(read_table(before).rules) - set(read_table(generation).rules)


def test_only_the_guide_is_presented_as_the_vendors() -> None:
    assert {name: source["mark"] for name, source in read_sources().items() if source["mark"] == "seed"} == {
        "guide": "seed"
    }
