"""Cuts off what the application computes before and after the accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph, Node
from mace_core.quantization import quantize
from mace_target_max78000.legalize.copies import plain_window
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

FLAT_RANK = 2
"""Axes of data without rows and columns."""


@dataclass(frozen=True, eq=False)
class InputFold:
    """Copies of an input that the application makes: channel (i, j, c) has at (u, v) the element (stride * u + move) of channel c.

    axes: for each spatial axis the stride, the moves and how many elements; zeros where the input has none.
    """

    axes: tuple[tuple[int, tuple[int, ...], int], ...]

    def __str__(self) -> str:
        ways = (f"axis {i}: {n} elements at {s} i + {list(m)}" for i, (s, m, n) in enumerate(self.axes))
        return "channels are copies of it, moved and taken in steps (" + "; ".join(ways) + ")"

    def apply(self, x: Array) -> Array:
        """Folded data [N, *spatial, copies * C] of data [N, *spatial, C]."""
        for axis, (stride, moves, size) in enumerate(self.axes, start=1):
            indices = np.stack([stride * np.arange(size) + move for move in moves], axis=-1)
            inside = (indices >= 0) & (indices < x.shape[axis])
            taken = np.take(x, np.where(inside, indices, 0).reshape(-1), axis=axis)
            shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
            mask = inside.reshape(*(1,) * axis, *indices.shape, *(1,) * (x.ndim - axis - 1))
            x = np.moveaxis(np.where(mask, taken.reshape(shape), 0), axis + 1, -2)
        first = len(self.axes) + 1
        return np.asarray(x.reshape(*x.shape[:first], -1))


@dataclass(frozen=True, eq=False)
class NetworkInput:
    """How the network's input is made of the model's.

    power: steps are 2 ** power.  order: the model's elements by where they lie, in the shape of the network's
    input before folding.
    """

    name: str
    power: int
    order: Array
    fold: InputFold | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the application must do before it loads an input."""
        found = [
            f"the input {self.name!r} is loaded as signed bytes: values divided by {2.0**self.power:g}, rounded, limited to -128 ... 127"
        ]
        if self.fold:
            found.append(f"the input {self.name!r} is folded: {self.fold}")
        return tuple(found)

    def apply(self, value: Array) -> Array:
        """The network's input, int64 [channels, rows, columns] or [channels, length], of real numbers or of stored bytes."""
        stored = value if value.dtype == np.int8 else self._stored(value)
        data = stored.reshape(-1)[self.order]
        folded = self.fold.apply(data) if self.fold else data
        first = np.moveaxis(folded[0], -1, 0).astype(np.int64)
        return np.asarray(first if first.ndim > 1 else first.reshape(-1, 1, 1))

    def _stored(self, value: Array) -> Array:
        return quantize(value, make_storage(self.power))


def cut_input(graph: Graph) -> tuple[Graph, NetworkInput]:
    """The graph from the first tensor that lies as the network's input does, and how that is made."""
    if len(graph.inputs) != 1:
        raise MaceError(
            graph.name,
            f"it has {len(graph.inputs)} inputs, and the accelerator takes one",
            "join them along channels outside",
        )
    made, name = find_producers(graph), graph.inputs[0]
    start, steps = name, []
    while (reader := _find_sole_reader(graph, start)) and _is_done_by_application(graph, reader):
        start = reader.outputs[0]
        steps.append(reader)
    tensor = graph.tensors[start]
    power = find_exponent(tensor.quant)
    if not is_native(tensor) or power is None:
        raise MaceError(
            f"{graph.name}: input {name!r}",
            f"it is stored as {tensor}",
            "quantise the graph for this target first",
        )
    order = (
        find_view(_without_storage(graph, steps), start, made).order
        if steps
        else np.arange(tensor.elements).reshape(tensor.shape)
    )
    if start == name:
        return graph, NetworkInput(name, power, order)
    nodes = tuple(n for n in graph.nodes if n not in steps)
    return replace(graph, nodes=nodes, inputs=(start,)), NetworkInput(name, power, order)


def _is_done_by_application(graph: Graph, node: Node) -> bool:
    """Whether the application does what a node does with the input.

    What is stored as integers has been rounded before it comes.
    """
    if node.op.name == "Quantize":
        return graph.tensors[node.inputs[0]].quant is None
    return node.op.name in VIEW_OPS and not _is_flatten(graph, node)


