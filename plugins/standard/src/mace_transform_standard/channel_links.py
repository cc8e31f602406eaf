"""Tells which channels of a node's operands and results stay or go together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, Graph, Node, Tensor
from mace_core.ops.pad import PadAttributes
from mace_core.ops.reduce import ReduceAttributes
from mace_core.ops.shapes import AxisAttributes


@dataclass(frozen=True)
class LinkedChannels:
    """Channels of tensor x that are channels of tensor y: the first ones beside the second ones."""

    x: str
    y: str
    x_channels: Array
    y_channels: Array


Rule = Callable[[Node, Graph], list[LinkedChannels] | None]


def link_equal(x: Tensor, y: Tensor) -> list[LinkedChannels] | None:
    """Link channels of equal numbers; None if there are more of one tensor than of the other."""
    if not x.shape or not y.shape or x.shape[-1] != y.shape[-1]:
        return None
    channels = np.arange(x.shape[-1])
    return [LinkedChannels(x.name, y.name, channels, channels)]


def link_same(node: Node, graph: Graph) -> list[LinkedChannels] | None:
    """Link the channels of the only operand and the only result."""
    return link_equal(graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]])


def link_operands(node: Node, graph: Graph) -> list[LinkedChannels] | None:
    """Link two operands to the result; a constant must have the result's channels, or one for all."""
    y = graph.tensors[node.outputs[0]]
    links: list[LinkedChannels] = []
    for name in node.inputs:
        operand = graph.tensors[name]
        if name in graph.weights:
            if operand.shape[-1:] not in ((), (1,), y.shape[-1:]) or (
                operand.quant and operand.quant.axis is not None
            ):
                return None
            continue
        linked = link_equal(operand, y)
        if linked is None:
            return None
        links += linked
    return links


def link_reduction(node: Node, graph: Graph) -> list[LinkedChannels] | None:
    """Link the channels of a reduction over other axes."""
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    axes = {axis % len(x.shape) for axis in node.attributes(ReduceAttributes).axes}
    return None if len(x.shape) - 1 in axes else link_equal(x, y)


def link_padding(node: Node, graph: Graph) -> list[LinkedChannels] | None:
    """Link the channels of an operand that gets no further ones."""
    attrs = node.attributes(PadAttributes)
    # A scalar has no axis to pad.
    return None if any((*attrs.before[-1:], *attrs.after[-1:])) else link_same(node, graph)


def link_parts(node: Node, graph: Graph) -> list[LinkedChannels] | None:
    """Link each part of a Concat or Split to its channels of the full tensor.

    All of them if it divides another axis.
    """
    is_concat = node.op.name == "Concat"
    full = graph.tensors[node.outputs[0] if is_concat else node.inputs[0]]
    parts = [graph.tensors[name] for name in (node.inputs if is_concat else node.outputs)]
    # A constant part would have to be sliced as well, and one that is read twice linked to two places.
    if any(part.name in graph.weights for part in parts) or not full.shape:
        return None
    is_last = node.attributes(AxisAttributes).axis % len(full.shape) == len(full.shape) - 1
    links: list[LinkedChannels] = []
    start = 0
    for part in parts:
        channels = np.arange(part.shape[-1])
        places = channels + start if is_last else channels
        start += part.shape[-1]
        links.append(
            LinkedChannels(part.name, full.name, channels, places)
            if is_concat
            else LinkedChannels(full.name, part.name, places, channels)
        )
    return links


def link_reshape(node: Node, graph: Graph) -> list[LinkedChannels] | None:
    """Link channels to those of a last axis that holds all channels of one pixel or of several."""
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    if not x.elements or not x.shape or not y.shape or y.shape[-1] % x.shape[-1]:
        return None
    channels, copies = x.shape[-1], y.shape[-1] // x.shape[-1]
    return [LinkedChannels(x.name, y.name, np.tile(np.arange(channels), copies), np.arange(y.shape[-1]))]


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Minimum", "Maximum"), link_operands),
    **dict.fromkeys(("MaxPool", "AveragePool"), link_same),
    **dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceMin"), link_reduction),
    **dict.fromkeys(("Concat", "Split"), link_parts),
    "Pad": link_padding,
    "Reshape": link_reshape,
}
"""Ops that work channel by channel, beside those of one operand that work element by element."""


class ChannelGroups:
    """Channels of all tensors in groups that stay or go together; each channel has a number."""

    def __init__(self, tensors: Iterator[Tensor]) -> None:
        self._first: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        total = 0
        for tensor in tensors:
            self._first[tensor.name], self._counts[tensor.name] = (
                total,
                tensor.shape[-1] if tensor.shape else 1,
            )
            total += self._counts[tensor.name]
        self._labels = np.arange(total)
        self._is_kept = np.zeros(total, bool)

    def __contains__(self, tensor: str) -> bool:
        return tensor in self._first

    def locate(self, tensor: str) -> slice:
        """Return where a tensor's channels lie among all."""
        return slice(self._first[tensor], self._first[tensor] + self._counts[tensor])

    def join(self, links: list[LinkedChannels]) -> None:
        """Put linked channels into one group each."""
        if not links:
            return
        first = np.concatenate([self._first[link.x] + link.x_channels for link in links])
        second = np.concatenate([self._first[link.y] + link.y_channels for link in links])
        # The lowest number of a group spreads along its links, farther in each turn.
        while True:
            lowest = np.minimum(self._labels[first], self._labels[second])
            before = self._labels.copy()
            np.minimum.at(self._labels, first, lowest)
            np.minimum.at(self._labels, second, lowest)
            self._labels = self._labels[self._labels]
            if np.array_equal(before, self._labels):
                return

    def keep(self, tensor: str, channels: Array | slice = slice(None)) -> bool:
        """Mark the groups of these channels as kept; return whether any was not marked before."""
        labels = np.unique(self._labels[self.locate(tensor)][channels])
        fresh = labels[~self._is_kept[labels]]
        self._is_kept[fresh] = True
        return bool(fresh.size)

    def kept_channels(self, tensor: str) -> Array:
        """Tell for each channel of a tensor whether it is kept."""
        return np.asarray(self._is_kept[self._labels[self.locate(tensor)]])

    def fill_up(self, granule: int) -> bool:
        """Keep more channels of each tensor, up to a multiple of a number; tell whether any was missing."""
        is_changed = False
        for tensor, count in self._counts.items():
            is_kept = self.kept_channels(tensor)
            present = int(is_kept.sum())
            missing = min(count, max(1, -(-present // granule)) * granule) - present
            if missing > 0:
                is_changed |= self.keep(tensor, np.flatnonzero(~is_kept)[:missing])
        return is_changed
