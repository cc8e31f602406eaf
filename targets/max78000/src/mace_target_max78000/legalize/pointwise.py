"""Rewrites operations other than convolutions and pools, exactly, to convolutions and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Graph, Node, Quant
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.pad import PadAttributes
from mace_core.ops.slice import SliceAttributes
from mace_core.ops.split import SplitAttributes
from mace_core.ops.unary_attrs import ClipAttributes
from mace_core.rewrite import Match, Rule
from mace_target_max78000.legalize.copies import (
    LINE_RANK,
    ROW_RANK,
    UNIT_QUANT,
    copy_as_layer,
    copying_filters,
    plain_window,
)
from mace_target_max78000.legalize.layer_fields import ELTWISE_OPS, MAIN_OPS, POOL_OPS
from mace_target_max78000.legalize.refusals import NoEquivalentError
from mace_target_max78000.legalize.tensors import find_exponent, is_native
from mace_target_max78000.legalize.window_plans import IMAGE_RANK

POINTWISE_OPS = ("Relu", "Clip", "Quantize", "Identity", "Abs")


def rewrite_pointwise(match: Match) -> Sequence[str] | None:
    """Rewrite Relu, Clip, Abs, and Quantize from one step to another, to a convolution that copies.

    The copy's shift, activation and saturation then do what the operation does.
    """
    node, builder = match.node, match.builder
    if node.op.name not in POINTWISE_OPS or not is_native(builder.tensors[node.inputs[0]]):
        return None
    if node.op.name == "Identity":
        return [node.inputs[0]]
    if node.op.name == "Abs":
        return _rewrite_abs(match)
    low, high = _read_limits(node)
    return copy_as_layer(match, low=low, high=high)


def _read_limits(node: Node) -> tuple[float, float]:
    """Return the limits of a Relu, a Clip, or another op, which has none."""
    if node.op.name == "Clip":
        clip = node.attributes(ClipAttributes)
        return float(clip.min), float(clip.max)
    return (0.0 if node.op.name == "Relu" else -math.inf), math.inf


def _rewrite_abs(match: Match) -> Sequence[str] | None:
    """Put a convolution that copies before an Abs, unless one is there whose result nothing else reads.

    The hardware takes absolute values only as the activation of a layer with weights.
    """
    node, builder = match.node, match.builder
    producer_node = builder.producer(node.inputs[0])
    is_sole_reader = match.uses.get(node.inputs[0], 1) == 1
    is_layer = producer_node is not None and producer_node.op.name in MAIN_OPS and is_sole_reader
    if producer_node and is_layer and producer_node.attributes(ClampAttributes).low == -math.inf:
        return None
    name = builder.reserve_output(f"{node.name}.copy", builder.tensors[node.inputs[0]].storage)
    return match.emit("Abs", copy_as_layer(match, outputs=[name]))


def absorb_bias(match: Match) -> Sequence[str] | None:
    """Make a constant of each channel that is added to sums, before they are rounded, their bias."""
    node, builder = match.node, match.builder
    if node.op.name not in ("Add", "Sub"):
        return None
    # A constant minus sums would need negative weights; only the subtrahend can become a bias.
    for position in (0, 1) if node.op.name == "Add" else (1,):
        feeder, constant = match.sole_producer(1 - position, *MAIN_OPS), match.constant(position)
        if feeder is None or constant is None or len(feeder.inputs) > 2:
            continue
        if feeder.attributes(ClampAttributes).low != -math.inf:
            continue
        channels = builder.shape(feeder.outputs[0])[-1]
        if constant.size in (1, channels) and constant.shape[-1:] in ((constant.size,), ()):
            sign = 1 if node.op.name == "Add" else -1
            values = np.broadcast_to(constant.reshape(-1), (channels,)) * sign
            bias = builder.weight(f"{node.name}.bias", values)
            return _join_nodes(match, feeder, [*feeder.inputs, bias], feeder.attrs)
    return None


def absorb_limit(match: Match) -> Sequence[str] | None:
    """Make limits of sums, before they are rounded, the limits of the layer itself."""
    node = match.node
    feeder = match.sole_producer(0, *MAIN_OPS) if node.op.name in ("Relu", "Clip") else None
    if feeder is None:
        return None
    low, high = _read_limits(node)
    inner = feeder.attributes(ClampAttributes)
    attrs = replace(inner, low=max(low, inner.low), high=min(high, inner.high))
    return _join_nodes(match, feeder, feeder.inputs, attrs)


def absorb_quantize(match: Match) -> Sequence[str] | None:
    """Make sums, or their absolute values, that are rounded next the rounded output of the layer."""
    node, builder = match.node, match.builder
    if node.op.name != "Quantize":
        return None
    feeder = match.sole_producer(0, *MAIN_OPS, "Abs")
    if feeder is None:
        return None
    if feeder.op.name != "Abs":
        return _join_nodes(match, feeder, feeder.inputs, feeder.attrs)
    # Rounding before Abs equals rounding after it: the hardware's activation follows its shift.
    producer_node = builder.producer(feeder.inputs[0])
    is_sole_reader = match.uses.get(feeder.inputs[0], 1) == 1
    if producer_node is None or producer_node.op.name not in MAIN_OPS or not is_sole_reader:
        return None
    if builder.tensors[feeder.inputs[0]].quant:
        return None
    name = builder.reserve_output(f"{node.outputs[0]}.signed", builder.storages[node.outputs[0]])
    signed = builder.add(
        producer_node.op,
        producer_node.inputs,
        producer_node.attrs,
        outputs=[name],
        like=match.merge_origins(producer_node),
    )
    return match.emit("Abs", signed)


def _join_nodes(match: Match, feeder: Node, inputs: Sequence[str], attrs: Attributes) -> tuple[str, ...]:
    """Replace a node and its feeder by the feeder with the node's outputs."""
    return match.builder.add(
        feeder.op, inputs, attrs, outputs=match.node.outputs, like=match.merge_origins(feeder)
    )


