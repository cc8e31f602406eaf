"""The sign of stored integers: 128 more in uint8 is the same number as in int8."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Node, Quant, Storage, Tensor, frozen
from mace_tflite_writer.rewrites.site import Site, rewrite_sites

OFFSET = 128
"""What uint8 stores more than int8 for the same number."""

EIGHT_BITS = (DType.I8, DType.U8)
WEIGHTED = ("Conv", "ConvTranspose", "MatMul")


def activations_to_uint8(graph: Graph) -> Graph:
    """Store activations of int8 as uint8, and weights of one scale as well.

    Exact: value + 128 with zero point + 128 is the same number. Inputs and outputs of the graph keep their
    type, behind and before a Quantize. Weights with scales along an axis stay int8, as accelerators want them
    beside uint8; the format's own kernels take uint8 weights of one scale (`weights_per_tensor`). Weights
    beside activations of other types, such as int16, stay int8 as well.
    """
    return _shift(graph, DType.I8, DType.U8, _weights_of_scales(graph) | _weights_of_others(graph))


def activations_to_int8(graph: Graph) -> Graph:
    """Store activations of uint8 as int8.

    Exact, as `activations_to_uint8` is. The graph stays as it is where weights of uint8 would get a zero
    point other than 0, which the format's kernels do not read.
    """
    for name in _weights(graph):
        tensor = graph.tensors[name]
        asymmetric = tensor.quant is not None and any(z != OFFSET for z in tensor.quant.zero_point)
        if tensor.dtype is DType.U8 and asymmetric:
            return graph
    return _shift(graph, DType.U8, DType.I8, frozenset())


def products_in_int8(graph: Graph) -> Graph:
    """Compute products of uint8 activations and int8 weights in int8, between two Quantize nodes.

    Exact, as `activations_to_uint8` is; for graphs that `activations_to_int8` leaves as they are.
    """
    return rewrite_sites(graph, _in_int8)


def _in_int8(site: Site) -> Sequence[str] | None:
    w = site.input(1)
    if site.node.op.name not in WEIGHTED or w is None or w.dtype is not DType.I8 or w.quant is None:
        return None
    # Scales along an axis have no place in the format's uint8, whatever the sign.
    tensors = (site.x, site.y)
    if any(t.dtype is not DType.U8 or t.quant is None or t.quant.axis is not None for t in tensors):
        return None
    x, y = (shift_tensor(t, DType.I8).storage for t in tensors)
    inputs = [site.inner("Quantize", [site.node.inputs[0]], storage=x), *site.node.inputs[1:]]
    return site.last("Quantize", [site.inner(site.node.op.name, inputs, site.node.attrs, y)])


def products_in_int16(graph: Graph) -> Graph:
    """Compute products of int8 whose results are int16, such as an LSTM's gates, with activations of int16.

    Exact: int16 holds each activation with the same scale and no zero point, so that the sums are the same;
    the format has no products of int8 with wider results.
    """
    widened: dict[str, str] = {}
    return rewrite_sites(graph, lambda site: _in_int16(site, widened))


def _in_int16(site: Site, widened: dict[str, str]) -> Sequence[str] | None:
    """Rewrite one product; widened: the int16 activations by those of int8, for all readers."""
    w, x, y = site.input(1), site.x, site.y
    if site.node.op.name not in WEIGHTED or w is None or w.dtype is not DType.I8 or w.quant is None:
        return None
    if (x.dtype, y.dtype) != (DType.I8, DType.I16) or x.quant is None or x.quant.axis is not None:
        return None
    # One conversion for all readers: the four gates of an LSTM multiply the same activations.
    if x.name not in widened:
        wide = Storage(DType.I16, Quant.of(x.quant.scale[0]))
        widened[x.name] = site.inner("Quantize", [x.name], storage=wide)
    return site.last(site.node.op.name, [widened[x.name], *site.node.inputs[1:]], site.node.attrs)


def _weights(graph: Graph) -> Iterable[str]:
    """Return the constants that products read as weights."""
    names = (node.inputs[1] for node in graph.nodes if node.op.name in WEIGHTED)
    return dict.fromkeys(name for name in names if name in graph.weights)


def _weights_of_scales(graph: Graph) -> frozenset[str]:
    """Return the weights that have scales along an axis."""
    quants = ((name, graph.tensors[name].quant) for name in _weights(graph))
    return frozenset(name for name, quant in quants if quant is not None and quant.axis is not None)


def _weights_of_others(graph: Graph) -> frozenset[str]:
    """Return the weights that are multiplied by activations that are no quantized integers of eight bits."""
    products = [node for node in graph.nodes if node.op.name in WEIGHTED and node.inputs[1] in graph.weights]
    activations = ((node.inputs[1], graph.tensors[node.inputs[0]]) for node in products)
    return frozenset(name for name, x in activations if x.quant is None or x.dtype not in EIGHT_BITS)


def _shift(graph: Graph, before: DType, after: DType, fixed: frozenset[str]) -> Graph:
    """Store every quantized tensor of one type, but for the fixed ones, in the other type."""
    moved = {
        name
        for name, tensor in graph.tensors.items()
        if tensor.quant and tensor.dtype is before and name not in fixed
    }
    if not moved:
        return graph
    builder = Builder(graph.name)
    builder.reserved = frozenset(graph.tensors)
    builder.states = list(graph.states)
    builder.notes = list(graph.notes)
    renamed = _add_inputs(graph, builder, moved, after)
    for name, array in graph.weights.items():
        tensor = graph.tensors[name]
        builder.tensors[name] = shift_tensor(tensor, after) if name in moved else tensor
        builder.weights[name] = frozen(shift_array(array, after)) if name in moved else array
    for node in graph.nodes:
        outputs = [graph.tensors[name] for name in node.outputs]
        results = [shift_tensor(t, after) if t.name in moved else t for t in outputs]
        inputs = tuple(renamed.get(name, name) for name in node.inputs)
        builder.keep(_with_inputs(node, inputs), results)
    restored = [_restore_output(graph, builder, name) if name in moved else name for name in graph.outputs]
    return builder.finish(restored, graph.outputs)


def _add_inputs(graph: Graph, builder: Builder, moved: set[str], after: DType) -> dict[str, str]:
    """Add the graph's inputs, each that changes with a Quantize behind it; return the names of these."""
    renamed = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        builder.input(name, tensor.dtype, tensor.shape, tensor.quant)
    for name in graph.inputs:
        if name in moved:
            storage = shift_tensor(graph.tensors[name], after).storage
            inner = builder.reserve_output(f"{name}/{after.value}", storage)
            renamed[name] = builder.one("Quantize", [name], outputs=[inner])
    return renamed


def _restore_output(graph: Graph, builder: Builder, name: str) -> str:
    """Return an output in its own type, of a tensor that has changed it."""
    # Inputs have kept their type, so that one that is an output too has it already.
    if name in graph.inputs:
        return name
    inner = builder.reserve_output(f"{name}/{graph.tensors[name].dtype.value}", graph.tensors[name].storage)
    return builder.one("Quantize", [name], outputs=[inner])


def _with_inputs(node: Node, inputs: tuple[str, ...]) -> Node:
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def shift_tensor(tensor: Tensor, after: DType) -> Tensor:
    """Return the description of a tensor of eight bits in the type of the other sign."""
    assert tensor.quant is not None
    sign = 1 if after is DType.U8 else -1
    zero_points = tuple(z + sign * OFFSET for z in tensor.quant.zero_point)
    return replace(tensor, dtype=after, quant=Quant(tensor.quant.scale, zero_points, tensor.quant.axis))


def shift_array(array: Array, after: DType) -> Array:
    """Return integers of eight bits in the type of the other sign."""
    sign = 1 if after is DType.U8 else -1
    return np.asarray((array.astype(np.int16) + sign * OFFSET).astype(after.numpy))
