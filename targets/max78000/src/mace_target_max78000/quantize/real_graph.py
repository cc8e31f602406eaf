"""Rewrites a graph to real numbers, whatever it was stored as, in the form that quantizes best.

Storage is removed, means over large windows are split, and channels are scaled so that all of a layer's
weights use their bits equally: after ReLU, a pool, or nothing, a channel may be made larger in one layer and
its weights smaller in the next, and the network computes the same. Source of the factors: Nagel et al.,
"Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Node, Tensor, frozen
from mace_core.ops.conv import ClampAttributes, ConvAttributes
from mace_core.ops.pool import PoolAttributes
from mace_core.ops.reduce import ReduceAttributes
from mace_core.quantization import dequantize
from mace_core.rewrite import Match, rewrite
from mace_target_max78000.device import MAX_POOL
from mace_target_max78000.legalize.tensors import find_producers, find_view
from mace_target_max78000.quantize.calibrate import TensorStatistics, find_best_step

SUM_OPS = ("Add", "Sub")


def as_real_graph(graph: Graph) -> Graph:
    """Return the graph with real numbers in every tensor; what a storage cut off below zero stays cut off."""
    builder = Builder(graph.name)
    builder.reserved = frozenset(graph.tensors)
    for name in graph.inputs:
        tensor = graph.tensors[name]
        builder.input(name, tensor.real.dtype, tensor.shape)
    for name, array in graph.weights.items():
        quant = graph.tensors[name].quant
        real = dequantize(array, quant).astype(np.float32) if quant else array
        builder.weights[name], builder.tensors[name] = real, Tensor(name, DType.of(real), real.shape)
        real.flags.writeable = False
    for node in graph.nodes:
        _add_real_node(builder, node, graph)
    return builder.finish(graph.outputs)


def _add_real_node(builder: Builder, node: Node, graph: Graph) -> None:
    # The storage that the graph came with is of no use: its scales are seldom powers of two.
    if node.op.name in ("Quantize", "Dequantize"):
        builder.add("Identity", node.inputs, outputs=node.outputs, like=node)
        return
    low = _lower_limit(graph.tensors[node.outputs[0]])
    clamp = node.attrs if isinstance(node.attrs, ClampAttributes) else None
    if low is None or node.op.moves or (clamp and clamp.low >= low):
        builder.add(node.op, node.inputs, node.attrs, outputs=node.outputs, like=node)
    # The hardware limits these in their own layer, others by a copy.
    elif clamp:
        builder.add(node.op, node.inputs, replace(clamp, low=low), outputs=node.outputs, like=node)
    elif node.op.name not in SUM_OPS:
        builder.add(node.op, node.inputs, node.attrs, outputs=node.outputs, like=node)
    else:
        inner = builder.add(
            node.op, node.inputs, node.attrs, outputs=[builder.fresh(f"{node.outputs[0]}.free")], like=node
        )
        builder.add("Clip", inner, {"min": low, "max": math.inf}, outputs=node.outputs, like=node)


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
    return [match.node.inputs[0]] if outer and match.node.inputs[0] not in match.builder.weights else None


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
    pooled = match.builder.one("AveragePool", [node.inputs[0]], pool_window(shape[1:-1]), like=node)
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
        next((n // d for d in range(2, n) if n % d == 0 and n // d <= MAX_POOL), n) if n > MAX_POOL else n
        for n in size
    ]
    second = [n // f for n, f in zip(size, first, strict=True)]
    stride = {f for f, s in zip(first, second, strict=True) if s > 1}
    if len(stride) != 1 or max(*first, *second) > MAX_POOL:
        return None
    inner = match.builder.one(
        "AveragePool", [node.inputs[0]], pool_window(first, (max(stride),) * len(size)), like=node
    )
    return match.emit("AveragePool", [inner], pool_window(second))


SCALED_OPS = ("Conv", "MatMul")
TRANSPARENT_OPS = ("MaxPool", "AveragePool", "Relu", "Reshape")
"""Ops that let a positive factor of a channel pass."""

ROUNDS = 20
"""Passes over all links: a factor changes the weights that the next link compares."""

MAX_FACTOR = 2.0**7
"""The largest factor of a channel: beyond it, bias and rounding lose more than weights gain."""


@dataclass(frozen=True, eq=False)
class ChannelLink:
    """A layer and all that read its channels.

    readers: each with the channel that each row of its matrix, or input channel of its filters, belongs to.
    high: where the layer's output is limited above.
    """

    producer: Node
    readers: tuple[tuple[Node, Array], ...]
    high: float


def equalize_channels(graph: Graph) -> Graph:
    """Make the weights of each channel as large as those that read it; the results stay the same."""
    weights = dict(graph.weights)
    # A limit such as 6 would be scaled with its channel; `move_limits` scales those layers as a whole.
    links = [link for link in _find_links(graph) if math.isinf(link.high)]
    for _ in range(ROUNDS):
        for link in links:
            _scale_link(weights, link, _equalizing_factors(weights, link))
    return _with_weights(graph, weights)


def fill_ranges(graph: Graph, seen: Mapping[str, TensorStatistics]) -> Graph:
    """Scale layers so that the best step of each output is a power of two."""
    weights = dict(graph.weights)
    for link in _find_links(graph):
        if math.isinf(link.high):
            values = seen[link.producer.outputs[0]].values.astype(np.float64)
            _scale_link(
                weights, link, _uniform_factors(graph, link, _factor_to_power(find_best_step(values)))
            )
    return _with_weights(graph, weights)


def move_limits(graph: Graph) -> Graph:
    """Move limits above zero (ReLU6) to 127 steps of a power of two, where the hardware saturates."""
    weights = dict(graph.weights)
    links = [link for link in _find_links(graph) if not math.isinf(link.high)]
    for link in links:
        _scale_link(weights, link, _uniform_factors(graph, link, _factor_to_power(link.high / 127)))
    limits = {link.producer.name: _factor_to_power(link.high / 127) * link.high for link in links}
    nodes = (
        replace(n, attrs=replace(n.attributes(ClampAttributes), high=limits[n.name]))
        if n.name in limits
        else n
        for n in graph.nodes
    )
    return replace(_with_weights(graph, weights), nodes=tuple(nodes))


def _with_weights(graph: Graph, weights: Mapping[str, Array]) -> Graph:
    arrays = {name: frozen(array.astype(graph.weights[name].dtype)) for name, array in weights.items()}
    return replace(graph, weights=MappingProxyType(arrays))


def _uniform_factors(graph: Graph, link: ChannelLink, factor: float) -> Array:
    return np.full(graph.tensors[link.producer.outputs[0]].shape[-1], factor)


def _factor_to_power(step: float) -> float:
    """Return the factor that makes a step the nearest power of two."""
    return float(2.0 ** round(math.log2(step)) / step)


def _find_links(graph: Graph) -> Iterator[ChannelLink]:
    producers = find_producers(graph)
    shared = {name for name, count in graph.uses().items() if count > 1}
    for node in graph.nodes:
        if (
            node.op.name not in SCALED_OPS
            or node.inputs[1] not in graph.weights
            or not _owns_weights(node, shared)
        ):
            continue
        shape = graph.tensors[node.outputs[0]].shape
        # A product of two vectors has no axis of channels; legalizing refuses it later, by its name.
        if not shape:
            continue
        clamp = node.attributes(ClampAttributes)
        low, high = clamp.low, clamp.high
        readers, count = _find_channel_readers(graph, node.outputs[0]), shape[-1]
        # Limits of zero, or none, stay what they are when channels are scaled.
        usable = low in (0.0, -math.inf) and (math.isinf(high) or low == 0)
        if (
            usable
            and readers
            and all(_owns_weights(r, shared) and _reads_by_channel(graph, r, count) for r in readers)
        ):
            yield ChannelLink(
                node, tuple((r, _channel_indices(graph, r, count, producers)) for r in readers), high
            )


def _owns_weights(node: Node, shared: set[str]) -> bool:
    """Whether nothing else reads a layer's weights and bias."""
    return not any(name in shared for name in node.inputs[1:])


