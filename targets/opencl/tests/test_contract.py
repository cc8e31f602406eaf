"""The contract that every target keeps, on a real device.

PoCL compiles each kernel with LLVM, so what needs many of them is tried by `.ci/run` alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from opencl_device import load_on_device, require_device

from mace_core.run.reference import execute
from mace_core.testing.compiled import is_close, merge, random_inputs
from mace_core.testing.target import TargetContract
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl


@pytest.mark.device
class TestOpencl(TargetContract):
    target = Opencl()

    @pytest.fixture(autouse=True)
    def _device(self) -> None:
        require_device()

    @pytest.mark.exhaustive
    def test_accepted_nodes_compute_what_their_references_do(self, tmp_path: Path) -> None:
        super().test_accepted_nodes_compute_what_their_references_do(tmp_path)

    @pytest.mark.exhaustive
    @pytest.mark.parametrize("storage", ["f32", "f16"])
    def test_no_kernel_of_a_sample_leaves_its_tensors(self, storage: str, tmp_path: Path) -> None:
        target = Opencl(OpenclOptions(storage=storage, checks_bounds=True))
        graph = merge("samples", self.accepted_graphs())
        model = load_on_device([graph], tmp_path, target)["samples"]
        inputs = random_inputs(graph)
        expected, outputs = execute(graph, inputs), model.run(inputs)
        for name in graph.outputs if storage == "f32" else ():
            assert is_close(outputs[name], expected[name], graph.tensors[name], self.tolerance), name

    @pytest.mark.exhaustive
    def test_sessions_use_the_heap_only_if_a_driver_says_so(self, tmp_path: Path) -> None:
        super().test_sessions_use_the_heap_only_if_a_driver_says_so(tmp_path)

    @pytest.mark.exhaustive
    def test_states_last_from_run_to_run(self, tmp_path: Path) -> None:
        super().test_states_last_from_run_to_run(tmp_path)

    @pytest.mark.exhaustive
    def test_several_regions_compute_what_one_does(self, tmp_path: Path) -> None:
        super().test_several_regions_compute_what_one_does(tmp_path)
