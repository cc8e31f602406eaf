"""Channels scaled so that all of a layer's weights use their bits alike.

After ReLU, or nothing, or pooling, a channel may be made larger in one layer and its weights smaller in the
next, and the network computes the same.  Source of the factors: Nagel et al., "Data-Free Quantization Through
Weight Equalization and Bias Correction", ICCV 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, Graph, Node, frozen
from mace_target_max78000.automatic.forming.views import producers, view_of
from mace_target_max78000.automatic.quantizing.observe import Seen
from mace_target_max78000.automatic.quantizing.steps import best_step

MAIN = ("Conv", "MatMul")
THROUGH = ("MaxPool", "AveragePool", "Relu", "Reshape")
"""Ops that let a positive factor of a channel pass."""

ROUNDS = 20
MOST = 2.0**7
"""The largest factor of a channel: beyond it, bias and rounding of the next layer lose more than weights gain."""


@dataclass(frozen=True, eq=False)
class Link:
    """A layer and all that read its channels.

    readers: each with the channel that each row of its matrix, or input channel of its filters, belongs to.
    high: where the layer's output is limited above.
    """

    maker: Node
    readers: tuple[tuple[Node, Array], ...]
    high: float


def equalized(graph: Graph) -> Graph:
    """The graph with the weights of each channel as large as those that read it, and what it computes the same."""
    weights = dict(graph.weights)
    links = [link for link in _links(graph) if math.isinf(link.high)]
    for _ in range(ROUNDS):
        for link in links:
            _scale(weights, link, _factors(weights, link))
    return _with(graph, weights)


def filled(graph: Graph, seen: Mapping[str, Seen]) -> Graph:
    """The graph with factors between layers such that the best steps of each output are a power of two."""
    weights = dict(graph.weights)
    for link in _links(graph):
        if math.isinf(link.high):
            values = seen[link.maker.outputs[0]].values.astype(np.float64)
            _scale(weights, link, _uniform(graph, link, _to_power(best_step(values))))
    return _with(graph, weights)


def unlimited(graph: Graph) -> Graph:
    """The graph with limits above zero (ReLU6) at 127 steps of a power of two, where the hardware limits by itself, and so without them."""
    weights = dict(graph.weights)
    links = [link for link in _links(graph) if not math.isinf(link.high)]
    for link in links:
        _scale(weights, link, _uniform(graph, link, _to_power(link.high / 127)))
    done = {link.maker.name: _to_power(link.high / 127) * link.high for link in links}
    nodes = (
        replace(n, attrs=MappingProxyType({**n.attrs, "high": done[n.name]})) if n.name in done else n
        for n in graph.nodes
    )
    return replace(_with(graph, weights), nodes=tuple(nodes))


def _with(graph: Graph, weights: Mapping[str, Array]) -> Graph:
    kept = {name: frozen(array.astype(graph.weights[name].dtype)) for name, array in weights.items()}
    return replace(graph, weights=MappingProxyType(kept))


def _uniform(graph: Graph, link: Link, factor: float) -> Array:
    return np.full(graph.tensors[link.maker.outputs[0]].shape[-1], factor)


def _to_power(step: float) -> float:
    """The factor that makes a step the nearest power of two."""
    return float(2.0 ** round(math.log2(step)) / step)


def _links(graph: Graph) -> Iterator[Link]:
    made = producers(graph)
    shared = {name for name, count in graph.uses().items() if count > 1}
    for node in graph.nodes:
        if node.op.name not in MAIN or node.inputs[1] not in graph.weights or not _own(node, shared):
            continue
        low, high = (float(str(node.attrs[key])) for key in ("low", "high"))
        readers, count = _readers(graph, node.outputs[0]), graph.tensors[node.outputs[0]].shape[-1]
        sound = low in (0.0, -math.inf) and (math.isinf(high) or low == 0)
        if sound and readers and all(_own(r, shared) and _by_channel(graph, r, count) for r in readers):
            yield Link(node, tuple((r, _channels(graph, r, count, made)) for r in readers), high)


def _own(node: Node, shared: set[str]) -> bool:
    """Whether nothing else reads a layer's weights and bias."""
    return not any(name in shared for name in node.inputs[1:])


