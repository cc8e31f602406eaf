"""fuse-quantize: what lies between Dequantize and Quantize is one op over stored integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.build import Builder, Match, rewrite
from mace_core.ir import Graph, Node
from mace_core.quantization import dequantize

PRODUCTS = ("Conv", "MatMul")
"""Ops that are worth computing from integers even where their result stays in floats."""


def fuse_quantize(graph: Graph) -> Graph:
    """Let ops read what Dequantize reads and store what Quantize stores; constants that are still dequantized become floats.

    The numbers stay those of the model: exact real numbers from the stored ones, one rounding where Quantize stood.
    """
    return rewrite(rewrite(graph, _fuse), _fold)


def _fuse(match: Match) -> Sequence[str] | None:
    node = match.node
    if node.op.name == "Quantize":
        return _store(match)
    if node.op.name in PRODUCTS and all(_stored(match.new, i) for i in node.inputs[:2]):
        return match.emit(node.op, [_stored(match.new, i) or i for i in node.inputs], node.attrs)
    return None


def _store(match: Match) -> Sequence[str] | None:
    """Round where the numbers are made, and move them as integers."""
    moves = _moves(match)
    tensor = moves[-1].inputs[0] if moves else match.node.inputs[0]
    maker = _maker(match, tensor)
    if not moves and maker is None:
        return None
    storage = match.new.storages[match.node.outputs[0]]
    names = [*(match.new.stored(move.name, storage) for move in moves), match.node.outputs[0]]
    if maker:
        inputs = [_stored(match.new, i) or i for i in maker.inputs]
        made = match.new.add(maker.op, inputs, maker.attrs, outputs=[names[0]], like=match.joined(maker))
    else:
        made = match.new.add("Quantize", [tensor], outputs=[names[0]], like=match.node)
    for move, name in zip(reversed(moves), names[1:], strict=True):
        made = match.new.add(move.op, [made[0], *move.inputs[1:]], move.attrs, outputs=[name], like=move)
    return made


def _moves(match: Match) -> list[Node]:
    """The nodes before a Quantize that only move one tensor's elements, none read by anything else; the last first."""
    found: list[Node] = []
    tensor = match.node.inputs[0]
    while (node := match.new.producer(tensor)) and node.op.moves and not node.op.inputs[0].endswith("*") and len(node.outputs) == 1:
        if match.uses.get(tensor, 1) != 1 or match.new.tensors[tensor].quant or node.op.name == "Pad":
            break
        found.append(node)
        tensor = node.inputs[0]
    return found


def _maker(match: Match, tensor: str) -> Node | None:
    """The op that computes real numbers, from integers at least in part, for nothing but to be stored."""
    new = match.new
    node = new.producer(tensor)
    if node is None or len(node.outputs) != 1 or match.uses.get(tensor, 1) != 1 or new.tensors[tensor].quant:
        return None
    sources = [_stored(new, i) for i in node.inputs]
    pairs = zip(sources, node.inputs, strict=True)
    readable = all(s or not i or i in new.weights or not new.tensors[i].dtype.is_float for s, i in pairs)
    return node if any(sources) and readable and node.op.name not in ("Quantize", "Dequantize") else None


def _stored(new: Builder, tensor: str) -> str | None:
    """The stored integers whose real numbers a tensor is: what a Dequantize reads, or itself."""
    if tensor and new.tensors[tensor].quant:
        return tensor
    node = new.producer(tensor) if tensor else None
    return node.inputs[0] if node and node.op.name == "Dequantize" else None


def _fold(match: Match) -> Sequence[str] | None:
    node: Node = match.node
    source = match.new.tensors.get(node.inputs[0]) if node.inputs else None
    if node.op.name != "Dequantize" or source is None or source.name not in match.new.weights or source.quant is None:
        return None
    real = dequantize(match.new.weights[source.name], source.quant).astype(np.float32)
    return [match.new.weight(f"{source.name}.real", real)]
