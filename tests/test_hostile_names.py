"""Hostile names through the programs beside a library, its report and the commands: they arrive as they are, or as harmless text."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from mace_core.emit import code
from mace_core.report import LibraryReport, report_plan
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.compile import program
from mace_core.run.runners import Native
from mace_core.testing import hostile
from mace_core.testing.compiled import host, plan_graph
from mace_core.testing.separate_calls import SeparateCalls
from mace_target_cpu import Cpu

pytestmark = pytest.mark.slow


class SeparateCpu(SeparateCalls, Cpu):
    """The CPU target without fused calls: one that does the work of two ops has the name of the second."""


def test_the_programs_and_the_report(tmp_path: Path) -> None:
    graph = hostile.branches()
    plan = plan_graph(SeparateCpu(), graph)
    sources = code.library("names", [plan], Cpu().levels("host"))
    for name in ("mace_run", "mace_benchmark"):
        program(name, sources, host(), tmp_path, ("-O0",))
    built = BuiltLibrary(tmp_path, Native(), LibraryReport({"names": report_plan(plan)}))
    inputs = {name: np.full((1, 4), -1, np.float32) for name in graph.inputs}
    actual = built.run("names", inputs)
    assert set(actual) == set(graph.outputs)
    assert all((array == 1).all() for array in actual.values())
    assert set(hostile.NAMES) <= set(built.layers("names", inputs))
    timed = built.time("names", rounds=1, layers=True).layers
    told = {layer.name for layer in timed}
    assert {name for name in hostile.NAMES if name.isprintable()} <= told
    assert all(name.isprintable() or "\u202e" in name or "\u2028" in name for name in told), (
        "a command to the terminal"
    )
    (tmp_path / "short.bin").write_bytes(b"x")
    wrong = subprocess.run(
        [tmp_path / "mace_run", f"--output={tmp_path}", tmp_path / "short.bin"],
        capture_output=True,
        check=False,
    )
    assert wrong.returncode == 2
    assert b"holds 1 bytes" in wrong.stderr
    assert not any(byte < 32 and byte != 10 for byte in wrong.stderr)