def _find_channel_readers(graph: Graph, tensor: str) -> list[Node] | None:
    """Find the layers that read a tensor's channels, through ops that let factors pass.

    None if anything else does.
    """
    # The factors would show in the results.
    if tensor in graph.outputs:
        return None
    readers: list[Node] = []
    for node in graph.nodes:
        if tensor not in node.inputs:
            continue
        if node.op.name in SCALED_OPS and node.inputs[0] == tensor and node.inputs[1] in graph.weights:
            readers.append(node)
        elif (
            node.op.name in TRANSPARENT_OPS
            and (behind := _find_channel_readers(graph, node.outputs[0])) is not None
        ):
            readers.extend(behind)
        else:
            return None
    return readers


def _reads_by_channel(graph: Graph, reader: Node, count: int) -> bool:
    """Whether each input of the reader is one of so many channels."""
    width = graph.tensors[reader.inputs[0]].shape[-1]
    return (
        width == count
        if reader.op.name == "Conv"
        else graph.weights[reader.inputs[1]].ndim == 2 and width % count == 0
    )


def _channel_indices(graph: Graph, reader: Node, count: int, producers: Mapping[str, Node]) -> Array:
    """Return the channel, of so many, that each input of a reader belongs to."""
    return (
        np.arange(count)
        if reader.op.name == "Conv"
        else find_view(graph, reader.inputs[0], producers).order.reshape(-1) % count
    )


