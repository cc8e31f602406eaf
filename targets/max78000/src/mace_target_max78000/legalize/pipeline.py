"""Runs the stages of legalization in their order, and gives the layers of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph, Node, Tensor
from mace_core.ops.conv import ConvAttributes
from mace_core.rewrite import Match, rewrite
from mace_frontend_ai8x.network import INPUT, Layer, Operation
from mace_target_max78000.device import PER_MEMORY, Chip
from mace_target_max78000.legalize import convolutions, pointwise, resampling
from mace_target_max78000.legalize.boundary import (
    TAIL_FUNCTIONS,
    InputFold,
    NetworkInput,
    cut_input,
    cut_tail,
    fold_graph_input,
    refuse_tail,
)
from mace_target_max78000.legalize.copies import crop_by_convolution
from mace_target_max78000.legalize.layer_adjustments import align_joined_inputs, use_binary_weights
from mace_target_max78000.legalize.layer_builder import LayerBuilder
from mace_target_max78000.legalize.refusals import Refusals
from mace_target_max78000.legalize.tensors import VIEW_OPS, find_producers, find_view
from mace_target_max78000.legalize.window_plans import list_kernel_lengths, plan_fold
from mace_target_max78000.wording import format_count

MAX_NAMES = 3
"""Names that a note lists."""

DATA_RANKS = range(2, 5)
"""Axes of a row [1, channels], a line [1, length, channels] and an image [1, rows, columns, channels]."""

ABSORBING_RULES = (pointwise.absorb_bias, pointwise.absorb_limit, pointwise.absorb_quantize)
"""The hardware adds bias, limits and rounds in this order, so they join their layer in this order."""

POINTWISE_RULES = (
    pointwise.select_channels,
    # Before Clip becomes a copy with an activation, which has no upper limit.
    pointwise.cap_by_negation,
    resampling.rewrite_reduction,
    pointwise.rewrite_pointwise,
    pointwise.rewrite_matrix,
    # Before transposed convolutions, because it makes one.
    resampling.rewrite_resize,
    resampling.rewrite_transposed,
)


@dataclass(frozen=True, eq=False)
class LegalizedGraph:
    """The layers of a graph, in order, without places.

    tensors: for each layer the graph's tensor that it computes; empty for a layer that was inserted.
    powers: for each layer the power of two whose steps its output counts.
    network_input: how the network's input is made.  notes: what the user should know.
    graph: the whole graph that the layers were made of.
    hardware_graph: its part that runs on the accelerator, rewritten to operations of the hardware.
    layer_of: for each of that graph's tensors in data memory the layer that writes it; INPUT for the
    network's input.
    """

    layers: tuple[Layer, ...]
    tensors: tuple[str, ...]
    powers: tuple[int, ...]
    network_input: NetworkInput
    notes: tuple[str, ...]
    graph: Graph
    hardware_graph: Graph
    layer_of: Mapping[str, int]

    def find(self, tensor: str) -> tuple[int, Array] | None:
        """Find the layer that has a tensor in memory, and where each element lies in its result.

        That is a flat index into [channels, rows, columns], in the shape of the tensor.  None for what is
        never in memory.
        """
        if tensor not in self.hardware_graph.tensors:
            return None
        view = find_view(self.hardware_graph, tensor, find_producers(self.hardware_graph))
        if view.base not in self.layer_of:
            return None
        base = self.hardware_graph.tensors[view.base]
        # The graph's channels come last, those of a layer's result first.
        positions = np.arange(base.elements).reshape(base.shape[-1], -1).T.reshape(-1)
        return self.layer_of[view.base], positions[view.order]

    def with_notes(self, notes: tuple[str, ...]) -> LegalizedGraph:
        """Return the same with more notes, first."""
        return replace(self, notes=(*notes, *self.notes))


def legalize_graph(graph: Graph, device: Chip) -> LegalizedGraph:
    """Return the layers of a graph that is quantized for this target.

    The accelerator computes what the graph says, bit for bit, except for halves between two results, which
    the hardware rounds up and the graph to even, and for the rounding of means.
    MaceError with every node that has no exact equivalent on the device.
    """
    refusals = Refusals()
    inner, tail = cut_tail(graph)
    refuse_tail(graph, tail, refusals)
    inner, network_input = cut_input(inner)
    refuse_shapes(inner, refusals)
    refusals.check()  # the rules find channels, rows and columns by the number of an axis
    hardware_graph, fold = rewrite_to_hardware_ops(inner, device, refusals)
    refusals.check()
    builder = LayerBuilder(hardware_graph, device, refusals)
    builder.build()
    refusals.check()
    if not builder.layers:
        raise MaceError(graph.name, "nothing of it runs on the accelerator", "give it to another target")
    layers, numbers = align_joined_inputs(builder.layers, refusals)
    refusals.check()
    if device.features.binary_weights:
        layers = use_binary_weights(layers)
    network_input = replace(network_input, fold=fold)
    functions = sorted({node.op.name for node in tail if node.op.name in TAIL_FUNCTIONS})
    notes = (
        *network_input.notes,
        *builder.notes,
        *_note_dense_depthwise(inner, hardware_graph, device),
        *(f"the application computes {name} of the results" for name in functions),
    )
    tensors = dict(zip(numbers, builder.tensors, strict=True))
    powers = dict(zip(numbers, builder.powers, strict=True))
    layer_of = {t: i if i == INPUT else numbers[i] for t, i in builder.layer_of.items()}
    return LegalizedGraph(
        layers=layers,
        tensors=tuple(tensors.get(i, "") for i in range(len(layers))),
        powers=tuple(powers.get(i, 0) for i in range(len(layers))),
        network_input=network_input,
        notes=notes,
        graph=graph,
        hardware_graph=hardware_graph,
        layer_of=layer_of,
    )


def refuse_shapes(graph: Graph, refusals: Refusals) -> None:
    """Record the network's input, and every node, whose data is not one row, line or image.

    The results of views are not looked at: data that is only counted in another way may have any shape on its
    way to a node that computes.
    """
    for name in graph.inputs:
        if problem := _describe_shape_problem(graph.tensors[name]):
            refusals.add(f"input {name!r}", problem)
    computed = {*graph.inputs, *find_producers(graph)}
    for node in graph.nodes:
        if node.op.name in VIEW_OPS:
            continue
        for name in node.inputs:
            if name in computed and (problem := _describe_shape_problem(graph.tensors[name])):
                refusals.add_node(node, problem)


def _describe_shape_problem(tensor: Tensor) -> str:
    """Return what is wrong with a shape and what to do; an empty string if nothing is."""
    shape = list(tensor.shape)
    if len(shape) not in DATA_RANKS:
        remedy = "give it one image, line or row, [1, ..., channels] of 2 to 4 axes"
        return f"its data has the shape {shape}; {remedy}"
    if shape[0] != 1:
        problem = f"its data has a batch of {shape[0]}, and the accelerator computes one sample at a time"
        return f"{problem}; give the model a batch of 1"
    return ""


def absorb_limits(graph: Graph) -> Graph:
    """Join bias, limits and rounding to the layers that they end, where real numbers lie between."""
    for rule in ABSORBING_RULES:
        graph = rewrite(graph, rule)
    return graph


def rewrite_to_hardware_ops(graph: Graph, device: Chip, refusals: Refusals) -> tuple[Graph, InputFold | None]:
    """Rewrite a graph to operations of the hardware; what it cannot do is recorded and left.

    Returned with how the application folds the input, if that is needed.
    """
    graph = absorb_limits(graph)
    graph = rewrite(graph, refusals.collect(pointwise.split_rule(pointwise.find_input_operands(graph))))
    for rule in POINTWISE_RULES:
        graph = rewrite(graph, refusals.collect(rule))
    graph = rewrite(graph, refusals.collect(resampling.pool_rule(device.features.dilated_pools)))
    # Pools with padding have made Pad nodes.
    graph = rewrite(graph, refusals.collect(pointwise.rewrite_padding))
    # Before the convolutions are rewritten: a fold saves all the copies of the first one.
    graph, fold = fold_input(graph, device)
    graph = rewrite(graph, refusals.collect(convolutions.convolution_rule(device)))
    # The first time grouped convolutions become dense, of kernels that the hardware may lack.
    graph = rewrite(graph, refusals.collect(convolutions.convolution_rule(device)))
    if not device.features.wide_padded_conv1d:
        graph = rewrite(graph, refusals.collect(convolutions.pad_wide_line))
    # Crops come last, because convolutions make them; a pool that follows one may make it needless.
    graph = rewrite(graph, refusals.collect(resampling.remove_crop_before_pool))
    return rewrite(graph, refusals.collect(crop_by_convolution)), fold


def fold_input(graph: Graph, device: Chip) -> tuple[Graph, InputFold | None]:
    """Let the application fold the input, where the first convolution could not be computed in one layer."""
    readers = [node for node in graph.nodes if graph.inputs[0] in node.inputs]
    if len(readers) != 1 or graph.inputs[0] in graph.outputs or readers[0].op.name != "Conv":
        return graph, None
    node, shape = readers[0], graph.tensors[graph.inputs[0]].shape
    if node.attributes(ConvAttributes).group > 1:
        return graph, None
    w, results = graph.weights[node.inputs[1]], graph.tensors[node.outputs[0]].shape[1:-1]
    axes = convolutions.describe_axes(node, shape[1:-1], w.shape[1:-1], results)
    common = convolutions.share_stride(axes)
    if common:
        match = Match(node, Builder(graph.name), {})
        single = convolutions.ConvolutionRewrite(match, common, w, device)
        if single.is_native or single.fits:
            return graph, None
    plan = plan_fold(axes, list_kernel_lengths(len(shape))[-1])
    copies = [len(axis.moves) for axis in plan]
    if prod(copies) * shape[-1] > device.channels:
        return graph, None
    filters = convolutions.spread_filters(w, [axis.places for axis in plan], plan[0].length, copies)
    return fold_graph_input(graph, node, plan, filters)


def _note_dense_depthwise(before: Graph, after: Graph, device: Chip) -> Iterator[str]:
    """Note which depthwise convolutions have become dense ones, with weights of zero between channels."""
    grouped: set[str] = set()
    for node in after.nodes:
        if isinstance(node.attrs, ConvAttributes) and node.attrs.group != 1:
            grouped.update(node.outputs)
    names = [node.name for node in _list_depthwise(before) if not grouped & set(node.outputs)]
    if not names:
        return
    listed = ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
    cost = "computed densely, which takes the weights and the time of a dense convolution"
    reason = "its kernel is not 3" if len(names) == 1 else "their kernels are not 3"
    if not device.features.depthwise:
        reason = "the MAX78002 computes those of kernel 3 and stride 1 directly"
    verb = "is" if len(names) == 1 else "are"
    yield f"{format_count(len(names), 'depthwise convolution')} {verb} {cost} ({listed}); {reason}"


def _list_depthwise(graph: Graph) -> list[Node]:
    """List the convolutions with a kernel for each of several channels."""
    convs = (node for node in graph.nodes if node.op.name == "Conv")
    channels = ((node, graph.tensors[node.inputs[0]].shape[-1]) for node in convs)
    return [node for node, count in channels if node.attributes(ConvAttributes).group == count > 1]


def split_long_bias(legalized: LegalizedGraph, device: Chip) -> LegalizedGraph:
    """Split each output layer whose bias is too long for a bias memory into several.

    Each makes a part of the channels. Results of a network may as well be those of several layers; the
    outputs of a layer that is read may not, because joined inputs must begin with whole words.
    """
    read: set[int] = set()
    for layer in legalized.layers:
        read.update(layer.inputs)
    parts = [
        [layer] if index in read else _split_layer(layer, device)
        for index, layer in enumerate(legalized.layers)
    ]
    counts = [len(part) for part in parts]
    if set(counts) == {1}:
        return legalized
    first = [int(number) for number in np.cumsum([0, *counts])]

    def renumber(index: int) -> int:
        return first[index] if index >= 0 else index

    layers: list[Layer] = []
    for part in parts:
        layers += (replace(layer, inputs=tuple(map(renumber, layer.inputs))) for layer in part)
    return replace(
        legalized,
        layers=tuple(layers),
        tensors=tuple(np.repeat(np.array(legalized.tensors, object), counts).tolist()),
        powers=tuple(np.repeat(legalized.powers, counts).tolist()),
        layer_of={tensor: renumber(index) for tensor, index in legalized.layer_of.items()},
    )


def _split_layer(layer: Layer, device: Chip) -> Sequence[Layer]:
    """Return a layer in parts whose bias fits one memory; the layer itself where that is not needed."""
    count = -(-layer.out_channels // device.bias_bytes)
    if count == 1 or layer.bias is None or not np.any(layer.bias) or layer.weights is None:
        return [layer]
    if layer.groups > 1 or layer.operation is Operation.CONV_TRANSPOSE2D:
        return [layer]
    size = -(-layer.out_channels // count)
    size = -(-size // PER_MEMORY) * PER_MEMORY  # whole words of four channels
    parts = []
    for number, start in enumerate(range(0, layer.out_channels, size)):
        values, bias = layer.weights.values[start : start + size], layer.bias[start : start + size]
        weights = replace(layer.weights, values=values)
        name = f"{layer.name}.{number}"
        parts.append(replace(layer, name=name, out_channels=len(values), weights=weights, bias=bias))
    return parts
