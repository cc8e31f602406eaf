"""Runs the stages of legalization in their order, and gives the layers of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph, Tensor
from mace_core.rewrite import Match, rewrite
from mace_target_max78000.device import PER_MEMORY, Device
from mace_target_max78000.legalize import convolutions, pointwise, pools, transposed
from mace_target_max78000.legalize.boundary import (
    TAIL_FUNCTIONS,
    InputFold,
    NetworkInput,
    cut_input,
    cut_tail,
    fold_graph_input,
    refuse_tail,
)
from mace_target_max78000.legalize.convolutions import (
    ConvolutionRewrite,
    describe_axes,
    pad_wide_line,
    share_stride,
    spread_filters,
)
from mace_target_max78000.legalize.copies import crop_by_convolution
from mace_target_max78000.legalize.layer_adjustments import align_joined_inputs, use_binary_weights
from mace_target_max78000.legalize.layer_builder import LayerBuilder
from mace_target_max78000.legalize.pools import remove_crop_before_pool
from mace_target_max78000.legalize.refusals import Refusals
from mace_target_max78000.legalize.tensors import VIEW_OPS, find_producers, find_view
from mace_target_max78000.legalize.window_plans import list_kernel_lengths, plan_fold
from mace_target_max78000.network import INPUT, Layer, Operation

MAX_NAMES = 3
"""Names that a note lists."""


@dataclass(frozen=True, eq=False)
class LegalizedGraph:
    """The layers of a graph, in order, not placed.

    tensors: for each layer the graph's tensor that it computes.  steps: for each layer the power of two that
    its output counts.
    entry: how the network's input is made.
    graph: what they were formed from, whole.
    lowered: the graph of the hardware's ops that the layers are.  made: of its tensors those in memory, with
    the number of the layer that writes each, INPUT for the network's input.
    """

    layers: tuple[Layer, ...]
    tensors: tuple[str, ...]
    steps: tuple[int, ...]
    entry: NetworkInput
    notes: tuple[str, ...]
    graph: Graph
    lowered: Graph
    made: Mapping[str, int]

    def find(self, tensor: str) -> tuple[int, Array] | None:
        """The layer that has a tensor of the lowered graph in memory, and where each element lies in its result.

        That is a flat index into [channels, rows, columns], in the shape of the tensor.  None for what is
        never in memory.
        """
        if tensor not in self.lowered.tensors:
            return None
        view = find_view(self.lowered, tensor, find_producers(self.lowered))
        if view.base not in self.made:
            return None
        base = self.lowered.tensors[view.base]
        places = np.arange(base.elements).reshape(base.shape[-1], -1).T.reshape(-1)
        return self.made[view.base], places[view.order]

    def noted(self, notes: tuple[str, ...]) -> LegalizedGraph:
        """The same with more to tell, first."""
        return replace(self, notes=(*notes, *self.notes))


def legalize_graph(graph: Graph, device: Device) -> LegalizedGraph:
    """The layers of a graph that is quantised for this target.

    The accelerator computes what the graph says, bit for bit.

    But for halves between two results, which the hardware rounds up and the graph to even, and for the
    rounding of means. MaceError with every node that has no exact equivalent on the device.
    """
    faults = Refusals()
    inner, tail = cut_tail(graph)
    refuse_tail(graph, tail, faults)
    inner, start = cut_input(inner)
    whole = inner
    refuse_shapes(inner, faults)
    faults.check()  # the rules look up channels, rows and columns by their axes
    inner, fold = rewrite_to_hardware_ops(inner, device, faults)
    faults.check()
    former = LayerBuilder(inner, device, faults)
    former.form()
    faults.check()
    if not former.layers:
        raise MaceError(graph.name, "nothing of it runs on the accelerator", "give it to another target")
    layers, places = align_joined_inputs(former.layers, faults)
    faults.check()
    if device.pipelined:
        layers = use_binary_weights(layers)
    start = replace(start, fold=fold)
    left = sorted({n.op.name for n in tail if n.op.name in TAIL_FUNCTIONS})
    notes = (
        *start.notes,
        *former.notes,
        *_note_expanded_depthwise(whole, inner, device),
        *(f"the application computes {name} of the results" for name in left),
    )
    tensors = dict(zip(places, former.tensors, strict=True))
    steps = dict(zip(places, former.steps, strict=True))
    return LegalizedGraph(
        layers,
        tuple(tensors.get(i, "") for i in range(len(layers))),
        tuple(steps.get(i, 0) for i in range(len(layers))),
        start,
        notes,
        graph,
        inner,
        {tensor: index if index == INPUT else places[index] for tensor, index in former.made.items()},
    )


def _note_expanded_depthwise(before: Graph, after: Graph, device: Device) -> Iterator[str]:
    """Tells which depthwise convolutions have become full ones, with weights of zero between channels."""
    kept = {output for node in after.nodes if node.attrs.get("group", 1) != 1 for output in node.outputs}
    depthwise = (
        n
        for n in before.nodes
        if n.op.name == "Conv" and n.attrs["group"] == before.tensors[n.inputs[0]].shape[-1] > 1
    )
    names = [node.name for node in depthwise if not kept & set(node.outputs)]
    if names:
        listed = ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
        reason = (
            "the MAX78002 computes those of kernel 3 and stride 1 directly"
            if not device.pipelined
            else "they are not of kernel 3"
        )
        told = "depthwise convolutions are computed as full ones, which takes the weights and the time of full ones"
        yield f"{len(names)} {told} ({listed}); {reason}"


EXACT_RULES = (
    pointwise.select_channels,
    pointwise.cap_by_negation,
    pools.rewrite_reduction,
    pointwise.rewrite_pointwise,
    pointwise.rewrite_matrix,
    transposed.rewrite_resize,
    transposed.rewrite_transposed,
)


def absorb_limits(graph: Graph) -> Graph:
    """The graph with bias, limits and rounding in the layers that they end, where real numbers lie between."""
    for rule in (pointwise.absorb_bias, pointwise.absorb_limit, pointwise.absorb_quantize):
        graph = rewrite(graph, rule)
    return graph


def rewrite_to_hardware_ops(graph: Graph, device: Device, faults: Refusals) -> tuple[Graph, InputFold | None]:
    """The graph with ops of the hardware only; what it cannot do is noted and left.

    Returned with how the application folds the input, if that is needed.
    """
    graph = absorb_limits(graph)
    graph = rewrite(graph, faults.noting(pointwise.split_rule(pointwise.find_input_operands(graph))))
    for rule in EXACT_RULES:
        graph = rewrite(graph, faults.noting(rule))
    graph = rewrite(graph, faults.noting(pools.pool_rule(device.pipelined)))
    graph = rewrite(graph, faults.noting(pointwise.rewrite_padding))
    graph, fold = fold_input(graph, device)
    graph = rewrite(graph, faults.noting(convolutions.convolution_rule(device)))
    graph = rewrite(
        graph, faults.noting(convolutions.convolution_rule(device))
    )  # grouped ones have become dense
    if device.pipelined:
        graph = rewrite(graph, faults.noting(pad_wide_line))
    graph = rewrite(graph, faults.noting(remove_crop_before_pool))
    return rewrite(graph, faults.noting(crop_by_convolution)), fold


def fold_input(graph: Graph, device: Device) -> tuple[Graph, InputFold | None]:
    """The graph with the input folded by the application where its first convolution could not be computed in one layer."""
    readers = [n for n in graph.nodes if graph.inputs[0] in n.inputs]
    if len(readers) != 1 or graph.inputs[0] in graph.outputs or readers[0].op.name != "Conv":
        return graph, None
    node, x = readers[0], graph.tensors[graph.inputs[0]].shape
    w = graph.weights[node.inputs[1]]
    axes = describe_axes(node, x[1:-1], w.shape[1:-1], graph.tensors[node.outputs[0]].shape[1:-1])
    alike = share_stride(axes)
    job = ConvolutionRewrite(Match(node, Builder(graph.name), {}), alike, w, device) if alike else None
    if (job and (job.is_native or job.fits)) or int(str(node.attrs["group"])) > 1:
        return graph, None
    plan = plan_fold(axes, list_kernel_lengths(len(x))[-1])
    if int(np.prod([len(f.moves) for f in plan])) * x[-1] > device.channels:
        return graph, None
    filters = spread_filters(w, [f.places for f in plan], plan[0].length, [len(f.moves) for f in plan])
    return fold_graph_input(graph, node, plan, filters)


DATA_RANKS = range(2, 5)
"""Axes of a row [1, channels], a line [1, length, channels] and an image [1, rows, columns, channels]."""


def refuse_shapes(graph: Graph, faults: Refusals) -> None:
    """Note the network's input, and every node, whose data is not one row, line or image.

    The results of views are not looked at: data that is only counted in another way may have any shape on its
    way to a node that computes.
    """
    for name in graph.inputs:
        if problem := _describe_shape_problem(graph.tensors[name]):
            faults.add(f"input {name!r}", problem)
    computed = {*graph.inputs, *(output for node in graph.nodes for output in node.outputs)}
    for node in graph.nodes:
        if node.op.name in VIEW_OPS:
            continue
        problems = (_describe_shape_problem(graph.tensors[name]) for name in node.inputs if name in computed)
        for problem in filter(None, problems):
            faults.add(f"layer {node.name!r} ({node.op.name})", problem)


def _describe_shape_problem(tensor: Tensor) -> str:
    """Return what is wrong with a shape and what to do; an empty string if nothing is."""
    shape = list(tensor.shape)
    if len(shape) not in DATA_RANKS:
        return f"its data has the shape {shape}; give it one image, line or row, [1, ..., channels] of 2 to 4 axes"
    if shape[0] != 1:
        return f"its data has a batch of {shape[0]}, and the accelerator computes one sample at a time; give the model a batch of 1"
    return ""


def split_long_bias(formed: LegalizedGraph, device: Device) -> LegalizedGraph:
    """The layers with every output layer whose bias is too long as several, one after another, each with a part of the channels."""
    parts = [list(_split_layer(layer, formed, index, device)) for index, layer in enumerate(formed.layers)]
    if all(len(p) == 1 for p in parts):
        return formed
    first = np.cumsum([0, *(len(p) for p in parts)])
    moved = (
        replace(layer, inputs=tuple(int(first[i]) if i >= 0 else i for i in layer.inputs))
        for p in parts
        for layer in p
    )
    tensors = tuple(name for name, p in zip(formed.tensors, parts, strict=True) for _ in p)
    steps = tuple(step for step, p in zip(formed.steps, parts, strict=True) for _ in p)
    made = {tensor: int(first[index]) if index >= 0 else index for tensor, index in formed.made.items()}
    return replace(formed, layers=tuple(moved), tensors=tensors, steps=steps, made=made)


def _split_layer(layer: Layer, formed: LegalizedGraph, index: int, device: Device) -> Iterator[Layer]:
    read = any(index in other.inputs for other in formed.layers)
    count = -(-layer.out_channels // device.bias_bytes)
    plain = (
        layer.groups == 1 and layer.operation is not Operation.CONV_TRANSPOSE2D and layer.weights is not None
    )
    if count == 1 or read or layer.bias is None or not np.any(layer.bias) or not plain:
        yield layer
        return
    size = -(-layer.out_channels // count)
    size = -(-size // PER_MEMORY) * PER_MEMORY
    for number, start in enumerate(range(0, layer.out_channels, size)):
        assert layer.weights is not None
        values, bias = layer.weights.values[start : start + size], layer.bias[start : start + size]
        weights = replace(layer.weights, values=values)
        yield replace(
            layer, name=f"{layer.name}.{number}", out_channels=len(values), weights=weights, bias=bias
        )
