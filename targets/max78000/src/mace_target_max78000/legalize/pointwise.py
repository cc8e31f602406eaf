"""Rewrites operations other than convolutions and pools, exactly, to convolutions and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mace_core.ir import Attrs, Graph, Node, Quant
from mace_core.ops.arguments import integers
from mace_core.rewrite import Match, Rule
from mace_target_max78000.legalize.copies import UNIT_QUANT, copying_filters, plain_window
from mace_target_max78000.legalize.layer_fields import ELTWISE_OPS, MAIN_OPS, POOL_OPS
from mace_target_max78000.legalize.refusals import RefusedError
from mace_target_max78000.legalize.tensors import find_exponent, is_native

IMAGE_RANK = 4
"""Of images, with batch and channels."""

ROW_RANK = 2
"""Axes of data without rows and columns."""


def rewrite_pointwise(match: Match) -> Sequence[str] | None:
    """Relu, Clip, Abs, and Quantize from one step to another, as a convolution that copies."""
    node, new = match.node, match.new
    if node.op.name not in ("Relu", "Clip", "Quantize", "Identity", "Abs") or not is_native(
        new.tensors[node.inputs[0]]
    ):
        return None
    if node.op.name == "Identity":
        return [node.inputs[0]]
    if node.op.name == "Abs":
        return _rewrite_abs(match)
    low, high = 0.0 if node.op.name == "Relu" else -math.inf, math.inf
    if node.op.name == "Clip":
        low, high = float(str(node.attrs["min"])), float(str(node.attrs["max"]))
    return copy_as_layer(match, low=low, high=high)


def _rewrite_abs(match: Match) -> Sequence[str] | None:
    """An Abs over what no convolution makes for it alone gets one that copies."""
    node, new = match.node, match.new
    maker = new.producer(node.inputs[0])
    if (
        maker
        and maker.op.name in MAIN_OPS
        and match.uses.get(node.inputs[0], 1) == 1
        and maker.attrs["low"] == -math.inf
    ):
        return None
    return match.emit(
        "Abs",
        copy_as_layer(match, outputs=[new.stored(f"{node.name}.copy", new.tensors[node.inputs[0]].storage)]),
    )


def copy_as_layer(match: Match, *, outputs: Sequence[str] | None = None, **attrs: object) -> Sequence[str]:
    """The node as a layer that copies; attrs: other than plain ones."""
    node, new, shape = match.node, match.new, match.shape(0)
    names = outputs or node.outputs
    if len(shape) == 2:
        weight = new.weight(f"{node.name}.unit", np.eye(shape[-1], dtype=np.int8), UNIT_QUANT)
        return new.add("MatMul", [node.inputs[0], weight], attrs, outputs=names, like=node)
    rank = len(shape) - 2
    weight = new.weight(f"{node.name}.unit", copying_filters(shape[-1], [[0]] * rank, 1), UNIT_QUANT)
    return new.add(
        "Conv", [node.inputs[0], weight], {**plain_window((0,) * rank), **attrs}, outputs=names, like=node
    )


def absorb_bias(match: Match) -> Sequence[str] | None:
    """A constant of each channel added to sums before they are rounded is their bias."""
    node, new = match.node, match.new
    if node.op.name not in ("Add", "Sub"):
        return None
    for at in (0, 1) if node.op.name == "Add" else (1,):
        feeder, constant = match.sole_producer(1 - at, *MAIN_OPS), match.constant(at)
        if feeder is None or constant is None or len(feeder.inputs) > 2 or feeder.attrs["low"] != -math.inf:
            continue
        channels = new.shape(feeder.outputs[0])[-1]
        if constant.size in (1, channels) and constant.shape[-1:] in ((constant.size,), ()):
            values = np.broadcast_to(constant.reshape(-1), (channels,)) * (1 if node.op.name == "Add" else -1)
            return _join_nodes(
                match, feeder, [*feeder.inputs, new.weight(f"{node.name}.bias", values)], feeder.attrs
            )
    return None


def absorb_limit(match: Match) -> Sequence[str] | None:
    """Limits of sums before they are rounded are the layer's own."""
    node = match.node
    feeder = match.sole_producer(0, *MAIN_OPS) if node.op.name in ("Relu", "Clip") else None
    if feeder is None:
        return None
    low, high = (
        (0.0, math.inf)
        if node.op.name == "Relu"
        else (float(str(node.attrs["min"])), float(str(node.attrs["max"])))
    )
    inner = [float(str(feeder.attrs[key])) for key in ("low", "high")]
    return _join_nodes(
        match, feeder, feeder.inputs, {**feeder.attrs, "low": max(low, inner[0]), "high": min(high, inner[1])}
    )


