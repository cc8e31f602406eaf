"""Builds layers from a graph of hardware operations; pools and sums join the convolution that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from mace_core.ir import Array, Graph, Node
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.shapes import AxisAttributes
from mace_frontend_ai8x.network import INPUT, Layer, LayerActivation, Operation
from mace_target_max78000.device import PROCESSORS, SHIFTS, UNIT_SHIFT, Chip
from mace_target_max78000.legalize.copies import LINE_RANK, ROW_RANK
from mace_target_max78000.legalize.layer_fields import (
    ELTWISE_OPS,
    MAIN_OPS,
    POOL_OPS,
    FusedInput,
    InputFusion,
    as_pair,
    derive_arithmetic,
    find_operation,
    pack_weights,
    spatial_size,
)
from mace_target_max78000.legalize.refusals import NoEquivalentError, Refusals
from mace_target_max78000.legalize.tensors import VIEW_OPS, ElementView, find_exponent, find_view, is_native


@dataclass
class LayerBuilder:
    """Builds the layers of a graph.

    tensors: of each layer the one that it computes.  powers: of each layer the power of two whose steps its
    output counts.
    layer_of: for each tensor in memory the layer that writes it, or INPUT; views of them are not there.
    """

    graph: Graph
    device: Chip
    refusals: Refusals
    layers: list[Layer] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)
    powers: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    layer_of: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fusion = InputFusion.of(self.graph)
        self.refused: set[str] = set()

    def build(self) -> None:
        """Build every layer; what cannot be built is recorded."""
        self.layer_of |= dict.fromkeys(self.graph.inputs, INPUT)
        # Convolutions take what they can first; other layers only get what is left.
        main = {
            node.name: self.fusion.fuse_before(node) for node in self.graph.nodes if node.op.name in MAIN_OPS
        }
        absorbed: set[str] = set()
        for fused in main.values():
            absorbed |= {node.name for node in fused.absorbed}
        absorbed |= self._list_absorbed_alone(absorbed)
        for node in self.graph.nodes:
            # Views only count words in another way; Concat and Split are places that layers read and write.
            if node.name in absorbed or node.op.name in (*VIEW_OPS, "Concat", "Split"):
                continue
            try:
                self._build_node(node, main.get(node.name))
            except NoEquivalentError as error:
                self.refusals.add_node(node, str(error))
                # As if it were the input, so that its readers are looked at as well.
                self.layer_of.update(dict.fromkeys(node.outputs, INPUT))
                self.refused.update(node.outputs)
        for name in dict.fromkeys(self.graph.outputs):
            self._mark_output(name)

    def _list_absorbed_alone(self, taken: set[str]) -> set[str]:
        """List the nodes that layers without a convolution compute besides their own.

        The last nodes come first, because each layer takes along what lies before it.
        """
        absorbed: set[str] = set()
        for node in reversed(self.graph.nodes):
            if node.op.name in (*POOL_OPS, *ELTWISE_OPS) and node.name not in taken | absorbed:
                absorbed |= {n.name for n in self.fusion.fuse_separate(node).absorbed if n is not node}
        return absorbed

    def _build_node(self, node: Node, fused: FusedInput | None) -> None:
        """Build the layer of a node.  fused: what a convolution or a matrix computes before it."""
        if fused:
            self._build_main(node, fused)
        elif node.op.name in (*POOL_OPS, *ELTWISE_OPS):
            self._build_alone(node)
        elif node.op.name == "Abs" and self._can_activate_abs(node.inputs[0]):
            self._activate_abs(node)
        else:
            remedy = "compute it before or after the network, or replace it in the model"
            raise NoEquivalentError(f"the hardware has no such operation; {remedy}")

    def _build_main(self, node: Node, fused: FusedInput) -> None:
        """Build the layer of a convolution or a matrix."""
        data, weights = (self.graph.tensors[name] for name in node.inputs[:2])
        if node.inputs[1] not in self.graph.weights:
            problem = "its weights are computed, and those of the hardware are constant"
            raise NoEquivalentError(f"{problem}; compute it outside")
        if len(weights.shape) < 2:
            raise NoEquivalentError("its weights are a vector; give them two axes, [channels, 1]")
        data_power, weight_power = find_exponent(data.quant), find_exponent(weights.quant)
        if not is_native(data) or data_power is None:
            problem = f"its data is {data}, and the hardware computes signed bytes in steps of a power of two"
            raise NoEquivalentError(f"{problem}; quantize it for this target")
        if weight_power is None:
            problem = "its weights are not stored in steps of one power of two"
            raise NoEquivalentError(f"{problem}; quantize them for this target")
        arithmetic = derive_arithmetic(self.graph, node, data_power, weight_power)
        if arithmetic.note:
            self.notes.append(f"layer {node.name!r}: {arithmetic.note}")
        operation = find_operation(node, len(data.shape))
        layer = self._start_layer(node, fused, operation)
        layer = self._with_matrix(layer, node) if node.op.name == "MatMul" else self._with_window(layer, node)
        layer = replace(
            layer,
            bias=arithmetic.bias,
            shift=arithmetic.shift,
            activation=arithmetic.activation,
            wide=arithmetic.wide,
        )
        sum_power = data_power + weight_power if arithmetic.wide else None
        self._append(layer, node.outputs[0], sum_power)

    def _with_matrix(self, layer: Layer, node: Node) -> Layer:
        """Add the weights of a matrix; after a pool to one position it is a 1x1 convolution."""
        view = self._find_view(node.inputs[0])
        base = self.graph.tensors[view.base]
        values = order_linear_weights(self.graph.weights[node.inputs[1]], view.order, base.shape)
        flatten = spatial_size(base) != (1, 1)
        if not self.fusion.fuse_before(node).absorbed:
            return replace(layer, weights=pack_weights(values), flatten=flatten)
        # A layer that flattens cannot pool (the vendor's limits), and one position needs no flattening.
        weights = pack_weights(values[:, :, None, None])
        return replace(layer, operation=Operation.CONV2D, weights=weights, flatten=flatten)

    def _with_window(self, layer: Layer, node: Node) -> Layer:
        """Add the weights and the window of a convolution."""
        w, attrs = self.graph.weights[node.inputs[1]], node.attributes(ConvAttributes)
        pads = attrs.pads_before
        return replace(
            layer,
            weights=pack_weights(order_filters(w, node.op.name)),
            kernel=as_pair(w.shape[1:-1]),
            pad=(pads[0], pads[1] if len(pads) > 1 else 0),
            dilation=as_pair(attrs.dilations),
            groups=attrs.group,
        )

    def _can_activate_abs(self, tensor: str) -> bool:
        """Whether the layer that computes a tensor can give absolute values instead."""
        index = self.layer_of.get(tensor, INPUT)
        if index == INPUT or self.fusion.uses[tensor] != 1:
            return False
        layer = self.layers[index]
        return layer.weights is not None and layer.activation is LayerActivation.NONE and not layer.wide

    def _activate_abs(self, node: Node) -> None:
        """Make an Abs the activation of the layer before it."""
        index = self.layer_of[node.inputs[0]]
        self.layers[index] = replace(self.layers[index], activation=LayerActivation.ABS)
        self.tensors[index] = node.outputs[0]
        del self.layer_of[node.inputs[0]]  # the values with their signs are not in memory any more
        self.layer_of[node.outputs[0]] = index

    def _build_alone(self, node: Node) -> None:
        """Build a layer without weights, or with those of a copy where the part needs them."""
        if node.op.name in ELTWISE_OPS and not self.fusion.same_steps(node):
            self._build_rescaled_sum(node)
            return
        if node.op.name in POOL_OPS and not self.fusion.same_steps(node):
            problem = "its result counts in other steps than its data, and a pool keeps the steps"
            raise NoEquivalentError(f"{problem}; quantize both alike")
        layer = self._start_layer(node, self.fusion.fuse_separate(node), Operation.PASSTHROUGH)
        # The first generation pools several passes in a convolution only, except to a single position.
        is_wide_pool = (layer.pool is not None or layer.stride > 1) and layer.channels > PROCESSORS
        if is_wide_pool and not self.device.features.wide_pools and layer.pooled != (1, 1):
            is_line = len(self.graph.tensors[node.outputs[0]].shape) == LINE_RANK
            operation = Operation.CONV1D if is_line else Operation.CONV2D
            values = np.eye(layer.channels, dtype=np.int64).reshape(
                layer.channels, layer.channels, *((1,) if is_line else (1, 1))
            )
            layer = replace(layer, operation=operation, weights=pack_weights(values), shift=UNIT_SHIFT)
        self._append(layer, node.outputs[0])

    def _build_rescaled_sum(self, node: Node) -> None:
        """Build a sum of data in different steps as a convolution that reads the operands side by side.

        Each operand has its own power of two as weights. An element-wise operation adds bytes as they are.
        """
        output = self.graph.tensors[node.outputs[0]]
        operands = [self.graph.tensors[name] for name in node.inputs]
        exponents = [find_exponent(tensor.quant) for tensor in operands]
        powers = [power for power in exponents if power is not None]
        same_shape = all(tensor.shape == output.shape for tensor in operands)
        if len(powers) < len(operands) or not same_shape or not is_native(output):
            problem = "its operands are not of one shape and in steps of powers of two"
            raise NoEquivalentError(f"{problem}; quantize them for this target")
        finest, rank = min(powers), len(output.shape)
        shift = finest - (find_exponent(output.quant) or 0) + UNIT_SHIFT
        # A weight of 8 bits holds 2 ** 6 at most.
        if max(powers) - finest >= UNIT_SHIFT or shift not in SHIFTS:
            problem = (
                f"its operands count in steps of 2^{powers[0]} and 2^{powers[1]}, too far apart for weights"
            )
            raise NoEquivalentError(f"{problem}; choose closer scales")
        eye = np.eye(output.shape[-1], dtype=np.int64)
        signs = (1, -1 if node.op.name == "Sub" else 1)
        factors = [sign * (eye << power - finest) for sign, power in zip(signs, powers, strict=True)]
        values = np.concatenate(factors, axis=1)
        operation = {ROW_RANK: Operation.LINEAR, LINE_RANK: Operation.CONV1D}.get(rank, Operation.CONV2D)
        inputs: list[int] = []
        for name in node.inputs:
            inputs.extend(self._list_pieces(name))
        layer = Layer(
            name=node.name,
            operation=operation,
            inputs=tuple(inputs),
            channels=values.shape[1],
            dim=spatial_size(output),
            out_channels=len(eye),
            weights=pack_weights(values.reshape(*values.shape, *(1,) * (rank - 2))),
            shift=shift,
        )
        self._append(layer, node.outputs[0])

    def _start_layer(self, node: Node, fused: FusedInput, operation: Operation) -> Layer:
        """Return a layer with its inputs and what it computes before its main operation.

        Its channels, rows and columns are those of the tensor that it reads, which may be a view: the same
        words counted as other rows and columns.  A linear layer reads what its view is of, because its
        weights are put into the order of the memory (see `InputFusion.before`).
        """
        tensors = self.graph.tensors
        source = tensors[fused.tensors[0]]
        return Layer(
            name=node.name,
            operation=operation,
            inputs=self._list_operands(fused) if fused.eltwise else tuple(self._list_pieces(source.name)),
            channels=source.shape[-1],
            dim=spatial_size(source),
            out_channels=tensors[node.outputs[0]].shape[-1],
            pool=fused.pool,
            stride=fused.stride,
            eltwise=fused.eltwise,
            operands=len(fused.tensors) if fused.eltwise else 1,
            pool_first=fused.pool_first,
        )

    def _list_operands(self, fused: FusedInput) -> tuple[int, ...]:
        """List the layers that make the operands of an operation; the input alone if they are its parts."""
        producers = [self.fusion.producers.get(name) for name in fused.tensors]
        names = {node.name for node in producers if node}
        if producers[0] and producers[0].op.name == "Split" and names == {producers[0].name}:
            return (INPUT,)
        return tuple(self._find_single(name) for name in fused.tensors)

    def _find_view(self, tensor: str) -> ElementView:
        return find_view(self.graph, tensor, self.fusion.producers)

    def _find_base(self, tensor: str) -> str:
        """Return the tensor whose words a layer finds where it reads another one.

        NoEquivalentError: its channels are not those of the memory, or it is a constant.
        """
        view = self._find_view(tensor)
        if view.base in self.graph.weights:
            problem = "it reads a constant, and the hardware adds constants as the bias of a convolution only"
            raise NoEquivalentError(f"{problem}; compute it outside")
        if view.order.ndim == 0:
            raise NoEquivalentError("it is a single number without channels; keep the axes of the data")
        if not view.in_order or view.order.shape[-1] != self.graph.tensors[view.base].shape[-1]:
            problem = "its input is rearranged, and the hardware keeps rows, columns and channels"
            raise NoEquivalentError(f"{problem}; rearrange it outside")
        return view.base

    def _list_pieces(self, tensor: str) -> Iterator[int]:
        """List the layers that make a tensor's channels, one after another."""
        base = self._find_base(tensor)
        node = self.fusion.producers.get(base)
        if node is None or node.op.name != "Concat":
            yield self.layer_of[base]
            return
        axes = len(self.graph.tensors[base].shape)
        if node.attributes(AxisAttributes).axis % axes != axes - 1:
            problem = f"{node.name!r} joins its input along another axis than channels"
            raise NoEquivalentError(f"{problem}; join channels, or outside the network")
        if not self.fusion.same_steps(node):
            problem = f"what {node.name!r} joins is stored in different steps"
            raise NoEquivalentError(f"{problem}; quantize all alike")
        for name in node.inputs:
            yield from self._list_pieces(name)

    def _find_single(self, tensor: str) -> int:
        """Return the one layer that makes a tensor; joined channels are copied by a layer."""
        base = self._find_base(tensor)
        node = self.fusion.producers.get(base)
        if node and node.op.name == "Concat" and base not in self.layer_of:
            result = self.graph.tensors[base]
            pieces, channels, size = tuple(self._list_pieces(base)), result.shape[-1], spatial_size(result)
            self._append(Layer(node.name, Operation.PASSTHROUGH, pieces, channels, size, channels), base)
        return self.layer_of[base]

    def _append(self, layer: Layer, tensor: str, sum_power: int | None = None) -> None:
        """Append a layer.  sum_power: of the steps that sums of 32 bits count; None for bytes."""
        power = find_exponent(self.graph.tensors[tensor].quant) if sum_power is None else sum_power
        if power is None:
            result = f"its result is {self.graph.tensors[tensor]}"
            problem = f"{result}, and the hardware computes signed bytes in steps of a power of two"
            raise NoEquivalentError(f"{problem}; compute it outside")
        self.powers.append(power)
        self.layer_of[tensor] = len(self.layers)
        self.layers.append(layer)
        self.tensors.append(tensor)

    def _mark_output(self, name: str) -> None:
        """Mark the layer whose result, in any order, is an output of the graph."""
        base = self._find_view(name).base
        if base in self.refused:
            return
        try:
            index = self._find_single(base)
        except NoEquivalentError as error:
            self.refusals.add(f"output {name!r}", str(error))
            return
        if index == INPUT:
            self.refusals.add(f"output {name!r}", "it is the network's input; leave it out")
            return
        self.layers[index] = replace(self.layers[index], output=True)


def order_linear_weights(w: Array, order: Array, shape: tuple[int, ...]) -> Array:
    """Return weights [out, in] of a matrix [in, out], its inputs counted channels first.

    order: where each input lies in the tensor that it is a view of.  shape: of that tensor, channels last.
    """
    rows = np.zeros_like(w)
    rows[order.reshape(-1)] = w
    outputs = w.shape[1]
    by_position = rows.reshape(-1, shape[-1], outputs)  # [positions, channels, out]
    return np.asarray(by_position.transpose(2, 1, 0).reshape(outputs, -1))


def order_filters(w: Array, op: str) -> Array:
    """Return filters [out, *kernel, in] as `Weights` has them.

    That is [out, in, *kernel], and [in, out, *kernel] for a transposed convolution.
    """
    values = np.moveaxis(w, -1, 1)
    return np.swapaxes(values, 0, 1) if op == "ConvTranspose" else values
