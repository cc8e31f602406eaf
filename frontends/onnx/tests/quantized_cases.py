"""Compares models of integers with ONNX Runtime: the numpy reference, and a library of all of them for this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase

from mace_core.deployment import Model
from mace_core.ir import Array
from mace_core.run.reference import execute
from mace_core.testing.compiled import load_registry, run_merged
from mace_core.testing.processor import levels_here
from mace_core.transforms import run_phases
from mace_frontend_onnx import Onnx


def runtime_outputs(path: Path, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return what ONNX Runtime computes."""
    run = Onnx().reference((path,), Model("m", (path,)))
    assert run is not None
    return run(arrays)


def assert_steps(actual: Array, expected: Array, name: str, steps: int = 1) -> None:
    """Assert that integers are those expected, at most this many steps apart, and few of them at all."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), name
    apart = np.abs(actual.astype(np.int64) - expected.astype(np.int64))
    assert apart.max(initial=0) <= steps, name
    assert not apart.size or (apart == 0).mean() > 0.9, name


def check_steps(case: RuntimeCase, path: Path, values: Mapping[str, Array], steps: int = 1) -> list[str]:
    """Compare integers with ONNX Runtime's, a step apart at most; return the ops."""
    graph = RuntimeCase(case.body, case.ports, case.constants, case.opset, values=values).load(path)
    arrays = RuntimeCase(case.body, case.ports, values=values).inputs(graph)
    actual, expected = execute(graph, arrays)["y"], runtime_outputs(path, arrays)["y"]
    assert_steps(actual, expected, case.body, steps)
    return [node.op.name for node in graph.nodes]


def check_compiled(cases: Mapping[str, RuntimeCase], folder: Path, steps: int = 1) -> None:
    """Compare one library of all cases with ONNX Runtime."""
    target = pytest.importorskip("mace_target_cpu").Cpu()
    graphs, arrays, expected = [], {}, {}
    for name, case in cases.items():
        path = folder / f"{name}.onnx"
        loaded = case.load(path)
        arrays[name] = case.inputs(loaded)
        expected[name] = runtime_outputs(path, arrays[name])
        graphs.append(run_phases(loaded, load_registry()).with_name(name))
    results = run_merged(target, graphs, folder, arrays, levels_here(target.levels("host"))[:1])
    for name, outputs in expected.items():
        for output, array in outputs.items():
            assert_steps(results[name][output], array, f"{name}: {output}", steps)
