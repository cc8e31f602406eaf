"""`mace benchmark` counts where a target does, and times elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from engine_stand_in import StandIn

from mace_core.cli_benchmark import benchmark
from mace_core.commands import load_job
from mace_core.deployment import Deployment
from mace_core.registry import Choice, Registry
from mace_core.run import count
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.count import ModelCount
from mace_core.toolchain import CountedRun, Counter

DIGITS = Path(__file__).parents[2] / "models/digits/digits.yml"


class Steps(Counter):
    names = ("steps",)
    max_macs = 4
    limit = "by a stand-in"

    def count(self, command: object) -> CountedRun:
        return CountedRun("", ())


def run_benchmark(builds: Path, *words: str) -> str:
    done = CliRunner().invoke(benchmark, [str(DIGITS), "--builds", str(builds), *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_counts_stand_in_the_place_of_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Steps()
    monkeypatch.setattr(count, "find_counter", lambda *opened: counter)

    def count_library(
        deployment: Deployment, folder: Path, choice: Choice, registry: Registry, used: Counter
    ) -> list[ModelCount]:
        assert folder == tmp_path / "digits"
        return [ModelCount("digits", choice.text, "sse2", used, (1234,), ())]

    monkeypatch.setattr(count, "count_library", count_library)
    (described,) = json.loads(run_benchmark(tmp_path, "--json"))
    assert (described["steps"], described["timing"]) == (1234, "counted")
    assert "1234" in run_benchmark(tmp_path)


def test_times_where_nothing_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn(*load_job(DIGITS, ""))
    stand_in.install(tmp_path)
    monkeypatch.setattr(BuiltLibrary, "execute", stand_in.execute)
    (timing,) = json.loads(run_benchmark(tmp_path, "--rounds", "3", "--json"))
    assert timing["ns"] == [1000, 2000, 3000]
