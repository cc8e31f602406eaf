"""TensorFlow Lite's operators through generated C, beside LiteRT's plain kernels."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

from mace_core.emit import code
from mace_core.pipeline import normalise
from mace_core.plan import plan_calls
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.testing.compiled import host
from mace_frontend_tflite.cases import Case, expected, load, same
from mace_target_cpu import Cpu

ROOT = Path(__file__).parents[1]


def cases() -> Iterator[Case]:
    """Every case of the frontend's own tests, which hold the numpy references against LiteRT."""
    for file in sorted((ROOT / "frontends" / "tflite" / "tests").glob("test_*.py")):
        yield from runpy.run_path(str(file)).get("CASES", ())


def test_operators_compute_in_c_what_litert_computes(tmp_path: Path) -> None:
    registry, placed, wanted = Registry.load(), [], {}
    for number, case in enumerate(cases()):
        graph, arrays = load(tmp_path, case.written()), case.arrays()
        graph = normalise(graph.renamed(f"case{number}"), registry)
        program = Cpu().lower(graph)
        placed.append(plan_calls(program))
        wanted[graph.name] = case, graph, arrays, expected(tmp_path, arrays)
    sources = code.library("cases", placed, Cpu().levels("host")[:1])
    models = native.load(shared_library(sources, host(), tmp_path, ("-O1",)), "cases")
    faults = {}
    for name, (case, graph, arrays, outputs) in wanted.items():
        found = models[name].run(arrays)
        try:
            for made, output in zip(case.outputs, graph.outputs, strict=True):
                same(found[output], outputs[output], case, made.scales is not None)
        except AssertionError as error:
            faults[case.name] = " ".join(str(error).split())[:300]
    assert len(wanted) > 250
    assert faults == {}
