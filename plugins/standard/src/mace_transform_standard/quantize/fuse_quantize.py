"""fuse-quantize: what lies between Dequantize and Quantize is one op over stored integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Graph, Node
from mace_core.numerics import Numerics
from mace_core.ops.pool import PoolAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_core.quantization import dequantize
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.channel_ranges import reaches_outside

STAYING = ("Identity", "Pad", "MaxPoolIndices")
"""Ops that move elements, but not those alone."""

PRODUCTS = ("Conv", "MatMul")
"""Ops that are worth computing from integers even where their result stays in floats."""


def fuse_quantize(graph: Graph) -> Graph:
    """Compute over stored integers.

    Quantize(f(Dequantize(a), Dequantize(b))) -> f(a, b), stored as Quantize does.

    A Dequantize sinks through ops that only move; a dequantized constant becomes one of floats. The numbers
    stay those of the model: exact real numbers from the stored ones, one rounding where Quantize stood.
    """
    sunk = rewrite(graph, _sink)
    # The interpreter whose rounding is asked for computes in floats what its file has in floats.
    keeps_floats = graph.numerics is Numerics.FIXED_POINT
    return rewrite(sunk if keeps_floats else rewrite(sunk, _fuse), _fold)


def _sink(match: Match) -> Sequence[str] | None:
    """Move stored integers, and let the Dequantize before come after.

    A product behind it then reads integers.
    """
    node, builder = match.node, match.builder
    if not node.op.moves or node.op.name in STAYING or any(o in builder.storages for o in node.outputs):
        return None
    # The maximum of no elements is minus infinity, for which stored integers have none.
    if isinstance(node.attrs, PoolAttributes) and reaches_outside(node.attrs):
        return None
    inputs = [_find_stored(builder, i) or i for i in node.inputs]
    tensors = [builder.tensors[i] for i in inputs if i]
    storages = {t.storage for t in tensors if t.quant or t.dtype.is_float}
    storage = tensors[0].storage
    # Only operands of one storage move as integers.
    if len(storages) != 1 or storage is None or inputs == list(node.inputs):
        return None
    if storage.quant.axis is not None:
        # Filters with a scale each come from ONNX with a Transpose: the axis of the scales moves with them.
        if node.op.name != "Transpose" or inputs[0] not in builder.weights:
            return None
        axis = node.attributes(TransposeAttributes).perm.index(storage.quant.axis)
        storage = replace(storage, quant=replace(storage.quant, axis=axis))
    names = [builder.reserve_output(f"{o}.stored", storage) for o in node.outputs]
    moved = builder.add(node.op, inputs, node.attrs, outputs=names, like=node)
    # The indices of a TopK are not stored real numbers.
    return [
        builder.one("Dequantize", [m], outputs=[o], like=node) if builder.tensors[m].quant else m
        for m, o in zip(moved, node.outputs, strict=True)
    ]


def _fuse(match: Match) -> Sequence[str] | None:
    node = match.node
    if node.op.name == "Quantize":
        return _store(match)
    if node.op.name in PRODUCTS and all(_find_stored(match.builder, i) for i in node.inputs[:2]):
        return match.emit(node.op, [_find_stored(match.builder, i) or i for i in node.inputs], node.attrs)
    return None


def _store(match: Match) -> Sequence[str] | None:
    """Round where the numbers are made, and move them as integers.

    What is stored already is at most rounded to another storage.
    """
    storage = match.builder.storages.get(match.node.outputs[0])
    if storage is None:
        return None  # a Quantize to floats
    source = _find_stored(match.builder, match.node.inputs[0])
    if source and match.builder.tensors[source].storage == storage:
        return [source]
    if source:
        return match.emit("Quantize", [source])
    # Scales along an axis would have to lie along another one before a move.
    moves = [] if storage.has_axis else _find_moves(match)
    tensor = moves[-1].inputs[0] if moves else match.node.inputs[0]
    real_op = _find_real_op(match, tensor)
    if not moves and real_op is None:
        return None
    names = [*(match.builder.reserve_output(move.name, storage) for move in moves), match.node.outputs[0]]
    if real_op:
        inputs = [_find_stored(match.builder, i) or i for i in real_op.inputs]
        outputs = match.builder.add(
            real_op.op, inputs, real_op.attrs, outputs=[names[0]], like=match.merge_origins(real_op)
        )
    else:
        outputs = match.builder.add("Quantize", [tensor], outputs=[names[0]], like=match.node)
    for move, name in zip(reversed(moves), names[1:], strict=True):
        outputs = match.builder.add(
            move.op, [outputs[0], *move.inputs[1:]], move.attrs, outputs=[name], like=move
        )
    return outputs


def _find_moves(match: Match) -> list[Node]:
    """The nodes before a Quantize that only move one tensor's elements, none read by anything else.

    The last first.
    """
    moves: list[Node] = []
    tensor = match.node.inputs[0]
    while (
        (node := match.builder.producer(tensor))
        and node.op.moves
        and not node.op.inputs[0].endswith("*")
        and len(node.outputs) == 1
    ):
        if not match.is_read_once(tensor) or match.builder.tensors[tensor].quant or node.op.name == "Pad":
            break
        moves.append(node)
        tensor = node.inputs[0]
    return moves


def _find_real_op(match: Match, tensor: str) -> Node | None:
    """The op that computes real numbers, from integers at least in part, for nothing but to be stored."""
    builder = match.builder
    node = builder.producer(tensor)
    if (
        node is None
        or len(node.outputs) != 1
        or not match.is_read_once(tensor)
        or builder.tensors[tensor].quant
    ):
        return None
    sources = [_find_stored(builder, i) for i in node.inputs]
    pairs = zip(sources, node.inputs, strict=True)
    readable = all(
        s or not i or i in builder.weights or not builder.tensors[i].dtype.is_float for s, i in pairs
    )
    # At least one operand is stored as integers: else the Quantize would gain nothing.
    return node if any(sources) and readable and node.op.name not in ("Quantize", "Dequantize") else None


def _find_stored(builder: Builder, tensor: str) -> str | None:
    """The stored integers whose real numbers a tensor is: what a Dequantize reads, or itself."""
    if tensor and builder.tensors[tensor].quant:
        return tensor
    node = builder.producer(tensor) if tensor else None
    return node.inputs[0] if node and node.op.name == "Dequantize" else None


def _fold(match: Match) -> Sequence[str] | None:
    node: Node = match.node
    source = match.builder.tensors.get(node.inputs[0]) if node.inputs else None
    if (
        node.op.name != "Dequantize"
        or source is None
        or source.name not in match.builder.weights
        or source.quant is None
    ):
        return None
    real = dequantize(match.builder.weights[source.name], source.quant).astype(np.float32)
    return [match.builder.weight(f"{source.name}.real", real)]