def split_rule(keep: frozenset[str]) -> Rule:
    """Return the rule that splits a tensor by one Slice for each part.  kept: names of nodes that stay."""

    def rewrite_split(match: Match) -> Sequence[str] | None:
        node = match.node
        if node.op.name != "Split" or node.name in keep:
            return None
        shape, split = match.shape(0), node.attributes(SplitAttributes)
        sizes, axis = split.sizes, split.axis % len(shape)
        before, after = shape[:axis], shape[axis + 1 :]
        parts = []
        for start, size, output in zip(np.cumsum((0, *sizes[:-1])), sizes, node.outputs, strict=True):
            starts = (*(0 for _ in before), int(start), *(0 for _ in after))
            attrs = SliceAttributes(starts, (*before, size, *after), (1,) * len(shape))
            parts.append(match.builder.one("Slice", node.inputs, attrs, outputs=[output], like=node))
        return parts

    return rewrite_split


def find_input_operands(graph: Graph) -> frozenset[str]:
    """Find nodes that split the network's input into the operands of one element-wise operation.

    They stay, because the layer of that operation reads its operands where they lie.
    """
    splits = (n for n in graph.nodes if n.op.name == "Split" and n.inputs[0] in graph.inputs)
    return frozenset(node.name for node in splits if _are_all_operands(graph, node))


def _are_all_operands(graph: Graph, node: Node) -> bool:
    """Whether the parts, pooled or not, are all operands of one node, in order, that nothing else reads."""
    readers: dict[str, list[Node]] = {}
    for reader in graph.nodes:
        for name in dict.fromkeys(reader.inputs):
            readers.setdefault(name, []).append(reader)

    def have_one_reader(names: Sequence[str]) -> bool:
        return all(len(readers.get(name, ())) == 1 for name in names)

    parts = list(node.outputs)
    if have_one_reader(parts) and all(readers[part_shape][0].op.name in POOL_OPS for part_shape in parts):
        parts = [readers[part_shape][0].outputs[0] for part_shape in parts]
    if len(set(node.attributes(SplitAttributes).sizes)) != 1 or set(parts) & set(graph.outputs):
        return False
    operations = (n for n in readers.get(parts[0], ()) if n.op.name in ELTWISE_OPS)
    return any(list(n.inputs) == parts for n in operations) and have_one_reader(parts)


