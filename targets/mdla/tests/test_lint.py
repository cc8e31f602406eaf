"""The report of `mace lint` for an MDLA."""

from __future__ import annotations

import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.lint import LintReport
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.socs import find_soc
from mace_target_mdla.target import Mdla


def classifier() -> Graph:
    builder = Builder("classifier")
    x = builder.input("x", DType.F32, (1, 8))
    values = builder.one("Softmax", [builder.one("LogSoftmax", [x])])
    return builder.finish([values])


def lint(soc: str) -> LintReport:
    chip = find_soc(soc, "test")
    return Mdla(MdlaOptions(chip.generation, chip)).lint(classifier())


@pytest.mark.parametrize(
    ("soc", "verdicts"),
    [
        ("MT6885", ["unknown", "unsupported"]),
        ("MT8195", ["unknown", "hardware"]),
        ("MT8188", ["unknown", "hardware"]),
    ],
)
def test_verdicts_by_chip(soc: str, verdicts: list[str]) -> None:
    assert [node.verdict for node in lint(soc).nodes] == verdicts


def test_findings_name_rule_source_and_mark() -> None:
    logs = lint("MT8195").nodes[0]
    assert logs.operator == "LOG_SOFTMAX"
    sources = {finding.rule: finding.source for finding in logs.findings}
    assert sources["operator-LOG_SOFTMAX"] == "seed: guide 88"
    assert sources["float32"] == "seed: guide 32"


def test_the_report_says_that_nothing_ran_on_silicon_and_what_has_no_rate() -> None:
    report = lint("MT8195")
    text = " ".join(report.notes)
    assert "nothing was run on silicon" in text
    assert "unvalidated on hardware" in text
    assert "no rate for 1 SOFTMAX" in text
    assert report.device == "MDLA 2.0 of MT8195"


def test_a_chip_with_an_unknown_number_of_cores_says_so() -> None:
    assert "no source says how many cores MT6877 has; one was assumed" in lint("MT6877").notes
    assert not [note for note in lint("MT8195").notes if "was assumed" in note]


def test_a_generation_without_a_chip_says_that_none_is_named() -> None:
    notes = Mdla(MdlaOptions("2.0")).lint(classifier()).notes
    assert "no chip is named, and one core was assumed; state `soc` to count those of a chip" in notes
    assert not [note for note in notes if "no source says" in note]


def test_what_is_not_taken_has_no_time() -> None:
    report = lint("MT6885")
    assert report.figures == {}
    assert [node.figures for node in report.nodes] == [{}, {}]


def test_another_chip_brings_its_own_generation() -> None:
    options = {"soc": "MT8183", "generation": "1.5", "software": "refuse"}
    assert Mdla().options_for_chip(options, "MT8195") == {"soc": "MT8195", "software": "refuse"}