def _readers(graph: Graph, tensor: str) -> list[Node] | None:
    """The layers that read a tensor's channels, through ops that let factors pass.

    None if anything else does.
    """
    if tensor in graph.outputs:
        return None
    found: list[Node] = []
    for node in graph.nodes:
        if tensor not in node.inputs:
            continue
        if node.op.name in MAIN and node.inputs[0] == tensor and node.inputs[1] in graph.weights:
            found.append(node)
        elif node.op.name in THROUGH and (behind := _readers(graph, node.outputs[0])) is not None:
            found.extend(behind)
        else:
            return None
    return found


def _by_channel(graph: Graph, reader: Node, count: int) -> bool:
    """Whether each input of the reader is one of so many channels."""
    width = graph.tensors[reader.inputs[0]].shape[-1]
    return (
        width == count
        if reader.op.name == "Conv"
        else graph.weights[reader.inputs[1]].ndim == 2 and width % count == 0
    )


def _channels(graph: Graph, reader: Node, count: int, made: Mapping[str, Node]) -> Array:
    """The channel, of so many, that each input of a reader is."""
    return (
        np.arange(count)
        if reader.op.name == "Conv"
        else view_of(graph, reader.inputs[0], made).order.reshape(-1) % count
    )


def _factors(weights: Mapping[str, Array], link: Link) -> Array:
    """What each channel of the maker is multiplied by."""
    own = _peaks_out(weights, link.maker)
    others = [_peaks_in(weights, reader, channels, len(own)) for reader, channels in link.readers]
    next_ = np.max(others, axis=0)
    sound = (own > 0) & (next_ > 0)
    factors = np.ones(len(own))
    factors[sound] = np.sqrt(next_[sound] / own[sound])
    return np.asarray(np.clip(factors / np.exp(np.mean(np.log(factors))), 1 / MOST, MOST))


def _peaks_out(weights: Mapping[str, Array], node: Node) -> Array:
    """The largest weight of each output channel."""
    w = np.abs(weights[node.inputs[1]])
    return np.asarray(w.max(axis=0) if node.op.name == "MatMul" else w.reshape(len(w), -1).max(axis=1))


def _peaks_in(weights: Mapping[str, Array], node: Node, channels: Array, count: int) -> Array:
    """The largest weight of each input channel."""
    w = np.abs(weights[node.inputs[1]])
    if node.op.name == "MatMul":
        rows = w.max(axis=1)
    elif int(str(node.attrs["group"])) == 1:
        rows = w.reshape(-1, w.shape[-1]).max(axis=0)
    else:
        group = int(str(node.attrs["group"]))
        rows = w.reshape(group, -1, w.shape[-1]).max(axis=1).reshape(-1)
    peaks = np.zeros(count)
    np.maximum.at(peaks, channels, rows)
    return peaks


def _scale(weights: dict[str, Array], link: Link, factors: Array) -> None:
    """Multiply the maker's channels and divide what its readers do with them."""
    maker = link.maker
    w = weights[maker.inputs[1]].astype(np.float64)
    weights[maker.inputs[1]] = (
        w * factors if maker.op.name == "MatMul" else w * factors.reshape(-1, *(1,) * (w.ndim - 1))
    )
    if len(maker.inputs) > 2 and maker.inputs[2]:
        weights[maker.inputs[2]] = weights[maker.inputs[2]].astype(np.float64) * factors
    for reader, channels in link.readers:
        w, by = weights[reader.inputs[1]].astype(np.float64), factors[channels]
        if reader.op.name == "MatMul":
            weights[reader.inputs[1]] = w / by[:, None]
            continue
        group = int(str(reader.attrs["group"]))
        shaped = w.reshape(group, -1, *w.shape[1:]) / by.reshape(group, 1, *(1,) * (w.ndim - 2), w.shape[-1])
        weights[reader.inputs[1]] = shaped.reshape(w.shape)
