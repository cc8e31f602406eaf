"""What a session costs, measured by benchmarks/session.py: the fastest of many batches, which a busy machine does not change much."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks/session.py"


@pytest.mark.slow
def test_a_run_costs_little_more_than_its_kernels(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("session_benchmark", SCRIPT)
    assert spec
    assert spec.loader
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    figures = benchmark.measure(tmp_path, rounds=5000)
    assert figures["relu"]["run_ns"] < 100
    assert figures["relu"]["open_ns"] < 20_000
    # The processor is asked for its instructions when a session opens: cpuid took a quarter of each run of digits.
    assert figures["digits"]["run_ns"] * 1.2 < figures["digits"]["open_and_run_ns"]
