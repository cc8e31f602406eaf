"""flatten-atrous: a convolution between space-to-batch and batch-to-space is a dilated one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from mace_core.decompositions import Steps, batch_to_space, space_to_batch
from mace_core.graph_builder import Builder
from mace_core.ir import Graph, Node, Shape
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.pad import PadAttributes
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.rewrite import Match, rewrite

SPACE_TO_BATCH = ("Pad", "Reshape", "Transpose", "Reshape")
BATCH_TO_SPACE = ("Reshape", "Transpose", "Reshape")
"""The steps of `mace_core.decompositions`; the crop that follows is for fuse-crop."""


def flatten_atrous(graph: Graph) -> Graph:
    """Turn space-to-batch, Conv, batch-to-space into Conv with dilations.

    TensorFlow writes dilated Convs so.

    Seven steps stand for it: Pad, Reshape, Transpose, Reshape are those of `space_to_batch`, without Pad
    where there is nothing to pad; Reshape, Transpose, Reshape those of `batch_to_space`; the Conv has no
    padding, strides or dilations of its own. It may have spatial axes of length 1 that the blocks have not: a
    sequence's convolution as an image's. Exact: every window sees the same elements in the same order.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    after = _match_chain(match, match.node, BATCH_TO_SPACE)
    conv = match.builder.producer(after[-1].inputs[0]) if after else None
    if (
        conv is None
        or conv.op.name != "Conv"
        or not _is_plain(conv)
        or not match.is_read_once(conv.outputs[0])
    ):
        return None
    last_before = match.builder.producer(conv.inputs[0])
    # The Pad is missing where nothing is padded.
    for steps in (SPACE_TO_BATCH, SPACE_TO_BATCH[1:]):
        before = _match_chain(match, last_before, steps) if last_before else None
        flat = _flatten(match, before, conv, after) if before and after else None
        if flat:
            return flat
    return None


def _match_chain(match: Match, node: Node, ops: Sequence[str]) -> list[Node] | None:
    """The nodes that end with this one, the last first, if they are of these ops and round nothing."""
    chain: list[Node] = []
    for op in reversed(ops):
        if chain:
            last_before = match.builder.producer(chain[-1].inputs[0])
            if last_before is None:
                return None
            node = last_before
        if node.op.name != op or _storage(match.builder, node.inputs[0]) != _storage(
            match.builder, node.outputs[0]
        ):
            return None
        chain.append(node)
    return chain


def _storage(builder: Builder, tensor: str) -> object:
    return builder.tensors[tensor].storage if tensor in builder.tensors else builder.storages.get(tensor)


def _is_plain(conv: Node) -> bool:
    attrs = conv.attributes(ConvAttributes)
    ones = {*attrs.strides, *attrs.dilations} <= {1}
    return ones and not any((*attrs.pads_before, *attrs.pads_after))


def _flatten(match: Match, before: Sequence[Node], conv: Node, after: Sequence[Node]) -> Sequence[str] | None:
    builder, source = match.builder, before[-1].inputs[0]
    shape, seen, result = (builder.shape(t) for t in (source, conv.inputs[0], conv.outputs[0]))
    pads = _read_pads(before[-1], len(shape))
    blocks = after[-1].attributes(ReshapeAttributes).shape
    rank = len(blocks) - len(shape)
    block = blocks[:rank]
    if (
        pads is None
        or not 0 < rank < len(shape) - 1
        or blocks[rank] != shape[0]
        or any(p != (0, 0) for p in (pads[0], *pads[rank + 1 :]))
    ):
        return None
    # batch_to_space crops what does not fill a block, so only whole blocks are one Conv.
    if any((n + low + high) % b for n, (low, high), b in zip(shape[1:], pads[1:], block, strict=False)):
        return None
    steps = [s for s in space_to_batch(shape, block, pads[1 : rank + 1]) if s[0] != "Pad"]
    last_step = steps[-1][1]
    assert isinstance(last_step, ReshapeAttributes)  # as `space_to_batch` ends
    places = _match_axes(last_step.shape, seen)
    inner = [node for node in reversed(before) if node.op.name != "Pad"]
    if places is None or not _are_steps(inner[:2], steps[:2]):
        return None
    narrow = tuple(result[p] for p in places)
    steps_after = batch_to_space(narrow, block, [(0, 0)] * rank)
    if prod(narrow) != prod(result) or not _are_steps([*reversed(after)][:2], steps_after[:2]):
        return None
    return _add_dilated_conv(match, conv, _Geometry(source, places, block, pads))


@dataclass(frozen=True)
class _Geometry:
    """Where the tensor is read, which of the Conv's axes its axes are, the blocks and the padding."""

    source: str
    places: Shape
    block: Shape
    pads: Sequence[tuple[int, int]]

    def per_spatial_axis(self, rank: int, values: Mapping[int, int], default: int) -> tuple[int, ...]:
        """A value for each spatial axis of the Conv from those of the tensor's axes."""
        placed = {self.places[axis]: value for axis, value in values.items()}
        return tuple(placed.get(axis, default) for axis in range(1, rank - 1))


def _read_pads(first: Node, rank: int) -> list[tuple[int, int]] | None:
    """How many zeros stand before and after each axis; None if it is padded with something else."""
    if first.op.name != "Pad":
        return [(0, 0)] * rank
    attrs = first.attributes(PadAttributes)
    if (attrs.mode, attrs.value) != ("constant", 0.0):
        return None
    return list(zip(attrs.before, attrs.after, strict=True))


def _match_axes(shape: Shape, wide: Shape) -> Shape | None:
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


def _are_steps(nodes: Sequence[Node], steps: Steps) -> bool:
    return all(
        node.op.name == op and node.attrs == attrs for node, (op, attrs) in zip(nodes, steps, strict=True)
    )


def _add_dilated_conv(match: Match, conv: Node, geometry: _Geometry) -> Sequence[str]:
    builder, rank = match.builder, len(match.builder.shape(conv.inputs[0]))
    wide = [1] * rank
    for axis, place in enumerate(geometry.places):
        wide[place] = builder.shape(geometry.source)[axis]
    spatial = range(1, len(geometry.block) + 1)
    attrs = replace(
        conv.attributes(ConvAttributes),
        dilations=geometry.per_spatial_axis(rank, dict(zip(spatial, geometry.block, strict=True)), 1),
        pads_before=geometry.per_spatial_axis(rank, {a: geometry.pads[a][0] for a in spatial}, 0),
        pads_after=geometry.per_spatial_axis(rank, {a: geometry.pads[a][1] for a in spatial}, 0),
    )
    x = (
        builder.one("Reshape", [geometry.source], ReshapeAttributes(tuple(wide)), like=conv)
        if tuple(wide) != builder.shape(geometry.source)
        else geometry.source
    )
    shape, storage = match.node.attributes(ReshapeAttributes).shape, builder.tensors[conv.outputs[0]].storage
    # The Conv may have more axes of length 1 than the result, which a Reshape then takes away.
    spec = conv.op.infer([builder.tensors[i].real if i else None for i in (x, *conv.inputs[1:])], attrs)[0]
    name = (
        match.node.outputs[0]
        if spec[1] == shape
        else builder.reserve_output(f"{match.node.outputs[0]}.dilated", storage)
    )
    outputs = builder.add(
        "Conv", [x, *conv.inputs[1:]], attrs, outputs=[name], like=match.merge_origins(conv)
    )
    return outputs if spec[1] == shape else match.emit("Reshape", outputs, ReshapeAttributes(shape))
