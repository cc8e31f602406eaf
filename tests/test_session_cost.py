"""What a session costs: the benchmark measures it, and what made it cost less stays in the generated code."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from mace_core.emit import code
from mace_core.testing.compiled import plan_graph
from mace_core.testing.hostile import branches
from mace_target_cpu import Cpu

SCRIPT = Path(__file__).parents[1] / "benchmarks/session.py"


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_benchmark_measures_both_models(tmp_path: Path) -> None:
    """Its figures are for people: they depend on the machine, so none of them is held against a limit here."""
    spec = importlib.util.spec_from_file_location("session_benchmark", SCRIPT)
    assert spec
    assert spec.loader
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    figures = benchmark.measure(tmp_path, rounds=100)
    assert set(figures) == {"relu", "digits"}
    assert all(value > 0 for model in figures.values() for value in model.values())


def test_a_run_does_not_ask_the_processor_for_its_level() -> None:
    """Cpuid took a quarter of each run of digits; mace_open asks it once through `choose`."""
    files = code.library("once", [plan_graph(Cpu(), branches())], Cpu().levels("host")).files
    (program,) = [str(content) for name, content in files.items() if name.endswith("_program.c")]
    start = program.index("static void run(")
    body = program[start : program.index("static const char *choose(")]
    assert "_levels[f->levels[0]]" in body
    assert "_choose()" not in body
    assert "_choose()" in program[start + len(body) :]
