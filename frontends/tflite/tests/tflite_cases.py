"""Models of one operator, computed by the numpy references and by LiteRT's plain kernels: what the operators' tests are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tflite_write import Scales, Step, TableFields, Value, Written, write

from mace_core.deployment import Model
from mace_core.ir import Array, DType, Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.states import RESET, assign_states
from mace_core.testing.requirements import require
from mace_core.verify import verify
from mace_frontend_tflite import TfLite

Operand = Value | Array | np.generic | None
"""An input without data, a constant, an absent operand."""


def f32(*shape: int) -> Value:
    """An input of floats."""
    return Value("", DType.F32, shape)


def ints(*shape: int, dtype: DType = DType.I32) -> Value:
    """An input of whole numbers."""
    return Value("", dtype, shape)


def i8(*shape: int, scale: float = 0.05, zero: int = 3, dtype: DType = DType.I8) -> Value:
    """An input that stores real numbers."""
    return Value("", dtype, shape, scales=Scales((scale,), (zero,)))


def state(*shape: int, scales: Scales | None = None, dtype: DType = DType.F32) -> Value:
    """A tensor that keeps its value between runs."""
    return Value("", dtype, shape, scales=scales, variable=True)


def const(*values: Any, dtype: str = "i4") -> Array:
    """A constant of whole numbers."""
    return np.array(values, dtype)


def floats(*shape: int, seed: int = 0) -> Array:
    """A constant of floats between -1 and 1."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def bytes_of(*shape: int, seed: int = 0, low: int = -127, high: int = 127) -> Array:
    """Random whole numbers, both ends included."""
    return np.random.default_rng(seed).integers(low, high, shape, endpoint=True)


def stored(
    array: Array, scale: float | Sequence[float], zero: int = 0, axis: int = 0, dtype: str = "i1"
) -> Value:
    """A constant that stores real numbers."""
    scales = [float(s) for s in np.atleast_1d(np.asarray(scale))]
    return Value.constant("", array.astype(dtype), Scales(scales, [zero] * len(scales), axis))


@dataclass(frozen=True)
class Case:
    """An operator; outputs: what the file says of them.

    low, high: of random inputs.  steps: how far stored integers may be apart, where LiteRT rounds more than
    once.
    """

    name: str
    code: str
    operands: Sequence[Operand]
    options: tuple[str, TableFields] | None = None
    outputs: Sequence[Value] = (Value(""),)
    low: float = -2.0
    high: float = 2.0
    steps: int = 1
    tolerance: float = 2e-6
    intermediates: Sequence[Value] = ()
    version: int = 1
    custom: bytes = b""

    def written(self) -> Written:
        """The graph."""
        values: list[Value] = []
        names: list[str] = []
        for i, operand in enumerate(self.operands):
            names.append("" if operand is None else f"in{i}")
            if operand is not None:
                value = operand if isinstance(operand, Value) else Value.constant("", np.asarray(operand))
                values.append(replace(value, name=names[-1]))
        inputs = [v.name for v in values if v.data is None and not v.variable]
        outputs = [replace(v, name=f"out{i}") for i, v in enumerate(self.outputs)]
        inner = [replace(v, name=f"inner{i}") for i, v in enumerate(self.intermediates)]
        results = [v.name for v in outputs]
        step = Step(
            self.code, names, results, self.options, [v.name for v in inner], self.custom, self.version
        )
        return Written([*values, *outputs, *inner], [step], inputs, results)

    def arrays(self) -> dict[str, Array]:
        """Random inputs by name."""
        rng, written = np.random.default_rng(3), self.written()
        return {
            v.name: random(rng, v, self.low, self.high) for v in written.values if v.name in written.inputs
        }


def random(rng: np.random.Generator, value: Value, low: float, high: float) -> Array:
    """Numbers for an input: all that its type stores, or from low to high."""
    dtype = value.dtype.numpy
    if value.scales:
        ends = np.iinfo(dtype)
        return rng.integers(ends.min, ends.max, value.shape, endpoint=True).astype(dtype)
    if value.dtype is DType.BOOL:
        return rng.integers(0, 2, value.shape).astype(bool)
    if not value.dtype.is_float:
        return rng.integers(int(low), int(high), value.shape, endpoint=True).astype(dtype)
    return rng.uniform(low, high, value.shape).astype(dtype)


def load(folder: Path, *graphs: Written, model: Model | None = None) -> Graph:
    """The graph that the frontend makes of a file with these graphs.

    Its states begin anew at each run unless `model` says otherwise.
    """
    file = folder / "case.tflite"
    file.write_bytes(write(*graphs))
    chosen = model or Model("case", (file,), keys={"states": RESET})
    return verify(assign_states(verify(TfLite().load((file,), chosen, core_ops())), chosen))


def expected(folder: Path, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """What LiteRT computes from the file that was loaded last."""
    file = folder / "case.tflite"
    run = TfLite().reference((file,), Model("case", (file,)))
    require(None if run else "LiteRT is not installed: pip install ai-edge-litert")
    assert run is not None
    return run(arrays)


def check(case: Case, folder: Path) -> None:
    """Assert that LiteRT computes the same as the graph."""
    graph, arrays = load(folder, case.written()), case.arrays()
    values = execute(graph, arrays)
    wanted = expected(folder, arrays)
    assert list(graph.outputs) == list(wanted)
    for made, name in zip(case.outputs, graph.outputs, strict=True):
        same(values[name], wanted[name], case, made.scales is not None)


def same(found: Array, wanted: Array, case: Case, quantized: bool) -> None:
    """Assert that two arrays are the same as far as the case demands."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if quantized:
        assert np.abs(found.astype(int) - wanted.astype(int)).max(initial=0) <= case.steps
    elif wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=case.tolerance, atol=case.tolerance)
    else:
        np.testing.assert_array_equal(found, wanted)
