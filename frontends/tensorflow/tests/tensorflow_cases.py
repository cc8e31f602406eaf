"""Graphs of one operator or a few, computed by the numpy references and by TensorFlow: what the operators' tests are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, TypeAlias, Union

import numpy as np

from mace_core.deployment import Model, Port
from mace_core.ir import Array, DType, Graph, Shape
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_tensorflow import TensorFlow

FILE = "case.pb"


@dataclass(frozen=True)
class Value:
    """An input. low, high: of its random numbers."""

    shape: Shape
    dtype: DType = DType.F32
    low: float = -2.0
    high: float = 2.0

    def random(self, rng: np.random.Generator) -> Array:
        """Numbers for it."""
        if self.dtype is DType.BOOL:
            return rng.integers(0, 2, self.shape).astype(bool)
        if not self.dtype.is_float:
            return rng.integers(int(self.low), int(self.high), self.shape, endpoint=True).astype(
                self.dtype.numpy
            )
        return rng.uniform(self.low, self.high, self.shape).astype(self.dtype.numpy)


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> Value:
    """An input of floats."""
    return Value(shape, DType.F32, low, high)


def ints(*shape: int, low: int = 0, high: int = 7, dtype: DType = DType.I32) -> Value:
    """An input of whole numbers."""
    return Value(shape, dtype, low, high)


def truths(*shape: int) -> Value:
    """An input of truth values."""
    return Value(shape, DType.BOOL)


def floats(*shape: int, seed: int = 0) -> Array:
    """A constant of floats between -1 and 1."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


RawAttribute: TypeAlias = Union[bool, int, float, str, bytes, np.generic, type, "Sequence[RawAttribute]"]
"""An attribute of an operator as the functions of tf.raw_ops take it; types are written as numpy's."""

Make = Callable[..., Any]
"""Builds a graph: the module `tensorflow` and a tensor for each input -> the outputs."""


@dataclass(frozen=True)
class Case:
    """A graph. make: builds it; inputs: what it is given."""

    name: str
    make: Make
    inputs: Sequence[Value]
    tolerance: float = 2e-6

    def arrays(self) -> dict[str, Array]:
        """Random inputs by name."""
        rng = np.random.default_rng(3)
        return {f"in{i}": value.random(rng) for i, value in enumerate(self.inputs)}


def raw(
    operator: str,
    *operands: Value | Array | Sequence[Value | Array],
    name: str = "",
    tolerance: float = 2e-6,
    **attrs: RawAttribute,
) -> Case:
    """Return the case of one operator; operands are its inputs or constants in their order."""
    values: list[Value] = []

    def collect(operand: Value | Array | Sequence[Value | Array]) -> None:
        if isinstance(operand, Value):
            values.append(operand)
        elif isinstance(operand, list | tuple):
            for part in operand:
                collect(part)

    for operand in operands:
        collect(operand)

    def make(tf: Any, *tensors: Any) -> Any:
        given = iter(tensors)

        def placed(operand: Value | Array | Sequence[Value | Array]) -> Any:
            if isinstance(operand, list | tuple):
                return [placed(part) for part in operand]
            return next(given) if isinstance(operand, Value) else tf.constant(operand)

        build = getattr(tf.raw_ops, operator)
        names = signature(build).parameters
        return build(**dict(zip(names, map(placed, operands), strict=False)), **attrs)

    return Case(name or operator, make, values, tolerance)


@dataclass(frozen=True)
class Frozen:
    """A written graph: its file, the names of its outputs and its own."""

    file: Path
    outputs: Sequence[str]
    name: str

    @property
    def model(self) -> Model:
        """How a deployment file would state it."""
        return Model(self.name, (self.file,), outputs=tuple(Port(name) for name in self.outputs))

    def graph(self) -> Graph:
        """What the frontend makes of it."""
        return verify(TensorFlow().load((self.file,), self.model, core_ops()))

    def expected(self, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        """What TensorFlow computes."""
        run = TensorFlow().reference((self.file,), self.model)
        assert run is not None, "TensorFlow is not installed"
        return run(arrays)


def freeze(case: Case, folder: Path, tf: Any) -> Frozen:
    """Write a graph of placeholders `in0`, `in1` ... and outputs `out0`, `out1` ... as a file."""
    graph = tf.Graph()
    with graph.as_default():
        given = [
            tf.compat.v1.placeholder(v.dtype.numpy, v.shape, f"in{i}") for i, v in enumerate(case.inputs)
        ]
        result = case.make(tf, *given)
        outputs = list(result) if isinstance(result, list | tuple) else [result]
        names = [tf.identity(o, name=f"out{i}").op.name for i, o in enumerate(outputs) if o is not None]
    file = folder / FILE
    file.write_bytes(graph.as_graph_def(add_shapes=False).SerializeToString())
    return Frozen(file, names, re.sub(r"\W+", "_", case.name.lower()))


def check(case: Case, folder: Path, tf: Any) -> Graph:
    """Assert that TensorFlow computes the same as the graph, which is returned."""
    frozen, arrays = freeze(case, folder, tf), case.arrays()
    graph = frozen.graph()
    actual, expected = execute(graph, {n: arrays[n] for n in graph.inputs}), frozen.expected(arrays)
    assert list(graph.outputs) == list(expected)
    for name in graph.outputs:
        same(actual[name], expected[name], case.tolerance, f"{case.name}/{name}")
    return graph


def same(found: Array, wanted: Array, tolerance: float, name: str) -> None:
    """Assert that two arrays are the same, floats within a tolerance of the larger of 1 and the value."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), name
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance, err_msg=name)
    else:
        np.testing.assert_array_equal(found, wanted, err_msg=name)
