"""flatten-atrous: a convolution between space-to-batch and batch-to-space is a dilated one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mace_core.decompositions import Steps, batch_to_space, space_to_batch
from mace_core.graph_builder import Builder
from mace_core.ir import Graph, Node, Shape
from mace_core.ops.arguments import integers
from mace_core.rewrite import Match, rewrite

SPACE_TO_BATCH = ("Pad", "Reshape", "Transpose", "Reshape")
BATCH_TO_SPACE = ("Reshape", "Transpose", "Reshape")
"""The steps of `mace_core.decompositions`; the crop that follows is for fuse-crop."""


def flatten_atrous(graph: Graph) -> Graph:
    """Turn space-to-batch, Conv, batch-to-space into a padded Conv with dilations.

    Seven steps stand for the two: Pad, Reshape, Transpose, Reshape are those of `space_to_batch`, without
    Pad where there is nothing to pad; Reshape, Transpose, Reshape those of `batch_to_space`; the Conv has
    no padding, strides or dilations of its own. It may have spatial axes of length 1 that the blocks have
    not: a sequence's convolution as an image's.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    after = _chain(match, match.node, BATCH_TO_SPACE)
    conv = match.new.producer(after[-1].inputs[0]) if after else None
    if conv is None or conv.op.name != "Conv" or not _plain(conv) or match.uses.get(conv.outputs[0], 1) != 1:
        return None
    maker = match.new.producer(conv.inputs[0])
    for steps in (SPACE_TO_BATCH, SPACE_TO_BATCH[1:]):
        before = _chain(match, maker, steps) if maker else None
        flat = _flattened(match, before, conv, after) if before and after else None
        if flat:
            return flat
    return None


def _chain(match: Match, node: Node, ops: Sequence[str]) -> list[Node] | None:
    """The nodes that end with this one, the last first, if they are of these ops and round nothing."""
    found: list[Node] = []
    for op in reversed(ops):
        if found:
            maker = match.new.producer(found[-1].inputs[0])
            if maker is None:
                return None
            node = maker
        if node.op.name != op or _storage(match.new, node.inputs[0]) != _storage(match.new, node.outputs[0]):
            return None
        found.append(node)
    return found


def _storage(new: Builder, tensor: str) -> object:
    return new.tensors[tensor].storage if tensor in new.tensors else new.storages.get(tensor)


def _plain(conv: Node) -> bool:
    ones = all(v == 1 for key in ("strides", "dilations") for v in integers(conv.attrs, key))
    return ones and not any(v for key in ("pads_before", "pads_after") for v in integers(conv.attrs, key))


def _flattened(
    match: Match, before: Sequence[Node], conv: Node, after: Sequence[Node]
) -> Sequence[str] | None:
    new, source = match.new, before[-1].inputs[0]
    shape, seen, made = (new.shape(t) for t in (source, conv.inputs[0], conv.outputs[0]))
    pads = _pads(before[-1], len(shape))
    blocks = integers(after[-1].attrs, "shape")
    rank = (len(blocks) - len(shape)) if len(blocks) > len(shape) else 0
    block = blocks[:rank]
    if (
        pads is None
        or not 0 < rank < len(shape) - 1
        or blocks[rank] != shape[0]
        or any(p != (0, 0) for p in (pads[0], *pads[rank + 1 :]))
    ):
        return None
    if any((n + low + high) % b for n, (low, high), b in zip(shape[1:], pads[1:], block, strict=False)):
        return None
    steps = [s for s in space_to_batch(shape, block, pads[1 : rank + 1]) if s[0] != "Pad"]
    places = _places(integers(steps[-1][1], "shape"), seen)
    inner = [node for node in reversed(before) if node.op.name != "Pad"]
    if places is None or not _same(inner[:2], steps[:2]):
        return None
    narrow = tuple(made[p] for p in places)
    whole = batch_to_space(narrow, block, [(0, 0)] * rank)
    if prod(narrow) != prod(made) or not _same([*reversed(after)][:2], whole[:2]):
        return None
    return _dilated(match, conv, _Geometry(source, places, block, pads))


@dataclass(frozen=True)
class _Geometry:
    """Where the tensor is read, which of the Conv's axes its axes are, the blocks and the padding."""

    source: str
    places: Shape
    block: Shape
    pads: Sequence[tuple[int, int]]

    def along(self, rank: int, values: Mapping[int, int], default: int) -> tuple[int, ...]:
        """A value for each spatial axis of the Conv from those of the tensor's axes."""
        placed = {self.places[axis]: value for axis, value in values.items()}
        return tuple(placed.get(axis, default) for axis in range(1, rank - 1))


def _pads(first: Node, rank: int) -> list[tuple[int, int]] | None:
    """How many zeros stand before and after each axis; None if it is padded with something else."""
    if first.op.name != "Pad":
        return [(0, 0)] * rank
    if (first.attrs["mode"], first.attrs["value"]) != ("constant", 0.0):
        return None
    return list(zip(integers(first.attrs, "before"), integers(first.attrs, "after"), strict=True))


def _places(shape: Shape, wide: Shape) -> Shape | None:
    """For each axis of a shape the axis of another, of as many elements, that has more of length 1.

    None if they differ otherwise.
    """
    spare = len(wide) - len(shape)
    if spare == 0:
        return tuple(range(len(shape))) if shape == wide else None
    for first in range(1, len(wide) - spare) if spare > 0 else ():
        if (*wide[:first], *wide[first + spare :]) == shape:
            return (*range(first), *range(first + spare, len(wide)))
    return None


def _same(nodes: Sequence[Node], steps: Steps) -> bool:
    return all(
        node.op.name == op and dict(node.attrs) == attrs
        for node, (op, attrs) in zip(nodes, steps, strict=True)
    )


def _dilated(match: Match, conv: Node, at: _Geometry) -> Sequence[str]:
    new, rank = match.new, len(match.new.shape(conv.inputs[0]))
    wide = [1] * rank
    for axis, place in enumerate(at.places):
        wide[place] = new.shape(at.source)[axis]
    spatial = range(1, len(at.block) + 1)
    attrs: dict[str, Any] = {
        **conv.attrs,
        "dilations": at.along(rank, dict(zip(spatial, at.block, strict=True)), 1),
        "pads_before": at.along(rank, {a: at.pads[a][0] for a in spatial}, 0),
        "pads_after": at.along(rank, {a: at.pads[a][1] for a in spatial}, 0),
    }
    x = (
        new.one("Reshape", [at.source], {"shape": tuple(wide)}, like=conv)
        if tuple(wide) != new.shape(at.source)
        else at.source
    )
    shape, stored = integers(match.node.attrs, "shape"), new.tensors[conv.outputs[0]].storage
    spec = conv.op.infer([new.tensors[i].real if i else None for i in (x, *conv.inputs[1:])], attrs)[0]
    name = (
        match.node.outputs[0] if spec[1] == shape else new.stored(f"{match.node.outputs[0]}.dilated", stored)
    )
    made = new.add("Conv", [x, *conv.inputs[1:]], attrs, outputs=[name], like=match.merge_origins(conv))
    return made if spec[1] == shape else match.emit("Reshape", made, {"shape": shape})
