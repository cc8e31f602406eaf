"""Writes expressions as graphs, and compares what graphs compute before and after transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Storage
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs
from mace_core.verify import verify

Choice = TypeVar("Choice")

COMMUTATIVE = ("Add", "Mul", "Minimum", "Maximum")


class Expressions:
    """Writes a graph as an expression: each call adds a node.

    Numbers become constants of one element, and inputs that may change places do so at random.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.new = Builder(f"graph{seed}")
        self.seed, self.picks = seed, 0

    def input(self, *shape: int, dtype: DType = DType.F32, storage: Storage | None = None) -> str:
        """Add an input of the graph; with a storage it holds real numbers in that form."""
        kind = storage.dtype if storage else dtype
        quant = storage.quant if storage else None
        return self.new.input(f"x{len(self.new.inputs)}", kind, shape, quant)

    def constant(self, *shape: int, positive: bool = False) -> str:
        """Add a constant of random numbers; if positive, they are neither near zero nor large."""
        array = self.rng.uniform(0.5, 2.0, shape) if positive else self.rng.standard_normal(shape)
        return self.new.weight("c", array.astype(np.float32))

    def array(self, values: object, dtype: str = "f4") -> str:
        """Add these numbers as a constant."""
        return self.new.weight("c", np.asarray(values, dtype))

    def __call__(
        self, op: str, *operands: str | float, storage: Storage | None = None, **attrs: Attribute
    ) -> str:
        """Add a node and return its only output, which has the given storage."""
        inputs = [
            o if isinstance(o, str) else self.array(np.full((1,) * int(self.rng.integers(2)), o))
            for o in operands
        ]
        if op in COMMUTATIVE and self.rng.random() < 0.5:
            inputs.reverse()
        outputs = [self.new.reserve_output("y", storage)] if storage else 1
        return self.new.one(op, inputs, attrs, outputs=outputs)

    def pick(self, *choices: Choice) -> Choice:
        """Return one of them: over as many seeds as there are choices, each comes once, in random order.

        Were each seed's choice independent, one of 14 would be left out by 24 seeds every sixth time.
        """
        turn, position = divmod(self.seed, len(choices))
        order = np.random.default_rng((self.picks, turn)).permutation(len(choices))
        self.picks += 1
        return choices[int(order[position])]

    def shape(self, *ranks: int) -> tuple[int, ...]:
        """A small shape of one of these ranks, no axis of length 1."""
        return tuple(int(d) for d in self.rng.integers(2, 6, self.pick(*ranks)))

    def graph(self, *outputs: str) -> Graph:
        """Return the graph that computes these tensors."""
        return verify(self.new.finish(outputs))


Form: TypeAlias = Callable[[Expressions, str], str]
"""Adds one spelling of an operation of the second argument, a tensor; returns the result."""


def ops_after(
    transforms: Sequence[Callable[[Graph], Graph]], before: Graph, tolerance: float = 1e-5
) -> list[str]:
    """Run transforms, check that the graph computes the same, and return the names of the ops it has then.

    A tolerance of 0 demands the same bits.
    """
    after = before
    for transform in transforms:
        after = verify(transform(after))
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    assert [after.tensors[o].storage for o in after.outputs] == [
        before.tensors[o].storage for o in before.outputs
    ]
    inputs = random_inputs(before)
    expected, actual = execute(before, inputs), execute(after, inputs)
    for name in before.outputs:
        assert_close(actual[name], expected[name], tolerance)
    return [n.op.name for n in after.nodes]


def assert_close(actual: Array, expected: Array, tolerance: float) -> None:
    """Assert that shapes and types are equal, and numbers within the tolerance of the largest expected one.

    NaN must be in the same places.
    """
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    numbers = np.abs(expected[np.isfinite(expected)], dtype=np.float64) if tolerance else np.ones(1)
    size = numbers.max(initial=1e-30)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=float(tolerance * size))
