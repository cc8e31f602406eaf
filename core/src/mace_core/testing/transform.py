"""What every transform must keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest

from mace_core.ir import Array, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs
from mace_core.testing.strategies import random_graph
from mace_core.verify import verify

SEEDS = range(60)


class TransformContract:
    """Derive from it, set `name` and `apply`, and pytest runs the contract.

    tolerance: of the outputs before and after, relative to the larger of 1 and the value; 0 for a transform that only moves data.
    """

    name: ClassVar[str]
    apply: ClassVar[Callable[[Graph], Graph]]
    tolerance: ClassVar[float] = 1e-4

    @pytest.mark.parametrize("seed", SEEDS)
    def test_keeps_what_random_graphs_compute(self, seed: int) -> None:
        graph = verify(random_graph(seed))
        inputs = random_inputs(graph, seed)
        before = {name: array.copy() for name, array in graph.weights.items()}
        after = verify(type(self).apply(graph))
        assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
        self._same(execute(graph, inputs), execute(after, inputs), graph.outputs)
        assert all(np.array_equal(before[n], graph.weights[n]) for n in before), "the transform wrote into its input"

    @pytest.mark.parametrize("seed", SEEDS[:10])
    def test_ends_when_repeated(self, seed: int) -> None:
        graph = random_graph(seed)
        for _ in range(8):
            before, graph = graph, type(self).apply(graph)
            if [n.op for n in before.nodes] == [n.op for n in graph.nodes]:
                return
        pytest.fail("eight times over, and it still finds something to change")

    def _same(self, before: dict[str, Array], after: dict[str, Array], names: tuple[str, ...]) -> None:
        for name in names:
            np.testing.assert_allclose(after[name], before[name], rtol=self.tolerance, atol=self.tolerance, err_msg=name)