def absorb_quantize(match: Match) -> Sequence[str] | None:
    """Sums, or their absolute values, that are rounded next are the layer's output."""
    node, new = match.node, match.new
    if node.op.name != "Quantize":
        return None
    feeder = match.sole_producer(0, *MAIN_OPS, "Abs")
    if feeder is None or feeder.op.name != "Abs":
        return _join_nodes(match, feeder, feeder.inputs, feeder.attrs) if feeder else None
    maker = new.producer(feeder.inputs[0])
    if (
        maker is None
        or maker.op.name not in MAIN_OPS
        or match.uses.get(feeder.inputs[0], 1) != 1
        or new.tensors[feeder.inputs[0]].quant
    ):
        return None
    name = new.stored(f"{node.outputs[0]}.signed", new.storages[node.outputs[0]])
    made = new.add(maker.op, maker.inputs, maker.attrs, outputs=[name], like=match.merge_origins(maker))
    return match.emit("Abs", made)


def _join_nodes(match: Match, feeder: Node, inputs: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    return match.new.add(
        feeder.op, inputs, attrs, outputs=match.node.outputs, like=match.merge_origins(feeder)
    )


def split_rule(kept: frozenset[str]) -> Rule:
    """Splits a tensor along any axis by one Slice for each part.  kept: names of nodes that stay."""

    def rule(match: Match) -> Sequence[str] | None:
        node = match.node
        if node.op.name != "Split" or node.name in kept:
            return None
        shape, sizes = match.shape(0), integers(node.attrs, "sizes")
        axis = int(str(node.attrs["axis"])) % len(shape)
        before, after = shape[:axis], shape[axis + 1 :]
        made = []
        for start, size, output in zip(np.cumsum((0, *sizes[:-1])), sizes, node.outputs, strict=True):
            starts = (*(0 for _ in before), int(start), *(0 for _ in after))
            attrs = {"starts": starts, "sizes": (*before, size, *after), "steps": (1,) * len(shape)}
            made.append(match.new.one("Slice", node.inputs, attrs, outputs=[output], like=node))
        return made

    return rule


def find_input_operands(graph: Graph) -> frozenset[str]:
    """Nodes that split the network's input into the operands of one element-wise operation: its layer reads them where they lie."""
    return frozenset(
        n.name
        for n in graph.nodes
        if n.op.name == "Split" and n.inputs[0] in graph.inputs and _are_all_operands(graph, n)
    )


def _are_all_operands(graph: Graph, node: Node) -> bool:
    """Whether the parts, pooled or not, are all the operands of one node, in order, and nothing else reads them."""
    readers = {i: [n for n in graph.nodes if i in n.inputs] for n in graph.nodes for i in n.inputs}
    parts = list(node.outputs)
    if all(len(readers.get(p, ())) == 1 and readers[p][0].op.name in POOL_OPS for p in parts):
        parts = [readers[p][0].outputs[0] for p in parts]
    alike = len(set(integers(node.attrs, "sizes"))) == 1 and not set(parts) & set(graph.outputs)
    return (
        alike
        and any(n.op.name in ELTWISE_OPS and list(n.inputs) == parts for n in readers.get(parts[0], ()))
        and all(len(readers.get(p, ())) == 1 for p in parts)
    )


def cap_by_negation(match: Match) -> Sequence[str] | None:
    """A limit below 127 steps as the limit of -128 steps of the negative: two copies, each of the negative, with bias between.

    x is limited to m where -x is moved by m - 128 and saturates at -128.  Bias counts two steps of data, so m
    must be even.
    """
    node, new = match.node, match.new
    tensor = new.tensors[node.inputs[0]] if node.op.name == "Clip" else None
    storage = new.storages.get(node.outputs[0])
    high = (
        float(str(node.attrs.get("high" if node.op.name in MAIN_OPS else "max", math.inf)))
        if tensor or node.op.name in MAIN_OPS
        else math.inf
    )
    if storage is None or find_exponent(storage.quant) is None or high >= 127 * storage.quant.scale[0]:
        return None
    most = high / storage.quant.scale[0]
    if most != int(most) or int(most) % 2 or most < 0 or len(new.shape(node.inputs[0])) != IMAGE_RANK:
        return None
    key = "high" if node.op.name in MAIN_OPS else "max"
    free = new.add(
        node.op,
        node.inputs,
        {**node.attrs, key: math.inf},
        outputs=[new.stored(f"{node.name}.free", storage)],
        like=node,
    )[0]
    turned = _negate(match, free, (int(most) - 128) // 2, new.stored(f"{node.name}.turned", storage))
    return [_negate(match, turned, (int(most) - 128) // 2, node.outputs[0])]


def _negate(match: Match, x: str, bias: int, output: str) -> str:
    """The negative of data plus twice a bias."""
    new, quant = match.new, match.new.tensors[x].quant
    assert quant is not None
    channels = new.shape(x)[-1]
    weight = new.weight(
        f"{x}.negative",
        copying_filters(channels, [[0]] * (len(new.shape(x)) - 2), 1) * np.int8(-64),
        Quant.of(2.0**-6),
    )
    values = np.full(channels, 128 * bias, np.int32)
    steps = new.weight(f"{x}.moved", values, Quant.of(quant.scale[0] * 2.0**-6))
    return new.one("Conv", [x, weight, steps], plain_window((0,) * (len(new.shape(x)) - 2)), outputs=[output])


def rewrite_matrix(match: Match) -> Sequence[str] | None:
    """A matrix applied at each place of a line as a convolution of length 1."""
    node, shape = match.node, match.shape(0)
    if node.op.name != "MatMul" or len(shape) != 3 or node.inputs[1] not in match.new.weights:
        return None
    w = match.new.weights[node.inputs[1]]
    if w.ndim != 2:
        return None
    weight = match.new.weight(
        f"{node.inputs[1]}.formed", w.T[:, None, :], match.new.tensors[node.inputs[1]].quant
    )
    limits = {key: node.attrs[key] for key in ("low", "high")}
    return match.emit("Conv", [node.inputs[0], weight, *node.inputs[2:]], {**plain_window((0,)), **limits})


def rewrite_padding(match: Match) -> Sequence[str] | None:
    """Zeros around data, or a part of it, as a convolution that copies."""
    node = match.node
    if node.op.name == "Pad" and node.attrs["mode"] == "constant" and node.attrs["value"] == 0:
        before, after = (integers(node.attrs, key) for key in ("before", "after"))
        if before[0] or before[-1] or after[0] or after[-1]:
            raise RefusedError("it pads channels or batches; pad rows and columns only")
        return copy_as_layer(match, pads_before=before[1:-1], pads_after=after[1:-1])
    return None


def select_channels(match: Match) -> Sequence[str] | None:
    """Some channels of a tensor as a convolution, or a matrix, that copies."""
    node = match.node
    if node.op.name != "Slice":
        return None
    shape, starts, sizes = match.shape(0), integers(node.attrs, "starts"), integers(node.attrs, "sizes")
    if starts[:-1] != (0,) * (len(shape) - 1) or sizes[:-1] != shape[:-1]:
        return None
    wanted = starts[-1] + integers(node.attrs, "steps")[-1] * np.arange(sizes[-1])
    if len(shape) == ROW_RANK:
        matrix = match.new.weight(
            f"{node.name}.unit", np.eye(shape[-1], dtype=np.int8)[:, wanted], UNIT_QUANT
        )
        return match.emit("MatMul", [node.inputs[0], matrix])
    rows = copying_filters(shape[-1], [[0]] * (len(shape) - 2), 1)[wanted]
    weight = match.new.weight(f"{node.name}.unit", rows, UNIT_QUANT)
    return match.emit("Conv", [node.inputs[0], weight], plain_window((0,) * (len(shape) - 2)))