def cap_by_negation(match: Match) -> Sequence[str] | None:
    """Replace a limit below 127 steps by two copies, each of the negative, with bias between.

    The hardware has no upper limit but saturation. So x is limited to m where -x is moved by m - 128 and
    saturates at -128. A step of bias is two steps of data with these weights, so m must be even.
    """
    node, builder = match.node, match.builder
    if node.op.name != "Clip" and node.op.name not in MAIN_OPS:
        return None
    storage, attrs = builder.storages.get(node.outputs[0]), node.attrs
    unlimited: ClipAttributes | ClampAttributes
    if isinstance(attrs, ClipAttributes):
        high, unlimited = float(attrs.max), replace(attrs, max=math.inf)
    else:
        clamp = node.attributes(ClampAttributes)
        high, unlimited = clamp.high, replace(clamp, high=math.inf)
    if storage is None or find_exponent(storage.quant) is None or high >= 127 * storage.quant.scale[0]:
        return None
    limit = high / storage.quant.scale[0]
    if limit != int(limit) or int(limit) % 2 or limit < 0 or len(builder.shape(node.inputs[0])) != IMAGE_RANK:
        return None
    name = builder.reserve_output(f"{node.name}.free", storage)
    free = builder.add(node.op, node.inputs, unlimited, outputs=[name], like=node)[0]
    bias = (int(limit) - 128) // 2
    negative = _negate(match, free, bias, builder.reserve_output(f"{node.name}.turned", storage))
    return [_negate(match, negative, bias, node.outputs[0])]


def _negate(match: Match, x: str, bias: int, output: str) -> str:
    """Add a layer that gives the negative of data plus twice a bias.

    A weight of -64 in steps of 2 ** -6 is -1; one step of bias, 128 of the accumulator, is then two of data.
    """
    builder, quant = match.builder, match.builder.tensors[x].quant
    assert quant is not None
    channels, axes = builder.shape(x)[-1], len(builder.shape(x)) - 2
    filters = copying_filters(channels, [[0]] * axes, 1) * np.int8(-64)
    weight = builder.weight(f"{x}.negative", filters, Quant.of(2.0**-6))
    values = np.full(channels, 128 * bias, np.int32)
    steps = builder.weight(f"{x}.moved", values, Quant.of(quant.scale[0] * 2.0**-6))
    return builder.one("Conv", [x, weight, steps], plain_window((0,) * axes), outputs=[output])


def rewrite_matrix(match: Match) -> Sequence[str] | None:
    """Rewrite a matrix that is applied at each place of a line to a convolution of length 1."""
    node, shape = match.node, match.shape(0)
    if node.op.name != "MatMul" or len(shape) != LINE_RANK or node.inputs[1] not in match.builder.weights:
        return None
    w = match.builder.weights[node.inputs[1]]
    if w.ndim != ROW_RANK:
        return None
    quant = match.builder.tensors[node.inputs[1]].quant
    weight = match.builder.weight(f"{node.inputs[1]}.formed", w.T[:, None, :], quant)
    clamp = node.attributes(ClampAttributes)
    limits = {"low": clamp.low, "high": clamp.high}
    return match.emit("Conv", [node.inputs[0], weight, *node.inputs[2:]], {**plain_window((0,)), **limits})


def rewrite_padding(match: Match) -> Sequence[str] | None:
    """Rewrite a Pad with zeros, or with less than nothing, to a convolution that copies."""
    node = match.node
    if node.op.name != "Pad":
        return None
    attrs = node.attributes(PadAttributes)
    if attrs.mode != "constant" or attrs.value != 0:
        return None
    before, after = attrs.before, attrs.after
    if before[0] or before[-1] or after[0] or after[-1]:
        raise NoEquivalentError("it pads channels or batches; pad rows and columns only")
    return copy_as_layer(match, pads_before=before[1:-1], pads_after=after[1:-1])


def select_channels(match: Match) -> Sequence[str] | None:
    """Rewrite a Slice of channels to a convolution, or a matrix, that copies these."""
    node, builder = match.node, match.builder
    if node.op.name != "Slice":
        return None
    shape, attrs = match.shape(0), node.attributes(SliceAttributes)
    starts, sizes = attrs.starts, attrs.sizes
    if starts[:-1] != (0,) * (len(shape) - 1) or sizes[:-1] != shape[:-1]:
        return None
    channels = starts[-1] + attrs.steps[-1] * np.arange(sizes[-1])
    if len(shape) == ROW_RANK:
        values = np.eye(shape[-1], dtype=np.int8)[:, channels]
        weight = builder.weight(f"{node.name}.unit", values, UNIT_QUANT)
        return match.emit("MatMul", [node.inputs[0], weight])
    axes = len(shape) - 2
    filters = copying_filters(shape[-1], [[0]] * axes, 1)[channels]
    weight = builder.weight(f"{node.name}.unit", filters, UNIT_QUANT)
    return match.emit("Conv", [node.inputs[0], weight], plain_window((0,) * axes))
