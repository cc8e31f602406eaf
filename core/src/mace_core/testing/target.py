"""What every target must keep."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from mace_core.api import Target
from mace_core.emit import code
from mace_core.ir import DType, Graph
from mace_core.ops import core_ops
from mace_core.testing import hostile
from mace_core.testing.compiled import case, check_merged, compile_graphs, plan_graph
from mace_core.testing.plugin import PluginContract
from mace_core.testing.samples import VARIANTS, sample
from mace_core.testing.strategies import random_graph

PLAIN = (DType.F32, DType.I32, DType.U8, DType.BOOL)
STORED = (DType.I8, DType.U8)
ZERO_POINT = 3
SMOOTH = (
    *("Add", "Sub", "Mul", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish", "Softmax", "ReduceMean", "Resize"),
    *("Conv", "ConvTranspose", "MatMul", "MaxPool", "AveragePool", "Pad", "Slice", "Concat", "Transpose", "Reshape"),
)
"""Ops that turn a small error of a quantized operand into a small error of the result: one step decides nothing."""


class TargetContract(PluginContract):
    """Derive from it, set `target`, and pytest runs the contract.

    seeds: random networks that are tried.  tolerance: of floats, of the larger of 1 and the expected value.
    """

    kind = "target"
    target: ClassVar[Target]
    abi: ClassVar[str] = "host"
    seeds: ClassVar[int] = 12
    tolerance: ClassVar[float] = 1e-4

    @property
    def name(self) -> str:
        """The target's name."""
        return self.target.name

    def test_states_itself(self) -> None:
        assert self.target.device
        assert self.target.abis
        assert all(fnmatchcase(pattern.strip("*") or "x", pattern) for pattern in self.target.abis)

    def test_missing_is_stable(self) -> None:
        assert self.target.missing() == self.target.missing()
        assert self.target.missing() is None or str(self.target.missing()).strip()

    def test_refuses_answers_for_a_small_graph(self) -> None:
        graph = self._small()
        for node in graph.nodes:
            first = self.target.refuses(node, graph)
            assert self.target.refuses(node, graph) == first, f"{node}: two answers"

    def test_sources_are_the_same_twice(self, tmp_path: Path) -> None:
        if not self.target.levels(self.abi):
            pytest.skip("core compiles no kernels of this target")
        graph = self._small()
        if any(self.target.refuses(n, graph) for n in graph.nodes):
            pytest.skip("refuses the small graph")
        made = []
        for _ in range(2):
            made.append(code.library("twice", [plan_graph(self.target, graph, self.abi)], self.target.levels(self.abi)))
        assert made[0].files == made[1].files
        text = "".join(f for f in made[0].files.values() if isinstance(f, str))
        assert str(Path.home()) not in text
        assert str(tmp_path.parent) not in text

    def test_hostile_names_stay_names(self, tmp_path: Path) -> None:
        """Nothing of a name in a model is code, whatever it holds; for this machine the library is compiled and run."""
        if not self.target.levels(self.abi):
            pytest.skip("core compiles no kernels of this target")
        graph = hostile.branches()
        if any(self.target.refuses(n, graph) for n in graph.nodes):
            pytest.skip("refuses the graph of additions")
        made = code.library("names", [plan_graph(self.target, graph, self.abi)], self.target.levels(self.abi))
        assert hostile.escapes(made.files) == []
        if self.abi == "host":
            model = compile_graphs(self.target, [graph], tmp_path)["names"]
            assert [t.name for t in (*model.inputs, *model.outputs)] == [*graph.inputs, *graph.outputs]
            found = model.run({name: np.zeros((1, 4), np.float32) for name in graph.inputs})
            assert all((array == 1).all() for array in found.values())

    def test_levels_end_with_one_for_every_processor(self) -> None:
        if not self.target.levels(self.abi):
            pytest.skip("core compiles no kernels of this target")
        *_, last = levels = self.target.levels(self.abi)
        assert last.available == ""
        assert len({i.name for i in levels}) == len(levels)

    def test_accepted_nodes_compute_what_their_references_do(self, tmp_path: Path) -> None:
        """Every op and random networks, as one library: what a target accepts it must compute."""
        if not self.target.levels(self.abi):
            pytest.skip("core compiles no kernels of this target")
        levels = [level for level in self.target.levels(self.abi) if self.abi == "host" or not level.flags]
        if not levels:
            pytest.skip(f"no level for {self.abi} compiles here")
        graphs = [g for g in self.graphs() if not any(self.target.refuses(n, g) for n in g.nodes)]
        assert graphs, f"{self.target.name} accepts no node of any sample"
        check_merged(self.target, graphs, tmp_path, levels, self.tolerance)

    def graphs(self) -> list[Graph]:
        """Graphs of a few nodes that the target may be asked to compute."""
        made = [sample(op, dtype, variant=v) for op in core_ops() for dtype in PLAIN for v in range(-1, len(VARIANTS.get(op, ())))]
        made += [
            sample(op, dtype, quantized=True, zero_point=ZERO_POINT, variant=v)
            for op in SMOOTH
            for dtype in STORED
            for v in range(-1, len(VARIANTS.get(op, ())))
        ]
        networks = [random_graph(seed) for seed in range(self.seeds)]
        return [g.renamed(f"{number}_{g.name}") for number, g in enumerate([*made, *networks]) if g]

    def _small(self) -> Graph:
        return case("small", "Relu", [np.zeros((1, 4, 4, 3), np.float32)])
