"""Builds graphs of one quantized node, and checks their C against the exact meaning: real numbers, rounded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.levels import Level
from mace_core.run.reference import execute
from mace_core.testing.compiled import run_merged
from mace_target_cpu import Cpu

I8 = Storage(DType.I8, Quant.of(0.05, 3))
U8 = Storage(DType.U8, Quant.of(0.04, 120))
I16 = Storage(DType.I16, Quant.of(0.001))
WINDOW = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
POOL = {**WINDOW, "kernel": (3, 3)}


def storage(dtype: DType, scale: float, zero: int = 0) -> Storage:
    return Storage(dtype, Quant.of(scale, zero))


Operands = Sequence[tuple[Storage | None, tuple[int, ...]]]


def graph(name: str, op: str, inputs: Operands, attrs: Mapping[str, object], out: Storage | None) -> Graph:
    new = Builder(name)
    names = [
        new.input(f"x{i}", s.dtype if s else DType.F32, shape, s and s.quant)
        for i, (s, shape) in enumerate(inputs)
    ]
    return new.finish(new.add(op, names, attrs, outputs=[new.reserve_output("y", out)]))


def conv(
    name: str,
    shape: tuple[int, ...],
    filters: tuple[int, ...],
    kinds: tuple[Storage, DType, Storage | None],
    op: str = "Conv",
    **attrs: Attribute,
) -> Graph:
    """A convolution with random weights: i8 with a scale for each filter, u8 with one for all.

    kinds: the storage of the input, the type of the weights, the storage of the result.  op: Conv or
    ConvTranspose.
    """
    x, kind, out = kinds
    rng = np.random.default_rng(len(name))
    new = Builder(name)
    if kind is DType.I8:
        scale = tuple(rng.uniform(0.002, 0.02, filters[0]).tolist())
        w = new.weight(
            "w", rng.integers(-127, 128, filters).astype(np.int8), Quant(scale, (0,) * filters[0], 0)
        )
        bias_quant = Quant(tuple(s * x.quant.scale[0] for s in scale), (0,) * filters[0], 0)
    else:
        w = new.weight("w", rng.integers(0, 256, filters).astype(np.uint8), Quant.of(0.01, 131))
        bias_quant = Quant.of(0.01 * x.quant.scale[0])
    b = new.weight("b", rng.integers(-2000, 2000, filters[0]).astype(np.int32), bias_quant)
    y = new.add(
        op,
        [new.input("x", x.dtype, shape, x.quant), w, b],
        {**WINDOW, **attrs},
        outputs=[new.reserve_output("y", out)],
    )
    return new.finish(y)


def inputs_of(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    results = {}
    for name in graph.inputs:
        t = graph.tensors[name]
        if t.dtype is DType.BOOL:
            results[name] = rng.integers(0, 2, t.shape).astype(bool)
        elif t.dtype is DType.F32:
            results[name] = rng.standard_normal(t.shape).astype(np.float32)
        else:
            limits = np.iinfo(t.dtype.numpy)
            results[name] = rng.integers(limits.min, limits.max + 1, t.shape).astype(t.dtype.numpy)
    return results


def check(graphs: Sequence[Graph], folder: Path, levels: Sequence[Level] | None = None) -> dict[str, str]:
    """Assert that the C rounds the exact real numbers once, up to what float32 leaves open.

    levels: all of this machine if None. Returns the kernels of the best one by graph.
    """
    inputs = {g.name: inputs_of(g) for g in graphs}
    results = run_merged(Cpu(), graphs, folder, inputs, levels)
    for g in graphs:
        given, found = inputs[g.name], results[g.name]
        exact = execute(
            replace(g, tensors={n: t.real if n in g.outputs else t for n, t in g.tensors.items()}), given
        )
        for name in g.outputs:
            quant = g.tensors[name].quant
            if quant is None:
                np.testing.assert_allclose(found[name], exact[name], rtol=2e-6, atol=1e-5, err_msg=g.name)
                continue
            limits = np.iinfo(found[name].dtype)
            steps = exact[name].astype(np.float64) / quant.scale[0] + quant.zero_point[0]
            off = np.abs(np.clip(steps, limits.min, limits.max) - found[name])
            assert off.max(initial=0) <= 0.5 + (int(limits.max) - int(limits.min)) / 2**20, g.name
    best = str((levels or Cpu().levels("host"))[0].name)
    return {
        g.name: " ".join(c.kernel.name for c in Cpu().lower(g).calls if c.is_made_at(best)) for g in graphs
    }


def product(kind: DType) -> Graph:
    """A product with constant weights of a type, with a bias and a limit."""
    rng = np.random.default_rng(0)
    new = Builder("dense")
    x = new.input("x", DType.I8, (5, 33), I8.quant)
    limits, zero = np.iinfo(kind.numpy), 0 if kind is DType.I8 else 117
    w = new.weight(
        "w", rng.integers(limits.min, limits.max + 1, (33, 21)).astype(kind.numpy), Quant.of(0.01, zero)
    )
    b = new.weight("b", rng.integers(-900, 900, 21).astype(np.int32), Quant.of(0.01 * 0.05))
    y = new.add(
        "MatMul", [x, w, b], {"low": 0.0}, outputs=[new.reserve_output("y", storage(DType.I8, 0.1, -100))]
    )
    return new.finish(y)
