"""TensorFlow Lite's operators through generated C, beside LiteRT's plain kernels."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from tflite_cases import Case, expected, load, same

from mace_core.registry import Registry
from mace_core.testing.compiled import run_merged
from mace_core.testing.processor import levels_here
from mace_core.transforms import run_phases
from mace_target_cpu import Cpu

ROOT = Path(__file__).parents[1]


def cases() -> Iterator[Case]:
    """Every case of the frontend's own tests, which hold the numpy references against LiteRT."""
    for file in sorted((ROOT / "frontends" / "tflite" / "tests").glob("test_*.py")):
        yield from runpy.run_path(str(file)).get("CASES", ())


@pytest.mark.slow
@pytest.mark.exhaustive
def test_operators_compute_in_c_what_litert_computes(tmp_path: Path) -> None:
    registry, wanted = Registry.load(), {}
    for number, case in enumerate(cases()):
        graph, arrays = load(tmp_path, case.written()), case.arrays()
        graph = run_phases(graph.with_name(f"case{number}"), registry)
        wanted[graph.name] = case, graph, arrays, expected(tmp_path, arrays)
    graphs = [graph for _, graph, _, _ in wanted.values()]
    inputs = {name: arrays for name, (_, _, arrays, _) in wanted.items()}
    results = run_merged(Cpu(), graphs, tmp_path, inputs, levels_here(Cpu().levels("host"))[:1])
    faults = {}
    for name, (case, graph, _, outputs) in wanted.items():
        found = results[name]
        try:
            for made, output in zip(case.outputs, graph.outputs, strict=True):
                same(found[output], outputs[output], case, made.scales is not None)
        except AssertionError as error:
            faults[case.name] = " ".join(str(error).split())[:300]
    assert len(wanted) > 250
    assert faults == {}
