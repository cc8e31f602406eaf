"""Times that were not measured on the processor itself say so."""

from __future__ import annotations

from mace_core.commands import show_benchmark
from mace_core.run.check import milliseconds, timing_note
from mace_core.run.runners import Native, Qemu


def test_what_runs_here_is_measured_and_what_an_emulator_runs_is_not() -> None:
    assert (Native.timing, Qemu.timing) == ("measured", "emulated")


def test_a_time_that_is_no_measurement_has_a_tilde_and_a_line_that_explains_it() -> None:
    measured, emulated = {"model": "a", "ns": [2e6], "timing": "measured"}, {"model": "b", "ns": [3e6], "timing": "emulated"}
    assert milliseconds(2e6, measured) == "2.000"
    assert milliseconds(3e6, emulated) == "~3.000"
    assert timing_note([measured]) == ""
    assert timing_note([measured, emulated]) == "~ emulated: not measured on the processor itself\n"
    text = show_benchmark([measured, emulated])
    assert "~3.000" in text
    assert "~2.000" not in text
    assert text.endswith("not measured on the processor itself\n")