def _equalizing_factors(weights: Mapping[str, Array], link: ChannelLink) -> Array:
    """Return what each channel of the producer is multiplied by."""
    output_peaks = _output_peaks(weights, link.producer)
    others = [_input_peaks(weights, reader, channels, len(output_peaks)) for reader, channels in link.readers]
    input_peaks = np.max(others, axis=0)
    usable = (output_peaks > 0) & (input_peaks > 0)
    factors = np.ones(len(output_peaks))
    # The geometric mean of both peaks: neither layer's bits are used better than the other's (Nagel et al.).
    factors[usable] = np.sqrt(input_peaks[usable] / output_peaks[usable])
    # Divided by their own mean, so that the range of the whole tensor stays.
    return np.asarray(np.clip(factors / np.exp(np.mean(np.log(factors))), 1 / MAX_FACTOR, MAX_FACTOR))


def _output_peaks(weights: Mapping[str, Array], node: Node) -> Array:
    """Return the largest weight of each output channel."""
    w = np.abs(weights[node.inputs[1]])
    return np.asarray(w.max(axis=0) if node.op.name == "MatMul" else w.reshape(len(w), -1).max(axis=1))


def _input_peaks(weights: Mapping[str, Array], node: Node, channels: Array, count: int) -> Array:
    """Return the largest weight of each input channel."""
    w = np.abs(weights[node.inputs[1]])
    if node.op.name == "MatMul":
        rows = w.max(axis=1)
    elif node.attributes(ConvAttributes).group == 1:
        rows = w.reshape(-1, w.shape[-1]).max(axis=0)
    else:
        group = node.attributes(ConvAttributes).group
        rows = w.reshape(group, -1, w.shape[-1]).max(axis=1).reshape(-1)
    peaks = np.zeros(count)
    np.maximum.at(peaks, channels, rows)
    return peaks


def _scale_link(weights: dict[str, Array], link: ChannelLink, factors: Array) -> None:
    """Multiply the producer's channels and divide what its readers do with them."""
    producer = link.producer
    w = weights[producer.inputs[1]].astype(np.float64)
    weights[producer.inputs[1]] = (
        w * factors if producer.op.name == "MatMul" else w * factors.reshape(-1, *(1,) * (w.ndim - 1))
    )
    if len(producer.inputs) > 2 and producer.inputs[2]:
        weights[producer.inputs[2]] = weights[producer.inputs[2]].astype(np.float64) * factors
    for reader, channels in link.readers:
        w, by = weights[reader.inputs[1]].astype(np.float64), factors[channels]
        if reader.op.name == "MatMul":
            weights[reader.inputs[1]] = w / by[:, None]
            continue
        group = reader.attributes(ConvAttributes).group
        shaped = w.reshape(group, -1, *w.shape[1:]) / by.reshape(group, 1, *(1,) * (w.ndim - 2), w.shape[-1])
        weights[reader.inputs[1]] = shaped.reshape(w.shape)
