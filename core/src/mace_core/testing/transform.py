"""The contract of transforms, as tests that run for each one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from itertools import chain, product
from typing import ClassVar

import numpy as np
import pytest

from mace_core.api import Transform
from mace_core.hookspecs import GROUP
from mace_core.ir import Array, DType, Graph
from mace_core.plugin_loader import PluginLoader
from mace_core.registry import Registry
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs
from mace_core.testing.operator_graphs import random_operators
from mace_core.testing.plugin import PluginContract
from mace_core.testing.samples import extreme_inputs
from mace_core.testing.strategies import random_graph
from mace_core.transforms import order_phases
from mace_core.verify import verify

SEEDS = range(60)
OPERATOR_SEEDS = range(24)
REPEATS = 8
INTEGERS = tuple(dtype for dtype in DType if not dtype.is_float)
HALF_TOLERANCE = 2.0**-7
"""Of the largest number: several roundings of half precision, in another order."""


class TransformContract(PluginContract):
    """Tests of all transforms that the plugin mace-transform-NAME offers: derive a class and set `name`.

    exact: transforms that only move or drop data; their outputs must stay the same bit for bit.
    tolerance: that of the other transforms, relative to the larger of 1 and the value.
    """

    kind = "transform"
    name: ClassVar[str]
    exact: ClassVar[frozenset[str]] = frozenset()
    tolerance: ClassVar[float] = 1e-4

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run the tests that take a transform for each one of the plugin."""
        if "transform" in metafunc.fixturenames:
            metafunc.parametrize(
                "transform", _load_transforms(self.module), ids=lambda transform: transform.name
            )

    def test_runs_by_being_installed(self) -> None:
        names = {transform.name for transform in _load_transforms(self.module)}
        assert names, f"{self.module} offers no transforms"
        steps = chain.from_iterable(order_phases(Registry.load()))
        assert names <= {step.transform.name for step in steps}

    def test_exact_transforms_exist(self) -> None:
        assert self.exact <= {transform.name for transform in _load_transforms(self.module)}

    def test_keeps_what_random_graphs_compute(self, transform: Transform) -> None:
        tolerance = 0.0 if transform.name in self.exact else self.tolerance
        for seed in SEEDS:
            sample = _make_sample(seed)
            graph = sample.graph
            weights = {name: array.copy() for name, array in graph.weights.items()}
            after = verify(transform.apply(graph))
            assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
            assert all(np.array_equal(weights[n], graph.weights[n]) for n in weights), (
                "the transform wrote into its input"
            )
            if not _is_same(after, graph):
                _assert_same(
                    sample.outputs, execute(after, sample.inputs), tolerance, f"random_graph({seed})"
                )

    def test_keeps_what_integers_and_halves_compute(self, transform: Transform) -> None:
        for seed, types in product(OPERATOR_SEEDS, (INTEGERS, (DType.F16,))):
            sample = _make_operators(seed, types)
            after = verify(transform.apply(sample.graph))
            if _is_same(after, sample.graph):
                continue
            actual = execute(after, sample.inputs)
            for name, array in sample.outputs.items():
                tolerance = HALF_TOLERANCE if array.dtype == np.float16 else 0.0
                scale = float(np.abs(array, dtype=np.float64).max(initial=1)) if tolerance else 1.0
                place = f"random_operators({seed}, {types}): {name}"
                np.testing.assert_allclose(actual[name], array, 0, tolerance * scale, err_msg=place)

    def test_ends_when_repeated(self, transform: Transform) -> None:
        for seed in SEEDS[:10]:
            graph = _make_sample(seed).graph
            for _ in range(REPEATS):
                before, graph = graph, transform.apply(graph)
                if [n.op for n in before.nodes] == [n.op for n in graph.nodes]:
                    break
            else:
                pytest.fail(f"random_graph({seed}): after {REPEATS} runs it still changes something")


@dataclass(frozen=True)
class _Sample:
    graph: Graph
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


@cache
def _make_sample(seed: int) -> _Sample:
    """Return a random graph with inputs and outputs, computed once for all transforms."""
    graph = verify(random_graph(seed))
    inputs = random_inputs(graph, seed)
    values = execute(graph, inputs)
    return _Sample(graph, inputs, {name: values[name] for name in graph.outputs})


@cache
def _make_operators(seed: int, types: tuple[DType, ...]) -> _Sample:
    """Return a random graph of these types with inputs and outputs."""
    graph = verify(random_operators(seed, types))
    inputs = extreme_inputs(graph, seed) if types is INTEGERS else random_inputs(graph, seed)
    values = execute(graph, inputs)
    return _Sample(graph, inputs, {name: values[name] for name in graph.outputs})


def _is_same(after: Graph, before: Graph) -> bool:
    """Tell whether a transform changed nothing, so that the outputs need not be computed again."""
    same_weights = all(before.weights.get(name) is array for name, array in after.weights.items())
    return same_weights and (after.nodes, after.tensors) == (before.nodes, before.tensors)


def _load_transforms(module: str) -> list[Transform]:
    """Return the transforms of one installed plugin, ordered by name."""
    loader = PluginLoader()
    loader.load(point for point in entry_points(group=GROUP) if point.value == module)
    return sorted(loader.tables["transforms"].values(), key=lambda transform: transform.name)


def _assert_same(
    expected: Mapping[str, Array], actual: Mapping[str, Array], tolerance: float, place: str
) -> None:
    for name, array in expected.items():
        np.testing.assert_allclose(
            actual[name], array, rtol=tolerance, atol=tolerance, err_msg=f"{place}: {name}"
        )
