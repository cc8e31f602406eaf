"""Costs of a tuning file: who reads them, and who must not be given any."""

from __future__ import annotations

from pathlib import Path

import pytest
from candidates_target import Grouping

from mace_core.calibration import CalibratedTarget, Measure, Numbers, check_costs, tuned_costs
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.tuning import TUNING, read_tuning, write_tuning


class Calibrated(Grouping, CalibratedTarget):
    """A target that asks for no measurement."""

    def calibrate(self, measure: Measure) -> Numbers:
        """Return nothing: no decision depends on numbers."""
        return {}


def write_costs(folder: Path) -> Path:
    """Write a tuning file with a number for the target of the tests."""
    file = folder / "t.yml"
    write_tuning(file, [], "a device", {"grouping": {"run_ns": 1.5}})
    return file


def test_a_model_has_the_costs_of_its_tuning_file(tmp_path: Path) -> None:
    model = Model("m", (), keys={TUNING: str(write_costs(tmp_path))})
    assert tuned_costs(model, "grouping") == {"run_ns": 1.5}
    assert tuned_costs(model, "another") == {}
    assert tuned_costs(Model("m", ()), "grouping") == {}


def test_costs_that_no_target_reads_are_refused(tmp_path: Path) -> None:
    tuning = read_tuning(write_costs(tmp_path))
    with pytest.raises(MaceError, match=r"t\.yml: costs: no target 'grouping' .* that do: none"):
        check_costs(tuning, {"grouping": Grouping(tmp_path)})
    check_costs(tuning, {"grouping": Calibrated(tmp_path)})
