"""Times that were not measured on the processor itself say so."""

from __future__ import annotations

from mace_core.run.results import Timing
from mace_core.run.runners import Native, Qemu
from mace_core.run.tables import milliseconds, show_timings, timing_note


def test_what_runs_here_is_measured_and_what_an_emulator_runs_is_not() -> None:
    assert (Native.timing, Qemu.timing) == ("measured", "emulated")


def test_a_time_that_is_no_measurement_has_a_tilde_and_a_line_that_explains_it() -> None:
    measured, emulated = Timing("a", (2e6,)), Timing("b", (3e6,), timing="emulated")
    assert milliseconds(2e6, measured.timing) == "2.000"
    assert milliseconds(3e6, emulated.timing) == "~3.000"
    assert timing_note([measured.timing]) == ""
    assert (
        timing_note([measured.timing, emulated.timing])
        == "~ emulated: not measured on the processor itself\n"
    )
    text = show_timings([measured, emulated])
    assert "~3.000" in text
    assert "~2.000" not in text
    assert text.endswith("not measured on the processor itself\n")
