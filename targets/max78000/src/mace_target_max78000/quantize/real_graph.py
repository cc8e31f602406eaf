"""Rewrites a graph to real numbers, whatever it was stored as, in the form that quantizes best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node, Tensor
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.pool import PoolAttributes
from mace_core.ops.reduce import ReduceAttributes
from mace_core.quantization import dequantize
from mace_core.rewrite import Match, rewrite
from mace_target_max78000.device import MAX_POOL

LIMITED_OPS = ("Conv", "ConvTranspose", "MatMul")
SUM_OPS = ("Add", "Sub")


def as_real_graph(graph: Graph) -> Graph:
    """Return the graph with real numbers in every tensor; what a storage cut off below zero stays cut off."""
    new = Builder(graph.name)
    new.reserved = frozenset(graph.tensors)
    for name in graph.inputs:
        tensor = graph.tensors[name]
        new.input(name, tensor.real.dtype, tensor.shape)
    for name, array in graph.weights.items():
        quant = graph.tensors[name].quant
        real = dequantize(array, quant).astype(np.float32) if quant else array
        new.weights[name], new.tensors[name] = real, Tensor(name, DType.of(real), real.shape)
        real.flags.writeable = False
    for node in graph.nodes:
        _add_real_node(new, node, graph)
    return new.finish(graph.outputs)


def _add_real_node(new: Builder, node: Node, graph: Graph) -> None:
    # The storage that the graph came with is of no use: its scales are seldom powers of two.
    if node.op.name in ("Quantize", "Dequantize"):
        new.add("Identity", node.inputs, outputs=node.outputs, like=node)
        return
    low = _lower_limit(graph.tensors[node.outputs[0]])
    clamp = node.attrs if isinstance(node.attrs, ClampAttributes) else None
    if low is None or node.op.moves or (clamp and clamp.low >= low):
        new.add(node.op, node.inputs, node.attrs, outputs=node.outputs, like=node)
    # The hardware limits these in their own layer, others by a copy.
    elif clamp and node.op.name in LIMITED_OPS:
        new.add(node.op, node.inputs, replace(clamp, low=low), outputs=node.outputs, like=node)
    elif node.op.name not in SUM_OPS:
        new.add(node.op, node.inputs, node.attrs, outputs=node.outputs, like=node)
    else:
        inner = new.add(
            node.op, node.inputs, node.attrs, outputs=[new.fresh(f"{node.outputs[0]}.free")], like=node
        )
        new.add("Clip", inner, {"min": low, "max": math.inf}, outputs=node.outputs, like=node)


def _lower_limit(tensor: Tensor) -> float | None:
    """Return 0 where a tensor's storage holds nothing below zero, which a ReLU has become; else None."""
    quant = tensor.quant
    if quant is None or tensor.dtype is DType.I32:
        return None
    return 0.0 if set(quant.zero_point) == {np.iinfo(tensor.dtype.numpy).min} else None


def split_large_means(graph: Graph) -> Graph:
    """Remove Identity, and split means over windows that are too large for the hardware into two."""
    return rewrite(rewrite(rewrite(graph, _remove_identity), _mean_as_pool), _split_mean)


def _remove_identity(match: Match) -> Sequence[str] | None:
    outer = match.node.outputs[0] if match.node.op.name == "Identity" else None
    return [match.node.inputs[0]] if outer and match.node.inputs[0] not in match.new.weights else None


def _mean_as_pool(match: Match) -> Sequence[str] | None:
    """Rewrite the mean over rows and columns to a pool."""
    node = match.node
    if node.op.name != "ReduceMean" or len(match.shape(0)) not in (3, 4):
        return None
    shape = match.shape(0)
    attrs = node.attributes(ReduceAttributes)
    axes = {a % len(shape) for a in attrs.axes}
    if axes != set(range(1, len(shape) - 1)):
        return None
    pooled = match.new.one("AveragePool", [node.inputs[0]], pool_window(shape[1:-1]), like=node)
    if attrs.keepdims:
        return [pooled]
    return match.emit("Reshape", [pooled], {"shape": (shape[0], shape[-1])})


def pool_window(size: Sequence[int], strides: Sequence[int] | None = None) -> Mapping[str, object]:
    """Return the attributes of a pool without padding."""
    rank = len(size)
    zeros, ones = (0,) * rank, (1,) * rank
    return {
        "kernel": tuple(size),
        "strides": tuple(strides or size),
        "pads_before": zeros,
        "pads_after": zeros,
        "dilations": ones,
    }


def _split_mean(match: Match) -> Sequence[str] | None:
    """Rewrite a mean over a large window to the mean of the means of equal parts."""
    node = match.node
    if node.op.name != "AveragePool":
        return None
    size, shape = node.attributes(PoolAttributes).kernel, match.shape(0)
    windows = node.attributes(PoolAttributes).windows(len(shape) - 2)
    if (
        max(size) <= MAX_POOL
        or set(windows.count(shape[1:-1])) != {1}
        or any(windows.before)
        or any(windows.after)
    ):
        return None
    first = [
        next((n // d for d in range(2, n + 1) if n % d == 0 and n // d <= MAX_POOL), n) if n > MAX_POOL else n
        for n in size
    ]
    second = [n // f for n, f in zip(size, first, strict=True)]
    stride = {f for f, s in zip(first, second, strict=True) if s > 1}
    if len(stride) != 1 or max(*first, *second) > MAX_POOL:
        return None
    inner = match.new.one(
        "AveragePool", [node.inputs[0]], pool_window(first, (max(stride),) * len(size)), like=node
    )
    return match.emit("AveragePool", [inner], pool_window(second))
