"""Builds layers from a graph of hardware operations: a pool and a sum join the convolution that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mace_core.ir import Array, Graph, Node
from mace_core.ops.arguments import integers
from mace_target_max78000.device import PROCESSORS, Device
from mace_target_max78000.legalize.layer_fields import (
    ELTWISE_OPS,
    MAIN_OPS,
    POOL_OPS,
    SHIFTS,
    FusedInput,
    InputFusion,
    LayerArithmetic,
    as_pair,
    derive_arithmetic,
    find_operation,
    pack_weights,
    spatial_size,
)
from mace_target_max78000.legalize.refusals import Refusals, RefusedError
from mace_target_max78000.legalize.tensors import VIEW_OPS, TensorView, find_exponent, find_view, is_native
from mace_target_max78000.network import INPUT, Activation, Layer, Operation

UNIT_SHIFT = 7
"""What makes a sum of weight 1 its input again."""


@dataclass
class LayerBuilder:
    """A graph on its way to layers.

    tensors: of each layer what it computes.  steps: the power of two that it counts.
    made: for each tensor in memory the layer that makes it, or INPUT; views of them are not there.
    """

    graph: Graph
    device: Device
    faults: Refusals
    layers: list[Layer] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=dict)

    def form(self) -> None:
        """Make every layer; what cannot be is noted."""
        self.fronts = InputFusion.of(self.graph)
        self.made |= dict.fromkeys(self.graph.inputs, INPUT)
        main = {node.name: self.fronts.before(node) for node in self.graph.nodes if node.op.name in MAIN_OPS}
        absorbed = {n.name for front in main.values() for n in front.absorbed}
        absorbed |= self._absorbed_alone(absorbed)
        for node in self.graph.nodes:
            if node.name in absorbed or node.op.name in (*VIEW_OPS, "Concat", "Split"):
                continue
            try:
                self._node(node, main.get(node.name))
            except RefusedError as error:
                self.faults.add(f"layer {node.name!r} ({node.op.name})", str(error))
                # So that its readers are looked at as well.
                self.made.update(dict.fromkeys(node.outputs, INPUT))
        for name in dict.fromkeys(self.graph.outputs):
            self._output(name)

    def _absorbed_alone(self, taken: set[str]) -> set[str]:
        """The nodes that layers without a convolution compute besides their own, from the last on."""
        found: set[str] = set()
        for node in reversed(self.graph.nodes):
            if node.op.name in (*POOL_OPS, *ELTWISE_OPS) and node.name not in taken | found:
                found |= {n.name for n in self.fronts.alone(node).absorbed if n is not node}
        return found

    def _node(self, node: Node, front: FusedInput | None) -> None:
        if front:
            self._main(node, front)
        elif node.op.name in (*POOL_OPS, *ELTWISE_OPS):
            self._alone(node)
        elif node.op.name == "Abs" and self._takes_abs(node.inputs[0]):
            self._abs(node)
        else:
            raise RefusedError(
                "the hardware has no such operation; compute it before or after the network, or replace it in the model"
            )

    def _main(self, node: Node, front: FusedInput) -> None:
        w, tensors = self.graph.weights.get(node.inputs[1]), self.graph.tensors
        if w is None:
            raise RefusedError("its weights are computed; the hardware's are constant")
        if not is_native(tensors[node.inputs[0]]):
            raise RefusedError(
                f"its data is {tensors[node.inputs[0]]}; the hardware computes with signed bytes in steps of a power of two"
            )
        units = find_exponent(tensors[node.inputs[0]].quant), find_exponent(tensors[node.inputs[1]].quant)
        if units[0] is None or units[1] is None:
            raise RefusedError(
                "its weights are not stored in steps of one power of two; quantise them for this target"
            )
        after = derive_arithmetic(self.graph, node, (units[0], units[1]))
        if after.note:
            self.notes.append(f"layer {node.name!r}: {after.note}")
        operation = find_operation(node, len(tensors[node.inputs[0]].shape))
        shape = self._main_of_matrix(node, w) if node.op.name == "MatMul" else self._main_of_windows(node, w)
        if node.op.name == "MatMul" and front.absorbed:
            operation = Operation.CONV2D
        layer = self._layer(node, front, operation)
        self._append(
            _with_arithmetic(layer, after, shape),
            node.outputs[0],
            units[0] + units[1] if after.wide else None,
        )

    def _takes_abs(self, tensor: str) -> bool:
        """Whether the layer that makes a tensor can give absolute values instead."""
        layer = self.layers[self.made[tensor]] if self.made.get(tensor, INPUT) != INPUT else None
        free = layer and layer.weights is not None and layer.activation is Activation.NONE and not layer.wide
        return bool(free) and self.fronts.uses[tensor] == 1

    def _abs(self, node: Node) -> None:
        index = self.made[node.inputs[0]]
        self.layers[index] = replace(self.layers[index], activation=Activation.ABS)
        self.tensors[index] = node.outputs[0]
        del self.made[node.inputs[0]]  # the values with their signs are in memory no more
        self.made[node.outputs[0]] = index

    def _main_of_matrix(self, node: Node, w: Array) -> dict[str, Any]:
        view = self._view(node.inputs[0])
        base = self.graph.tensors[view.base]
        values = order_linear_weights(w, view.order, base.shape)
        pooled = bool(self.fronts.before(node).absorbed)
        return {
            "weights": pack_weights(values[:, :, None, None] if pooled else values),
            "flatten": spatial_size(base) != (1, 1),
        }

    def _main_of_windows(self, node: Node, w: Array) -> dict[str, Any]:
        pads = integers(node.attrs, "pads_before")
        return {
            "weights": pack_weights(order_filters(w, node.op.name)),
            "kernel": as_pair(w.shape[1:-1]),
            "pad": (pads[0], pads[1] if len(pads) > 1 else 0),
            "dilation": as_pair(node.attrs["dilations"]),
            "groups": int(str(node.attrs["group"])),
        }

    def _alone(self, node: Node) -> None:
        """A layer without weights, or with those of a copy where the part needs them."""
        if node.op.name in ELTWISE_OPS and not self.fronts.same_steps(node):
            self._sum(node)
            return
        front = self.fronts.alone(node)
        layer = self._layer(node, front, Operation.PASSTHROUGH)
        subsamples = front.pool is not None or front.stride > 1
        if (
            subsamples
            and not self.device.pipelined
            and layer.channels > PROCESSORS
            and layer.pooled != (1, 1)
        ):
            flat = len(self.graph.tensors[node.outputs[0]].shape) == 3
            values = np.eye(layer.channels, dtype=np.int64)[:, :, None]
            weights = pack_weights(values if flat else values[..., None])
            layer = replace(
                layer,
                operation=Operation.CONV1D if flat else Operation.CONV2D,
                weights=weights,
                shift=UNIT_SHIFT,
            )
        self._append(layer, node.outputs[0])

    def _sum(self, node: Node) -> None:
        """A sum of data in different steps: a convolution that reads both side by side, each with its own power of two."""
        out, *operands = (self.graph.tensors[n] for n in (*node.outputs, *node.inputs))
        powers = [find_exponent(t.quant) for t in operands]
        if None in powers or any(t.shape != out.shape for t in operands) or not is_native(out):
            raise RefusedError(
                "its operands are not of one shape and in steps of powers of two; quantise them for this target"
            )
        known = [p for p in powers if p is not None]
        least, rank, signs = min(known), len(out.shape), (1, -1 if node.op.name == "Sub" else 1)
        shift = least - (find_exponent(out.quant) or 0) + UNIT_SHIFT
        if max(known) - least >= UNIT_SHIFT or shift not in SHIFTS:
            raise RefusedError(
                f"its operands count in steps of 2^{known[0]} and 2^{known[1]}, too far apart for weights; choose closer scales"
            )
        eye = np.eye(out.shape[-1], dtype=np.int64)
        values = np.concatenate(
            [sign * (eye << p - least) for sign, p in zip(signs, known, strict=True)], axis=1
        )
        operation = {2: Operation.LINEAR, 3: Operation.CONV1D}.get(rank, Operation.CONV2D)
        weights = pack_weights(values.reshape(*values.shape, *(1,) * (rank - 2)))
        inputs = tuple(piece for name in node.inputs for piece in self._pieces(name))
        layer = Layer(
            node.name,
            operation,
            inputs,
            values.shape[1],
            spatial_size(out),
            len(eye),
            weights=weights,
            shift=shift,
        )
        self._append(layer, node.outputs[0])

    def _layer(self, node: Node, front: FusedInput, operation: Operation) -> Layer:
        """A layer with what comes before its main operation.

        Its channels, rows and columns are those of the tensor that it reads, which may be a view: the same
        words counted as other rows and columns.  A linear layer reads what its view is of, because its
        weights are put into the order of the memory (see `Fronts.before`).
        """
        tensors = self.graph.tensors
        read = tensors[front.tensors[0]]
        inputs = self._operands(front) if front.eltwise else tuple(self._pieces(read.name))
        return Layer(
            name=node.name,
            operation=operation,
            inputs=inputs,
            channels=read.shape[-1],
            dim=spatial_size(read),
            out_channels=tensors[node.outputs[0]].shape[-1],
            pool=front.pool,
            stride=front.stride,
            eltwise=front.eltwise,
            operands=len(front.tensors) if front.eltwise else 1,
            pool_first=front.pool_first,
        )

    def _operands(self, front: FusedInput) -> tuple[int, ...]:
        """The layers that make the operands of an element-wise operation.

        The input alone if they are its parts.
        """
        made = {self.fronts.producers[t].name for t in front.tensors if t in self.fronts.producers}
        sole = self.fronts.producers.get(front.tensors[0])
        return (
            (INPUT,)
            if sole and sole.op.name == "Split" and made == {sole.name}
            else tuple(map(self._in_memory, front.tensors))
        )

    def _view(self, tensor: str) -> TensorView:
        return find_view(self.graph, tensor, self.fronts.producers)

    def _base(self, tensor: str) -> str:
        """The tensor whose words a layer finds where it reads another one.

        RefusedError where its channels are not those of the memory, or where it is a constant.
        """
        view = self._view(tensor)
        if view.base in self.graph.weights:
            raise RefusedError(
                "it reads a constant; the hardware adds constants as the bias of a convolution only"
            )
        if view.order.ndim == 0:
            raise RefusedError("it is a single number without channels; keep the axes of the data")
        if not (view.in_order and view.order.shape[-1] == self.graph.tensors[view.base].shape[-1]):
            raise RefusedError("its input is rearranged; the hardware keeps rows, columns and channels")
        return view.base

    def _pieces(self, tensor: str) -> Iterator[int]:
        """The layers that make a tensor's channels, one after another."""
        base = self._base(tensor)
        node = self.fronts.producers.get(base)
        if node is None or node.op.name != "Concat":
            yield self.made[base]
            return
        axes = len(self.graph.tensors[base].shape)
        if int(str(node.attrs["axis"])) % axes != axes - 1:
            raise RefusedError(
                f"{node.name!r} joins its input along another axis than channels; join channels, or outside the network"
            )
        if not self.fronts.same_steps(node):
            raise RefusedError(f"what {node.name!r} joins is stored in different steps; quantise all alike")
        for name in node.inputs:
            yield from self._pieces(name)

    def _in_memory(self, tensor: str) -> int:
        """The one layer that makes a tensor; what is joined is copied."""
        base = self._base(tensor)
        node = self.fronts.producers.get(base)
        if node and node.op.name == "Concat" and base not in self.made:
            made = self.graph.tensors[base]
            pieces, channels = tuple(self._pieces(base)), made.shape[-1]
            self._append(
                Layer(node.name, Operation.PASSTHROUGH, pieces, channels, spatial_size(made), channels), base
            )
        return self.made[base]

    def _append(self, layer: Layer, tensor: str, step: int | None = None) -> None:
        """step: the power of two that sums of 32 bits count."""
        found = find_exponent(self.graph.tensors[tensor].quant) if step is None else step
        if found is None:
            stored = self.graph.tensors[tensor]
            raise RefusedError(
                f"its result is {stored}; the hardware computes signed bytes in steps of a power of two, compute it outside"
            )
        self.steps.append(found)
        self.made[tensor] = len(self.layers)
        self.layers.append(layer)
        self.tensors.append(tensor)

    def _output(self, name: str) -> None:
        """Mark the layer whose result, in any order, is an output of the graph."""
        try:
            index = self._in_memory(self._view(name).base)
        except RefusedError as error:
            self.faults.add(f"output {name!r}", str(error))
            return
        if index == INPUT:
            self.faults.add(f"output {name!r}", "it is the network's input; leave it out")
            return
        self.layers[index] = replace(self.layers[index], output=True)


def _with_arithmetic(layer: Layer, after: LayerArithmetic, shape: dict[str, Any]) -> Layer:
    return replace(
        layer, bias=after.bias, shift=after.shift, activation=after.activation, wide=after.wide, **shape
    )


def order_linear_weights(w: Array, order: Array, shape: tuple[int, ...]) -> Array:
    """Weights [out, in] of a matrix [in, out], its inputs counted channels first.

    order: where each input lies in the tensor that it is a view of.  shape: of that tensor, channels last.
    """
    base = np.zeros_like(w)
    base[order.reshape(-1)] = w
    return np.moveaxis(base.reshape(-1, shape[-1], w.shape[1]), 2, 0).swapaxes(1, 2).reshape(w.shape[1], -1)


def order_filters(w: Array, op: str) -> Array:
    """Filters [out, *kernel, in] as `Weights` has them: [out, in, *kernel], those of a transposed convolution [in, out, *kernel]."""
    values = np.moveaxis(w, -1, 1)
    return np.swapaxes(values, 0, 1) if op == "ConvTranspose" else values
