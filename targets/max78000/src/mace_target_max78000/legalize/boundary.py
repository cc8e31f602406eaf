"""Cuts off what the application computes before and after the accelerator.

Before: rounding the input to bytes, and its order. After: the order of the results, their conversion to real
numbers, and functions such as Softmax. Everything else must run on the accelerator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from mace_core.attributes import AttributeValues, values_of
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph, Node
from mace_core.ops.conv import ConvAttributes
from mace_core.quantization import quantize
from mace_target_max78000.legalize.copies import ROW_RANK, plain_window
from mace_target_max78000.legalize.refusals import Refusals
from mace_target_max78000.legalize.tensors import (
    VIEW_OPS,
    find_exponent,
    find_producers,
    find_view,
    is_native,
    make_storage,
)
from mace_target_max78000.legalize.window_plans import FoldPlan

TAIL_FUNCTIONS = ("Softmax", "LogSoftmax", "Sigmoid")
"""What an application computes of the results, besides putting them in order."""

TAIL_OPS = (*VIEW_OPS, *TAIL_FUNCTIONS, "Dequantize", "Cast", "Concat")
"""Ops that the application computes where they come last."""


class AxisFold(NamedTuple):
    """How copies of one axis are made: copy i, of `size` elements, has element stride * u + moves[i] at u."""

    stride: int
    moves: tuple[int, ...]
    size: int


@dataclass(frozen=True, eq=False)
class InputFold:
    """Copies of an input that the application makes, because no kernel of the hardware reaches as far.

    axes: for each spatial axis.  Channel (i, j, c) of the result has at (u, v) the element of channel c that
    copy i of the rows has at u and copy j of the columns at v; zero where the input has none.
    """

    axes: tuple[AxisFold, ...]

    def __str__(self) -> str:
        ways = (f"axis {i}: {n} elements at {s} i + {list(m)}" for i, (s, m, n) in enumerate(self.axes))
        return "its channels are copies, moved and taken in steps (" + "; ".join(ways) + ")"

    def apply(self, x: Array) -> Array:
        """Fold data: [N, *spatial, C] -> [N, *spatial, copies * C]."""
        for axis, (stride, moves, size) in enumerate(self.axes, start=1):
            indices = np.stack([stride * np.arange(size) + move for move in moves], axis=-1)
            inside = (indices >= 0) & (indices < x.shape[axis])
            taken = np.take(x, np.where(inside, indices, 0).reshape(-1), axis=axis)
            shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
            mask = inside.reshape(*(1,) * axis, *indices.shape, *(1,) * (x.ndim - axis - 1))
            # The copies of this axis come before the channels and behind the copies of earlier axes, which is
            # the order that `spread_filters` counts them in.
            x = np.moveaxis(np.where(mask, taken.reshape(shape), 0), axis + 1, -2)
        first = len(self.axes) + 1
        return np.asarray(x.reshape(*x.shape[:first], -1))


@dataclass(frozen=True, eq=False)
class NetworkInput:
    """How the network's input is made of the model's.

    power: its steps are 2 ** power.  order: for each element of the network's input before folding, the
    element of the model's input.
    """

    name: str
    power: int
    order: Array
    fold: InputFold | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the application must do before it loads an input."""
        scaling = f"values divided by {2.0**self.power:g}, rounded, limited to -128 ... 127"
        notes = [f"the input {self.name!r} is loaded as signed bytes: {scaling}"]
        if self.fold:
            notes.append(f"the input {self.name!r} is folded: {self.fold}")
        return tuple(notes)

    def apply(self, value: Array) -> Array:
        """Make the network's input, int64 [channels, rows, columns] or [channels, length].

        value: real numbers, or bytes as they are stored.
        """
        quantized = value if value.dtype == np.int8 else quantize(value, make_storage(self.power))
        data = quantized.reshape(-1)[self.order]
        folded = self.fold.apply(data) if self.fold else data
        channels_first = np.moveaxis(folded[0], -1, 0).astype(np.int64)
        if channels_first.ndim == 1:  # a row is an image of one position
            return np.asarray(channels_first.reshape(-1, 1, 1))
        return np.asarray(channels_first)


def cut_input(graph: Graph) -> tuple[Graph, NetworkInput]:
    """Return the graph from the first tensor that lies as the network's input does, and how that is made.

    MaceError: the graph has several inputs, or it is not quantized for this target.
    """
    if len(graph.inputs) != 1:
        problem = f"it has {len(graph.inputs)} inputs, and the accelerator takes one"
        raise MaceError(graph.name, problem, "join them along channels outside")
    name = graph.inputs[0]
    start, path = name, []
    while (reader := _find_sole_reader(graph, start)) and _is_done_by_application(graph, reader):
        start = reader.outputs[0]
        path.append(reader)
    tensor = graph.tensors[start]
    power = find_exponent(tensor.quant)
    if not is_native(tensor) or power is None:
        place = f"{graph.name}: input {name!r}"
        raise MaceError(place, f"it is stored as {tensor}", "quantize the graph for this target first")
    order = np.arange(tensor.elements).reshape(tensor.shape)
    if path:
        order = find_view(_without_storage(graph, path), start, find_producers(graph)).order
    network_input = NetworkInput(name, power, order)
    if start == name:
        return graph, network_input
    nodes = tuple(node for node in graph.nodes if node not in path)
    return replace(graph, nodes=nodes, inputs=(start,)), network_input


