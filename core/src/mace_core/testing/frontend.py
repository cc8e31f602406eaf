"""What every frontend must keep."""

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
    """Derive from it, set `frontend` and implement `sample`, and pytest runs the contract."""

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

    def expected(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The sample's outputs for these inputs, as the framework computes them."""
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
        """Write a small model whose input is called x, and whose last node and output are called y, whatever that is.

        None if the framework's files have no names that a user gives.
        """
        return None

    def test_hostile_names_stay_names(self, tmp_path: Path) -> None:
        """Each hostile name is refused with one message, or stays a name in all that is generated for this machine."""
        registry = Registry.load()
        choice = registry.select("host")[0]
        work = Compilation(choice, registry)
        plans: list[Plan] = []
        refused: list[str] = []
        for number, name in enumerate(hostile.NAMES):
            folder = tmp_path / str(number)
            folder.mkdir()
            files = self.named_sample(folder, f"{name} in", name)
            if files is None:
                pytest.skip("the frontend offers no sample with names")
            try:
                graph = run_phases(verify(self._load(files)), registry).renamed(f"m{number}")
            except MaceError:
                refused.append(name)
                continue
            plans.append(compile_graph(Model(graph.name, ()), graph, work).plan)
        made = code.library("names", plans, library_levels(registry.targets_for(choice, ()), choice.abi))
        assert hostile.escapes(made.files) == []
        assert len(refused) <= len(hostile.NAMES) // 2, "too few names to test anything"
        shared_library(made, choice.compiler, tmp_path / "out", ("-O0",))

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
        found, expected = execute(graph, inputs), self.expected(inputs)
        for name, array in expected.items():
            np.testing.assert_allclose(
                found[name], array, rtol=self.tolerance, atol=self.tolerance, err_msg=name
            )

    def test_rubbish_is_one_clear_error(self, tmp_path: Path) -> None:
        suffix = self.frontend.suffixes[0] if self.frontend.suffixes else ".bin"
        rubbish = tmp_path / f"rubbish{suffix}"
        rubbish.write_bytes(b"\x00not a model\xff" * 9)
        with pytest.raises(MaceError, match="rubbish"):
            self._load((rubbish,))
