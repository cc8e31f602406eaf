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
    """The op before a Quantize, over the integers before its own Dequantizes."""
    feeder = match.feeder(0)
    if feeder is None or len(feeder.outputs) != 1 or feeder.op.name in ("Quantize", "Dequantize"):
        return None
    sources = [_stored(match.new, i) for i in feeder.inputs]
    readable = all(
        s or not i or i in match.new.weights or not match.new.tensors[i].dtype.is_float for s, i in zip(sources, feeder.inputs, strict=True)
    )
    if not any(sources) or not readable or (feeder.op.moves and _changes_storage(match, sources)):
        return None
    inputs = [s or i for s, i in zip(sources, feeder.inputs, strict=True)]
    return match.new.add(feeder.op, inputs, feeder.attrs, outputs=match.node.outputs, like=match.joined(feeder))


def _changes_storage(match: Match, sources: Sequence[str | None]) -> bool:
    """Whether elements that are only moved would be rounded on the way."""
    wanted = match.new.storages.get(match.node.outputs[0])
    return any(s and match.new.tensors[s].storage != wanted for s in sources)


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
