"""Random graphs of nodes many of which the format states only after rewrites."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from writer_cases import Proposal, binary, concat, pairs, reduce, split, transpose, unary
from writer_grower import Grower

from mace_core.ir import Array, DType, Graph


def wild_conv(grower: Grower, x: str) -> str | None:
    shape = grower.tensor(x).shape
    if len(shape) < 3:
        return None
    rank = len(shape) - 2
    kernel = pairs(grower, 1, 4, rank)
    group = int(grower.random.choice([1, shape[-1], *(g for g in (2, 3) if shape[-1] % g == 0)]))
    dtype = grower.dtype
    # uint8 activations have int8 weights in models of other frameworks.
    if grower.quantized and dtype is DType.U8 and grower.random.random() < 0.5:
        grower.dtype = DType.I8
    w = grower.weights((group * int(grower.random.integers(1, 3)), *kernel, shape[-1] // group), 0)
    grower.dtype = dtype
    low, high = sorted(grower.random.normal(size=2))
    attrs = {
        "strides": pairs(grower, 1, 3, rank),
        "pads_before": pairs(grower, 0, 2, rank),
        "pads_after": pairs(grower, 0, 2, rank),
        "dilations": pairs(grower, 1, 2, rank),
        "group": group,
        "low": low if grower.random.random() < 0.5 else -math.inf,
        "high": high if grower.random.random() < 0.5 else math.inf,
    }
    return grower.add("Conv", [x, w, grower.bias(x, w, grower.tensor(w).shape[0])], attrs)


def wild_pool(grower: Grower, x: str) -> str | None:
    rank = len(grower.tensor(x).shape) - 2
    if rank < 1:
        return None
    attrs = {
        "kernel": pairs(grower, 3, 4, rank),
        "strides": pairs(grower, 1, 3, rank),
        "pads_before": pairs(grower, 0, 2, rank),
        "pads_after": pairs(grower, 0, 2, rank),
        "dilations": (1,) * rank,
        "ceil": bool(grower.random.integers(2)),
    }
    if grower.random.random() < 0.5:
        return grower.add("MaxPool", [x], attrs)
    return grower.add("AveragePool", [x], {**attrs, "count_pad": bool(grower.random.integers(2))})


def wild_softmax(grower: Grower, x: str) -> str | None:
    rank = len(grower.tensor(x).shape)
    return grower.add("Softmax", [x], {"axis": int(grower.random.integers(rank))}) if rank else None


def wild_clip(grower: Grower, x: str) -> str | None:
    low, high = sorted(grower.random.normal(size=2))
    return grower.add("Clip", [x], {"min": low, "max": high})


def rows(grower: Grower, x: str) -> str | None:
    shape = grower.tensor(x).shape
    if not shape:
        return None
    return grower.add("Reshape", [x], {"shape": (shape[0], math.prod(shape[1:-1]), shape[-1])})


WILD: Mapping[str, Proposal] = MappingProxyType(
    {
        "Conv": wild_conv,
        "Pool": wild_pool,
        "Softmax": wild_softmax,
        "Clip": wild_clip,
        "Rows": rows,
        "Concat": concat,
        "Transpose": transpose,
        "Split": split,
        "Maximum": binary("Maximum"),
        "Add": binary("Add"),
        "Div": binary("Div"),
        "ReduceSum": reduce("ReduceSum"),
    }
)
"""Nodes many of which the format states after rewrites alone."""

FLOAT_WILD: Mapping[str, Proposal] = MappingProxyType(
    {
        **WILD,
        **{op: unary(op) for op in ("Reciprocal", "Swish", "HardSigmoid", "Softsign")},
        "Elu": unary("Elu", {"alpha": 0.5}),
    }
)
"""Those and functions that are rewritten for floats only."""


def wild_graph(seed: int, dtype: DType, quantized: bool, nodes: int = 5) -> tuple[Graph, list[Array]]:
    """A graph of nodes that the format need not state."""
    grower = Grower(seed, dtype, quantized)
    grower.is_wild = True
    tensors = [grower.input((1, 7, 6, 4))]
    for _ in range(nodes * 4):
        kind = str(grower.random.choice(sorted(FLOAT_WILD if not quantized else WILD)))
        x = str(grower.random.choice(tensors[-3:]))
        if 0 < grower.tensor(x).elements <= 2000 and (y := FLOAT_WILD[kind](grower, x)) is not None:
            tensors.append(y)
        if len(grower.builder.nodes) >= nodes:
            break
    graph = grower.finish()
    return graph, grower.inputs(graph)