def _is_flatten(graph: Graph, node: Node) -> bool:
    """Whether a node joins rows, columns and channels, as the hardware does before a linear layer.

    A single line is channels as it is.
    """
    before, after = graph.tensors[node.inputs[0]].shape, graph.tensors[node.outputs[0]].shape
    return (
        len(after) == FLAT_RANK < len(before) and before[-1] != after[-1] and sum(n > 1 for n in before) > 1
    )


def _without_storage(graph: Graph, steps: list[Node]) -> Graph:
    """The graph with these nodes' tensors described alike, so that all of them are views."""
    plain = {
        t: replace(graph.tensors[t], quant=None) for node in steps for t in (node.inputs[0], *node.outputs)
    }
    return replace(graph, tensors=MappingProxyType({**graph.tensors, **plain}))


def _find_sole_reader(graph: Graph, tensor: str) -> Node | None:
    readers = [n for n in graph.nodes if tensor in n.inputs]
    return readers[0] if len(readers) == 1 and tensor not in graph.outputs else None


def cut_tail(graph: Graph) -> tuple[Graph, tuple[Node, ...]]:
    """The graph up to what the application does last, and those nodes in their order."""
    tail: list[Node] = []
    while found := next((n for n in reversed(graph.nodes) if _is_tail_node(graph, n)), None):
        tail.insert(0, found)
        outputs = [
            i
            for o in graph.outputs
            for i in (found.inputs if o in found.outputs else (o,))
            if i not in graph.weights
        ]
        nodes = tuple(n for n in graph.nodes if n is not found)
        graph = replace(graph, nodes=nodes, outputs=tuple(dict.fromkeys(outputs)))
    return graph, tuple(tail)


def refuse_tail(graph: Graph, tail: Sequence[Node], faults: Refusals) -> None:
    """Note outputs that the application cannot make of results: constants, and numbers of other types than real ones."""
    for name in graph.outputs:
        if name in graph.weights:
            faults.add(f"output {name!r}", "it is a constant; leave it out")
    for node in tail:
        place = f"layer {node.name!r} ({node.op.name})"
        if any(name in graph.weights for name in node.inputs):
            faults.add(place, "it makes an output of a constant; leave the constant out of the outputs")
        if node.op.name == "Cast" and not graph.tensors[node.outputs[0]].dtype.is_float:
            kind = graph.tensors[node.outputs[0]].dtype.value
            faults.add(
                place,
                f"it makes {kind} of results, and the application gets real numbers; convert them outside",
            )


def _is_tail_node(graph: Graph, node: Node) -> bool:
    """Whether a node's results are nothing but outputs, and it is one that applications compute."""
    ends = all(o in graph.outputs for o in node.outputs)
    return (
        node.op.name in TAIL_OPS and ends and not any(set(node.outputs) & set(n.inputs) for n in graph.nodes)
    )


def fold_graph_input(
    graph: Graph, reader: Node, plan: tuple[FoldPlan, ...], filters: Array
) -> tuple[Graph, InputFold]:
    """The graph whose input is folded for the convolution that reads it.

    filters: over the folded channels.
    """
    tensor = graph.tensors[graph.inputs[0]]
    strides = reader.attrs["strides"]
    assert isinstance(strides, tuple)
    fold = InputFold(tuple((int(s), f.moves, f.size) for s, f in zip(strides, plan, strict=True)))
    channels = tensor.shape[-1] * int(np.prod([len(f.moves) for f in plan]))
    new = Builder(graph.name)
    new.storages = {n: t.storage for n, t in graph.tensors.items() if t.storage}
    new.input(tensor.name, tensor.dtype, (1, *(f.size for f in plan), channels), tensor.quant)
    for name, array in graph.weights.items():
        new.weights[name], new.tensors[name] = array, graph.tensors[name]
    for node in graph.nodes:
        inputs, attrs = node.inputs, node.attrs
        if node is reader:
            attrs = {**attrs, **plain_window([f.pad for f in plan])}
            inputs = (
                tensor.name,
                new.weight(f"{inputs[1]}.folded", filters, graph.tensors[inputs[1]].quant),
                *inputs[2:],
            )
        new.add(node.op, inputs, attrs, outputs=node.outputs, like=node)
    return new.finish(graph.outputs), fold
