"""What a session costs: the benchmark measures it, and what made it cost less stays in the generated code."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mace_core.emit import code
from mace_core.testing.compiled import plan_graph
from mace_core.testing.hostile import branches
from mace_target_cpu import Cpu, is_x86

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
DIGITS = Path(__file__).parents[1] / "models/digits/digits.onnx"


def import_benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_benchmark", BENCHMARKS / f"{name}.py")
    assert spec
    assert spec.loader
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    return benchmark


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_benchmark_measures_both_models(tmp_path: Path) -> None:
    """Its figures are for people: they depend on the machine, so none of them is held against a limit here."""
    figures = import_benchmark("session").measure(tmp_path, rounds=100)
    assert set(figures) == {"relu", "digits"}
    assert all(value > 0 for model in figures.values() for value in model.values())


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="its program executes itself by Linux's name for it")
def test_the_benchmark_measures_the_first_inference_of_a_process(tmp_path: Path) -> None:
    benchmark = import_benchmark("first_inference")
    found = benchmark.measure(tmp_path, DIGITS, ["sse2"] if is_x86("host") else [], processes=2)
    assert len(found) == 4
    for name, processes in found.items():
        assert len(processes) == 2
        assert all(figures["load_ns"] > 0 for figures in processes)
        runs = 0 if name == benchmark.NO_LIBRARY else benchmark.RUNS
        assert all(len(figures.get("run_ns", [])) == runs for figures in processes)


def test_a_run_does_not_ask_the_processor_for_its_level() -> None:
    """Cpuid took a quarter of each run of digits; mace_open asks it once through `choose`."""
    files = code.library("once", [plan_graph(Cpu(), branches())], Cpu().levels("host")).files
    (program,) = [str(content) for name, content in files.items() if name.endswith("_program.c")]
    start = program.index("static void run(")
    body = program[start : program.index("static const char *choose(")]
    assert "level0 = f->levels[0];" in body
    assert "_levels[level0]" in body
    assert "_choose()" not in body
    assert "_choose()" in program[start + len(body) :]
