"""What every target must keep."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from mace_core.api import Target
from mace_core.emit import code
from mace_core.ir import Graph
from mace_core.kernel_target import KernelTarget
from mace_core.memory import arena
from mace_core.testing import hostile
from mace_core.testing.compiled import case, compile_graphs
from mace_core.testing.plugin import PluginContract


class TargetContract(PluginContract):
    """Derive from it, set `target`, and pytest runs the contract."""

    kind = "target"
    target: ClassVar[Target]
    abi: ClassVar[str] = "host"

    @property
    def name(self) -> str:
        """The target's name."""
        return self.target.name

    def test_states_itself(self) -> None:
        assert self.target.runtime
        assert self.target.abis
        assert all(fnmatchcase(pattern.strip("*") or "x", pattern) for pattern in self.target.abis)

    def test_missing_is_stable(self) -> None:
        assert self.target.missing() == self.target.missing()
        assert self.target.missing() is None or str(self.target.missing()).strip()

    def test_refuses_answers_for_a_small_graph(self) -> None:
        graph = self._small()
        for node in graph.nodes:
            first = self.target.refuses(node, graph)
            assert first is None or first.strip(), f"{node}: an empty reason"
            assert self.target.refuses(node, graph) == first, f"{node}: two answers"

    def test_sources_are_the_same_twice(self, tmp_path: Path) -> None:
        if not isinstance(self.target, KernelTarget):
            pytest.skip("not a target of kernels")
        graph = self._small()
        if any(self.target.refuses(n, graph) for n in graph.nodes):
            pytest.skip("refuses the small graph")
        made = []
        for _ in range(2):
            program = self.target.lower(graph)
            made.append(code.library("twice", [code.Placed(program, arena(program))], self.target.isas(self.abi)))
        assert made[0].files == made[1].files
        text = "".join(f for f in made[0].files.values() if isinstance(f, str))
        assert str(Path.home()) not in text
        assert str(tmp_path.parent) not in text

    def test_hostile_names_stay_names(self, tmp_path: Path) -> None:
        """Nothing of a name in a model is code, whatever it holds; for this machine the library is compiled and run."""
        if not isinstance(self.target, KernelTarget):
            pytest.skip("not a target of kernels")
        graph = hostile.branches()
        if any(self.target.refuses(n, graph) for n in graph.nodes):
            pytest.skip("refuses the graph of additions")
        program = self.target.lower(graph)
        made = code.library("names", [code.Placed(program, arena(program))], self.target.isas(self.abi))
        assert hostile.escapes(made.files) == []
        if self.abi == "host":
            model = compile_graphs(self.target, [graph], tmp_path)["names"]
            assert [t.name for t in (*model.inputs, *model.outputs)] == [*graph.inputs, *graph.outputs]
            found = model.run({name: np.zeros((1, 4), np.float32) for name in graph.inputs})
            assert all((array == 1).all() for array in found.values())

    def test_levels_end_with_one_for_every_processor(self) -> None:
        if not isinstance(self.target, KernelTarget):
            pytest.skip("not a target of kernels")
        *_, last = levels = self.target.isas(self.abi)
        assert last.available == ""
        assert len({i.name for i in levels}) == len(levels)
        assert all(self.target.panel % i.columns == 0 for i in levels)

    def _small(self) -> Graph:
        return case("small", "Relu", [np.zeros((1, 4, 4, 3), np.float32)])
