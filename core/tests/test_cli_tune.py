"""The command `mace tune`: what it hands on, what it prints, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from mace_core.cli import main
from mace_core.deployment import Model
from mace_core.run import tune
from mace_core.run.tuning_job import TuningJob

DIGITS = Path(__file__).parents[2] / "models" / "digits" / "digits.yml"


def test_each_model_is_tuned_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[TuningJob] = []

    def tell(
        job: TuningJob, model: Model, folders: tune.TuningFolders, step: Callable[[str], None]
    ) -> tune.TuningResult:
        step("measuring")
        jobs.append(job)
        assert folders.build.is_dir()
        assert folders.output == tmp_path
        return tune.TuningResult(model.name, ("cpu: fast",), (), 2e6)

    monkeypatch.setattr(tune, "tune_model", tell)
    options = ["--target", "host", "--device", "fast", "--seconds", "7", "--output", str(tmp_path)]
    shown = CliRunner().invoke(main, ["tune", str(DIGITS), *options])
    assert shown.exit_code == 0, shown.output
    assert "digits: 2.000 ms; no candidate is faster than the target's own choice" in shown.stdout
    printed = CliRunner().invoke(main, ["tune", str(DIGITS), *options, "--json"])
    assert [result["ns"] for result in json.loads(printed.stdout)] == [2e6]
    assert [(job.device, job.seconds, job.choice.text) for job in jobs] == [("fast", 7, "host")] * 2


def test_an_interrupt_ends_it_with_the_status_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(job: TuningJob, model: Model, *_: object) -> tune.TuningResult:
        return tune.TuningResult(model.name, (), (), 2e6, notes=(tune.INTERRUPTED,), is_interrupted=True)

    monkeypatch.setattr(tune, "tune_model", tell)
    options = ["--target", "host", "--output", str(tmp_path)]
    shown = CliRunner().invoke(main, ["tune", str(DIGITS), *options])
    assert shown.exit_code == 130
    assert f"digits: {tune.INTERRUPTED}\n" in shown.stdout


def refuse_to_measure(*_: object) -> None:
    raise AssertionError("measured before the folder was looked at")


def test_a_folder_that_is_missing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "some" / "tuning"

    def tell(job: TuningJob, model: Model, folders: tune.TuningFolders, _: object) -> tune.TuningResult:
        assert folders.output == folder
        assert folder.is_dir(), "before anything is measured"
        return tune.TuningResult(model.name, (), (), 2e6)

    monkeypatch.setattr(tune, "tune_model", tell)
    shown = CliRunner().invoke(main, ["tune", str(DIGITS), "--output", str(folder)])
    assert shown.exit_code == 0, shown.output
    assert [*folder.iterdir()] == [], "the trial file is gone"


@pytest.mark.parametrize("name", ["digits.tuning.yml", "some/tuning.yaml"])
def test_a_files_name_is_no_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "tune_model", refuse_to_measure)
    shown = CliRunner().invoke(main, ["tune", str(DIGITS), "--output", str(tmp_path / name)])
    assert shown.exit_code == 2
    assert shown.stderr.endswith(
        f"{name}: is a file's name, and each model gets a file of its own; name the folder for MODEL.tuning.yml\n"
    )
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_takes_no_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "tune_model", refuse_to_measure)
    (tmp_path / "file").write_text("")
    shown = CliRunner().invoke(main, ["tune", str(DIGITS), "--output", str(tmp_path / "file" / "tuning")])
    assert shown.exit_code == 2
    assert shown.stderr.endswith(
        "file/tuning: no file can be written there: Not a directory; name a folder that you may write to\n"
    )
