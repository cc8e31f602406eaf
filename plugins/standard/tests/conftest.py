"""What the tests of all transforms share: expressions as graphs, and comparing what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Storage
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs
from mace_core.verify import verify

COMMUTATIVE = ("Add", "Mul", "Minimum", "Maximum")


class Expressions:
    """Nodes as calls.

    Numbers become constants of one element, and inputs that may change places do so at random.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.new = Builder(f"graph{seed}")
        self.seed, self.picks = seed, 0

    def input(self, *shape: int, dtype: DType = DType.F32, storage: Storage | None = None) -> str:
        """An input of the graph, of real numbers that are stored so if a storage is given."""
        kind = storage.dtype if storage else dtype
        return self.new.input(f"x{len(self.new.inputs)}", kind, shape, storage and storage.quant)

    def constant(self, *shape: int, positive: bool = False) -> str:
        """Random numbers; if positive, neither near zero nor large."""
        array = self.rng.uniform(0.5, 2.0, shape) if positive else self.rng.standard_normal(shape)
        return self.new.weight("c", array.astype(np.float32))

    def array(self, values: object, dtype: str = "f4") -> str:
        """These numbers as a constant."""
        return self.new.weight("c", np.asarray(values, dtype))

    def __call__(
        self, op: str, *operands: str | float, storage: Storage | None = None, **attrs: Attribute
    ) -> str:
        """Add a node; returns its only output, stored so if a storage is given."""
        inputs = [
            o if isinstance(o, str) else self.array(np.full((1,) * int(self.rng.integers(2)), o))
            for o in operands
        ]
        if op in COMMUTATIVE and self.rng.random() < 0.5:
            inputs.reverse()
        outputs: Any = [self.new.reserve_output("y", storage)] if storage else 1
        return self.new.one(op, inputs, attrs, outputs=outputs)

    def pick(self, *choices: Any) -> Any:
        """Return one of them: over as many seeds as there are choices, each comes once, in random order.

        Were each seed's choice independent, one of 14 would be left out by 24 seeds every sixth time.
        """
        turn, position = divmod(self.seed, len(choices))
        order = np.random.default_rng((self.picks, turn)).permutation(len(choices))
        self.picks += 1
        return choices[order[position]]

    def shape(self, *ranks: int) -> tuple[int, ...]:
        """A small shape of one of these ranks, no axis of length 1."""
        return tuple(int(d) for d in self.rng.integers(2, 6, self.pick(*ranks)))

    def graph(self, *outputs: str) -> Graph:
        """The graph that computes these."""
        return verify(self.new.finish(outputs))


@pytest.fixture
def expressions() -> Callable[[int], Expressions]:
    """Of a seed: a graph to be made by calls."""
    return Expressions


@pytest.fixture
def ops_after() -> Callable[..., list[str]]:
    """Of transforms, a graph and a tolerance (0: the same bits): the ops after them.

    The graph was well formed, its numbers the same.
    """

    def check(
        transforms: Sequence[Callable[[Graph], Graph]], before: Graph, tolerance: float = 1e-5
    ) -> list[str]:
        after = before
        for transform in transforms:
            after = verify(transform(after))
        assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
        assert [after.tensors[o].storage for o in after.outputs] == [
            before.tensors[o].storage for o in before.outputs
        ]
        inputs = random_inputs(before)
        expected, found = execute(before, inputs), execute(after, inputs)
        for name in before.outputs:
            same(found[name], expected[name], tolerance)
        return [n.op.name for n in after.nodes]

    return check


def same(found: Array, expected: Array, tolerance: float) -> None:
    """Assert equal shape and type and numbers within the tolerance of the largest expected one.

    NaN in the same places.
    """
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    numbers = np.abs(expected[np.isfinite(expected)], dtype=np.float64) if tolerance else np.ones(1)
    size = numbers.max(initial=1e-30)
    np.testing.assert_allclose(found, expected, rtol=0, atol=float(tolerance * size))
