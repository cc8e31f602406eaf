"""Every layer through transforms and generated C on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from caffe_cases import expect_outputs, expected, files_of, load, write_network

from mace_core.ir import Array, Graph
from mace_core.registry import Registry
from mace_core.testing.compiled import run_merged
from mace_core.testing.processor import levels_here
from mace_core.transforms import run_phases

MODULES = (
    "test_elementwise",
    "test_window",
    "test_movement",
    "test_norm",
    "test_recurrent",
    "test_detection",
)


@dataclass(frozen=True)
class Trial:
    """A network, its inputs and what it must compute."""

    name: str
    graph: Graph
    arrays: Mapping[str, Array]
    right: Mapping[str, Array]


def module(name: str) -> Any:
    """A file of tests beside this one."""
    spec = spec_from_file_location(f"caffe_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    result = module_from_spec(spec)
    sys.modules[spec.name] = result
    spec.loader.exec_module(result)
    return result


def trials(folder: Path) -> Iterator[Trial]:
    """Every layer of the tests beside this one, and detectors as they tell them."""
    for name in MODULES:
        for case in module(name).CASES:
            files = files_of(case, folder)
            yield Trial(case.name, load(files), case.given(), expect_outputs(case, files))
    detection = module("test_detection")
    for parameters, classes, kinds, images in detection.DETECTIONS:
        files = write_network(folder, detection.network(parameters, classes, kinds, images))
        arrays = detection.arrays(classes, kinds, images)
        yield Trial(parameters, load(files), arrays, expected(files, arrays))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_layers_through_generated_c(tmp_path: Path) -> None:
    registry, target = Registry.load(), pytest.importorskip("mace_target_cpu").Cpu()
    tested, graphs = list(trials(tmp_path)), []
    for number, trial in enumerate(tested):
        graph = run_phases(trial.graph, registry).with_name(f"case{number}")
        assert [r for n in graph.nodes if (r := target.refuses(n, graph))] == [], trial.name
        graphs.append(graph)
    inputs = {graph.name: trial.arrays for graph, trial in zip(graphs, tested, strict=True)}
    actual = run_merged(target, graphs, tmp_path, inputs, levels_here(target.levels("host"))[:1])
    for graph, trial in zip(graphs, tested, strict=True):
        for name, right in trial.right.items():
            assert actual[graph.name][name].shape == right.shape, trial.name
            np.testing.assert_allclose(
                actual[graph.name][name], right, rtol=3e-5, atol=3e-5, err_msg=trial.name
            )