def _is_done_by_application(graph: Graph, node: Node) -> bool:
    """Whether the application does what a node does with the input."""
    if node.op.name == "Quantize":
        # An input of integers has been rounded before it comes; another Quantize rescales, which layers do.
        return graph.tensors[node.inputs[0]].quant is None
    return node.op.name in VIEW_OPS and not _is_flatten(graph, node)


def _is_flatten(graph: Graph, node: Node) -> bool:
    """Whether a node joins rows, columns and channels, as the hardware does before a linear layer.

    A single line is channels as it is.
    """
    before, after = graph.tensors[node.inputs[0]].shape, graph.tensors[node.outputs[0]].shape
    joins = len(after) == ROW_RANK < len(before) and before[-1] != after[-1]
    return joins and sum(size > 1 for size in before) > 1


def _without_storage(graph: Graph, nodes: list[Node]) -> Graph:
    """Describe these nodes' tensors equally, so that a Quantize among them counts as a view."""
    names: set[str] = set()
    for node in nodes:
        names |= {node.inputs[0], *node.outputs}
    plain = {name: replace(graph.tensors[name], quant=None) for name in names}
    return replace(graph, tensors=MappingProxyType({**graph.tensors, **plain}))


def _find_sole_reader(graph: Graph, tensor: str) -> Node | None:
    """Return the one node that reads a tensor; None if there are several, or if it is an output."""
    readers = [node for node in graph.nodes if tensor in node.inputs]
    return readers[0] if len(readers) == 1 and tensor not in graph.outputs else None


def cut_tail(graph: Graph) -> tuple[Graph, tuple[Node, ...]]:
    """Return the graph up to what the application computes last, and those nodes in their order."""
    tail: list[Node] = []
    while node := next((n for n in reversed(graph.nodes) if _is_tail_node(graph, n)), None):
        tail.insert(0, node)
        outputs: list[str] = []
        for name in graph.outputs:
            outputs.extend(node.inputs if name in node.outputs else (name,))
        computed = [name for name in outputs if name not in graph.weights]
        nodes = tuple(n for n in graph.nodes if n is not node)
        graph = replace(graph, nodes=nodes, outputs=tuple(dict.fromkeys(computed)))
    return graph, tuple(tail)


def refuse_tail(graph: Graph, tail: Sequence[Node], refusals: Refusals) -> None:
    """Record outputs that the application cannot make of results: constants, and other than real numbers."""
    for name in graph.outputs:
        if name in graph.weights:
            refusals.add(f"output {name!r}", "it is a constant; leave it out")
    for node in tail:
        if any(name in graph.weights for name in node.inputs):
            problem = "it makes an output of a constant"
            refusals.add_node(node, f"{problem}; leave the constant out of the outputs")
        dtype = graph.tensors[node.outputs[0]].dtype
        if node.op.name == "Cast" and not dtype.is_float:
            problem = f"it makes {dtype.value} of results, and the application gets real numbers"
            refusals.add_node(node, f"{problem}; convert them outside")


def _is_tail_node(graph: Graph, node: Node) -> bool:
    """Whether all results of a node are outputs that nothing reads, and applications can compute it."""
    if node.op.name not in TAIL_OPS or not all(name in graph.outputs for name in node.outputs):
        return False
    return not any(set(node.outputs) & set(other.inputs) for other in graph.nodes)


def fold_graph_input(
    graph: Graph, reader: Node, plan: tuple[FoldPlan, ...], filters: Array
) -> tuple[Graph, InputFold]:
    """Fold the input of a graph for the convolution that reads it.  filters: over the folded channels."""
    tensor = graph.tensors[graph.inputs[0]]
    strides = reader.attributes(ConvAttributes).strides
    axes = zip(strides, plan, strict=True)
    fold = InputFold(tuple(AxisFold(stride, axis.moves, axis.size) for stride, axis in axes))
    channels = tensor.shape[-1] * prod(len(axis.moves) for axis in plan)
    builder = Builder(graph.name)
    builder.storages = {name: t.storage for name, t in graph.tensors.items() if t.storage}
    builder.input(tensor.name, tensor.dtype, (1, *(axis.size for axis in plan), channels), tensor.quant)
    for name, array in graph.weights.items():
        builder.weights[name], builder.tensors[name] = array, graph.tensors[name]
    for node in graph.nodes:
        inputs = node.inputs
        attrs: AttributeValues = node.attrs
        if node is reader:
            # Each copy took the elements of its stride, so the convolution has none any more.
            attrs = values_of(node.attrs) | plain_window([axis.pad for axis in plan])
            weight = builder.weight(f"{inputs[1]}.folded", filters, graph.tensors[inputs[1]].quant)
            inputs = (tensor.name, weight, *inputs[2:])
        builder.add(node.op, inputs, attrs, outputs=node.outputs, like=node)
    return builder.finish(graph.outputs), fold
