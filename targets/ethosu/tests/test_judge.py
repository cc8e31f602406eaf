"""The rules: each one from both sides of its limit, and all of them against what the installed Vela states."""

from __future__ import annotations

import pytest
from rule_cases import CASES, Case, fm, op

from mace_core.refusal import CODES
from mace_target_ethosu.judge import load_rules

GENERATIONS = {"u55": "EthosU55", "u65": "EthosU65", "u85": "EthosU85"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.generation}-{case.constraint}")
def test_a_limit_is_where_the_rule_says(case: Case) -> None:
    constraints = {c.name: c for c in load_rules(case.generation).operators[case.breaks.code]}
    constraint = constraints[case.constraint]
    refusal = constraint.judge(case.breaks)
    assert refusal is not None
    assert refusal.remedy
    assert case.constraint in refusal.reason
    kept = {c.name: c for c in load_rules(case.generation).operators[case.keeps.code]}.get(case.constraint)
    assert kept is None or kept.judge(case.keeps) is None


def test_every_rule_with_a_check_has_a_case() -> None:
    checked = {
        constraint.name
        for generation in GENERATIONS
        for constraints in load_rules(generation).operators.values()
        for constraint in constraints
        if constraint.check
    }
    assert checked == {case.constraint for case in CASES}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_rules_are_all_that_vela_states(generation: str) -> None:
    regor = pytest.importorskip("ethosu.regor", reason="Vela is not installed: it is in group frameworks")
    stated = {
        code.replace("ARGMAX", "ARG_MAX"): {sentence.strip() for sentence in sentences}
        for code, sentences in regor.tflite_operator_constraints(GENERATIONS[generation]).items()
    }
    rules = load_rules(generation).operators
    assert {code: {c.sentence.strip() for c in constraints} for code, constraints in rules.items()} == stated


def test_every_code_is_one_of_cores() -> None:
    for generation in GENERATIONS:
        for constraints in load_rules(generation).operators.values():
            assert {c.code for c in constraints} <= set(CODES)


def test_an_operator_without_a_table_is_refused_by_name() -> None:
    refusal = load_rules("u65").judge(op("SPACE_TO_BATCH_ND", fm()))
    assert refusal is not None
    assert (refusal.code, "U65" in refusal.reason, "SPACE_TO_BATCH_ND" in refusal.reason) == (
        "unsupported-op",
        True,
        True,
    )


def test_a_refusal_quotes_the_first_line_of_velas_sentence() -> None:
    refusal = load_rules("u55").judge(op("RELU", fm(dtype="INT32")))
    assert refusal is not None
    assert str(refusal) == (
        "'t' is INT32 (Vela, no-32-bit: 32-bit feature-maps are not supported); use 8 or 16 bits"
    )
