"""The contract of frontends, as tests that run for each one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from mace_core.api import Frontend
from mace_core.build_manifest import library_levels
from mace_core.compilation import Compilation, compile_graph
from mace_core.deployment import Model
from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.plan import Plan
from mace_core.registry import Registry
from mace_core.run.compile import shared_library
from mace_core.run.reference import execute
from mace_core.testing import hostile
from mace_core.testing.plugin import PluginContract
from mace_core.transforms import run_phases
from mace_core.verify import verify


class FrontendContract(PluginContract):
    """Tests of a frontend: derive a class, set `frontend` and implement `sample` and `run_framework`."""

    kind = "frontend"
    frontend: ClassVar[Frontend]
    tolerance: ClassVar[float] = 1e-5

    @property
    def name(self) -> str:
        """The frontend's name."""
        return self.frontend.name

    def sample(self, folder: Path) -> tuple[Path, ...] | None:
        """Write a small model into the folder and return its files.

        None if the frontend reads nothing yet.
        """
        return None

    def run_framework(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the sample's outputs for these inputs, computed by the framework."""
        raise NotImplementedError

    @pytest.fixture
    def files(self, tmp_path: Path) -> tuple[Path, ...]:
        files = self.sample(tmp_path)
        if files is None:
            pytest.skip("the frontend offers no sample")
        return files

    def _load(self, files: tuple[Path, ...]) -> Graph:
        return self.frontend.load(files, Model("sample", files), core_ops())

    def named_sample(self, folder: Path, x: str, y: str) -> tuple[Path, ...] | None:
        """Write a small model with an input named x and a last node and output named y, and return its files.

        None if the framework's files have no names that users choose.
        """
        return None

    def test_hostile_names_stay_names(self, tmp_path: Path) -> None:
        """Each hostile name is refused with one message, or stays a name in everything that is generated."""
        registry = Registry.load()
        choice = registry.select("host")[0]
        compilation = Compilation(choice, registry)
        plans: list[Plan] = []
        refused: list[str] = []
        for number, name in enumerate(hostile.NAMES):
            folder = tmp_path / str(number)
            folder.mkdir()
            files = self.named_sample(folder, f"{name} in", name)
            if files is None:
                pytest.skip("the frontend offers no sample with names")
            try:
                graph = run_phases(verify(self._load(files)), registry).with_name(f"m{number}")
            except MaceError:
                refused.append(name)
                continue
            plans.append(compile_graph(Model(graph.name, ()), graph, compilation).plan)
        library = code.library("names", plans, library_levels(registry.targets_for(choice, ()), choice.abi))
        assert hostile.escapes(library.files) == []
        assert len(refused) <= len(hostile.NAMES) // 2, "too few names to test anything"
        shared_library(library, choice.compiler, tmp_path / "out", ("-O0",))

    def test_states_itself(self) -> None:
        assert self.frontend.order in ("NHWC", "NCHW")
        assert all(s.startswith(".") and s == s.lower() for s in self.frontend.suffixes)

    def test_sample_loads_the_same_twice(self, files: tuple[Path, ...]) -> None:
        first, second = verify(self._load(files)), self._load(files)
        assert first.nodes == second.nodes
        assert first.tensors == second.tensors
        assert all(np.array_equal(first.weights[n], second.weights[n]) for n in first.weights)

    def test_sample_computes_what_the_framework_does(self, files: tuple[Path, ...]) -> None:
        graph = self._load(files)
        rng = np.random.default_rng(0)
        inputs = {
            n: rng.standard_normal(graph.tensors[n].shape).astype(graph.tensors[n].dtype.numpy)
            for n in graph.port_inputs
        }
        actual, expected = execute(graph, inputs), self.run_framework(inputs)
        for name, array in expected.items():
            np.testing.assert_allclose(
                actual[name], array, rtol=self.tolerance, atol=self.tolerance, err_msg=name
            )

    def test_invalid_file_raises_one_error(self, tmp_path: Path) -> None:
        suffix = self.frontend.suffixes[0] if self.frontend.suffixes else ".bin"
        invalid = tmp_path / f"invalid-model{suffix}"
        invalid.write_bytes(b"\x00not a model\xff" * 9)
        with pytest.raises(MaceError, match="invalid-model"):
            self._load((invalid,))
