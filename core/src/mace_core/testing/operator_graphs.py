"""Random graphs of operators on small tensors of any types, with the extreme numbers of each as constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Shape

LENGTHS = (1, 2, 3, 4, 5, 8)
"""Lengths of axes: 4 and 8 fill vectors, the others leave elements over."""

MAX_ELEMENTS = 2000
"""Larger results are not read further, so that a graph stays small; nor are those without elements."""


def random_operators(seed: int, types: Sequence[DType], nodes: int = 8) -> Graph:
    """Return a graph of about so many nodes; equal for equal seeds.

    types: of the inputs and of what a Cast makes. What an operator refuses is left out.
    """
    return _Operators(seed, types).grow(nodes)


class _Operators:
    def __init__(self, seed: int, types: Sequence[DType]) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = Builder(f"operators{seed}")
        self.types = types
        self.tensors = [self._add_input(number) for number in range(int(self.rng.integers(1, 3)))]

    def grow(self, nodes: int) -> Graph:
        steps: Sequence[Callable[[str], Sequence[str]]] = (
            self._combine,
            self._combine,
            self._combine,
            self._limit,
            self._limit,
            self._map,
            self._cast,
            self._transpose,
            self._reshape,
            self._slice,
            self._pad,
            self._concat,
            self._split,
            self._reduce,
            self._select,
            self._gather,
            self._multiply,
        )
        for _ in range(4 * nodes):
            if len(self.builder.nodes) >= nodes:
                break
            source = self._choose(self.tensors[-4:])
            step = steps[int(self.rng.integers(len(steps)))]
            try:
                results = step(source)
            except MaceError:
                continue  # the operator does not take this type or shape
            self.tensors += [t for t in results if 0 < self.builder.tensors[t].elements <= MAX_ELEMENTS]
        outputs = [self.tensors[-1], self._choose(self.tensors)]
        return self.builder.finish(outputs, ["first", "second"])

    def _choose(self, names: Sequence[str]) -> str:
        return names[int(self.rng.integers(len(names)))]

    def _choose_type(self) -> DType:
        return self.types[int(self.rng.integers(len(self.types)))]

    def _add_input(self, number: int) -> str:
        rank = int(self.rng.choice([0, 1, 2, 3, 4, 4]))
        shape = tuple(int(length) for length in self.rng.choice(LENGTHS, rank))
        return self.builder.input(f"x{number}", self._choose_type(), shape)

    def _constant(self, dtype: DType, shape: Shape) -> str:
        return self.builder.weight("c", self._numbers(dtype, shape))

    def _numbers(self, dtype: DType, shape: Shape) -> Array:
        rng = self.rng
        if dtype is DType.BOOL:
            return np.asarray(rng.integers(0, 2, shape)).astype(bool)
        if dtype.is_float:
            return np.asarray(rng.integers(-6, 7, shape) / 4).astype(dtype.numpy)
        limits = np.iinfo(dtype.numpy)
        if rng.random() < 0.3:
            extremes = np.array([limits.min, limits.max, limits.max - 1, 0, 1], dtype.numpy)
            return np.asarray(rng.choice(extremes, shape))
        low = max(limits.min, -4)
        return np.asarray(rng.integers(low, 5, shape)).astype(dtype.numpy)

    def _partner(self, x: str) -> str:
        """Return a constant that broadcasts with a tensor, or another tensor of its type."""
        tensor = self.builder.tensors[x]
        others = [t for t in self.tensors if self.builder.tensors[t].dtype is tensor.dtype]
        if self.rng.random() < 0.4:
            return self._choose(others)
        shapes = ((), tensor.shape[-1:], tensor.shape, (1,) * len(tensor.shape))
        return self._constant(tensor.dtype, shapes[int(self.rng.integers(len(shapes)))])

    def _combine(self, x: str) -> Sequence[str]:
        names = ["Add", "Sub", "Mul", "Minimum", "Maximum", "PRelu"]
        if not self.builder.tensors[x].dtype.is_float:
            names += ["Div", "Mod", "Pow", "BitwiseAnd", "BitwiseXor", "And", "Or", "Equal", "Less"]
        pair = [x, self._partner(x)]
        return self.builder.add(self._choose(names), pair if self.rng.random() < 0.6 else pair[::-1])

    def _limit(self, x: str) -> Sequence[str]:
        dtype = self.builder.tensors[x].dtype
        if dtype.is_float or self.rng.random() < 0.3:
            return self.builder.add("Relu", [x])
        bounds = [float("-inf"), -2.5, 0, 2, 5.5, 2**53 + 1, 2**62 + 1, float("inf")]
        low, high = (bounds[int(self.rng.integers(len(bounds)))] for _ in range(2))
        return self.builder.add("Clip", [x], {"min": low, "max": high})

    def _map(self, x: str) -> Sequence[str]:
        return self.builder.add(self._choose(["Abs", "Neg", "Identity", "Not", "BitwiseNot", "Sign"]), [x])

    def _cast(self, x: str) -> Sequence[str]:
        source, target = self.builder.tensors[x].dtype, self._choose_type()
        # A rounded float may become another integer, which tells nothing of a transform.
        return self.builder.add("Cast", [x], {"to": (source if source.is_float else target).value})

    def _transpose(self, x: str) -> Sequence[str]:
        perm = tuple(int(axis) for axis in self.rng.permutation(len(self.builder.shape(x))))
        return self.builder.add("Transpose", [x], {"perm": perm})

    def _reshape(self, x: str) -> Sequence[str]:
        shape = self.builder.shape(x)
        count = self.builder.tensors[x].elements
        flat = (*shape[:-2], shape[-2] * shape[-1]) if len(shape) > 1 else (1, count)
        shapes = (flat, (count,), (1, *shape), tuple(length for length in shape if length != 1))
        return self.builder.add("Reshape", [x], {"shape": shapes[int(self.rng.integers(len(shapes)))]})

    def _slice(self, x: str) -> Sequence[str]:
        shape = self.builder.shape(x)
        starts = tuple(int(self.rng.integers(length)) for length in shape)
        sizes = tuple(length - start for start, length in zip(starts, shape, strict=True))
        return self.builder.add("Slice", [x], {"starts": starts, "sizes": sizes, "steps": (1,) * len(shape)})

    def _pad(self, x: str) -> Sequence[str]:
        rank = len(self.builder.shape(x))
        before, after = (tuple(int(n) for n in self.rng.integers(0, 2, rank)) for _ in range(2))
        return self.builder.add("Pad", [x], {"before": before, "after": after, "value": 1})

    def _concat(self, x: str) -> Sequence[str]:
        axis = int(self.rng.integers(len(self.builder.shape(x)) or 1))
        return self.builder.add("Concat", [x, self._partner(x)], {"axis": axis})

    def _split(self, x: str) -> Sequence[str]:
        shape = self.builder.shape(x)
        axis = int(self.rng.integers(len(shape) or 1))
        first = int(self.rng.integers(shape[axis] + 1)) if shape else 0
        sizes = (first, shape[axis] - first) if shape else ()
        return self.builder.add("Split", [x], {"axis": axis, "sizes": sizes}, outputs=2)

    def _reduce(self, x: str) -> Sequence[str]:
        axis = int(self.rng.integers(len(self.builder.shape(x)) or 1))
        name = self._choose(["ReduceSum", "ReduceMax", "ReduceMin", "CumSum", "ArgMax"])
        attrs = {"axes": (axis,)} if name.startswith("Reduce") else {"axis": axis}
        return self.builder.add(name, [x], attrs)

    def _select(self, x: str) -> Sequence[str]:
        mask = self._constant(DType.BOOL, self.builder.shape(x))
        return self.builder.add("Where", [mask, x, self._partner(x)])

    def _gather(self, x: str) -> Sequence[str]:
        shape = self.builder.shape(x)
        axis = int(self.rng.integers(len(shape) or 1))
        indices = self.rng.permutation(shape[axis] if shape else 1)
        return self.builder.add("Gather", [x, self.builder.weight("i", indices)], {"axis": axis})

    def _multiply(self, x: str) -> Sequence[str]:
        tensor = self.builder.tensors[x]
        columns = int(self.rng.integers(1, 6))
        return self.builder.add("MatMul", [x, self._constant(tensor.dtype, (*tensor.shape[-1:], columns))])
