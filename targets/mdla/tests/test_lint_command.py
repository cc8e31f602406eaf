"""`mace lint` on the shipped example, for chips of all generations and beside a plan."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from mace_core.cli import main

DIGITS = Path(__file__).parents[3] / "models/digits/digits.yml"


def lint(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["lint", str(DIGITS), "--target", "host+mdla", *arguments])


def test_chips_stand_side_by_side() -> None:
    result = lint("--soc", "MT6885,MT8195,MT8188")
    assert result.exit_code == 0, result.output
    (line,) = (line for line in result.output.splitlines() if "SOFTMAX" in line and "hardware" in line)
    assert line.split()[-3:] == ["unsupported", "hardware", "hardware"]
    for soc in ("MT6885", "MT8195", "MT8188"):
        assert f"of {soc}" in result.output


def test_figures_have_intervals_and_provenance() -> None:
    result = lint("--soc", "MT8195", "--json")
    (report,) = json.loads(result.output)
    milliseconds = report["figures"]["ms"]
    assert 0 < milliseconds["low"] < milliseconds["high"]
    assert "found: ncc-help --mdla-freq: 960 MHz" in milliseconds["provenance"]
    assert report["share_of_macs"] == 1.0


def test_without_a_chip_the_command_says_what_to_write() -> None:
    result = lint()
    assert result.exit_code == 2
    assert "no chip is stated; write soc: with its name, such as MT8195" in result.output


def test_a_chip_that_nobody_knows_is_refused() -> None:
    result = lint("--soc", "MT8195,MT1")
    assert result.exit_code == 2
    assert "no chip 'MT1' is known" in result.output


def test_a_plan_is_compared_and_what_is_not_understood_is_shown(tmp_path: Path) -> None:
    plan = tmp_path / "plan.txt"
    plan.write_text("Plan of the vendor\nOP[0]: CONV_2D\n  Target: MDLA_2_0\nOP[1]: SOFTMAX\n  Target: CPU\n")
    result = lint("--soc", "MT8195", "--diff", str(plan), "--json")
    comparison = json.loads(result.output)
    states = {line["operator"]: line["state"] for line in comparison["operations"]}
    assert states["CONV_2D"] in ("same", "not in the plan")
    assert "same" in {line["state"] for line in comparison["operations"] if line["operator"] == "CONV_2D"}
    assert states["SOFTMAX"] == "differs"
    assert comparison["unread"] == ["Plan of the vendor"]
    assert "there are 2 reports to compare" in lint("--soc", "MT8195,MT8188", "--diff", str(plan)).output
