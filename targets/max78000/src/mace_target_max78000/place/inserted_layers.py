"""Rewrites layers so that the part can run them: combinations that it lacks become several layers.

Joined channels are cut where passes end. What the network computes stays as it is, bit for bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np

from mace_core.errors import MaceError
from mace_frontend_ai8x.network import INPUT, Layer, Operation, Weights
from mace_target_max78000.device import COPY_BITS, PER_MEMORY, PROCESSORS, UNIT_SHIFT, Chip
from mace_target_max78000.place.values import count_passes, find_readers, processors_per_pass, runs_as_image

PART_SUFFIX = re.compile(r"\[[0-9]+:[0-9]+\]$")
"""The end of the name of a layer that makes some channels of another one's."""


class LayerDraft:
    """A network that is rewritten, layer by layer."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.old = layers
        self.layers: list[Layer] = []
        self.parts: dict[int, tuple[int, ...]] = {INPUT: (INPUT,)}
        """Of each old layer the new ones that make its output, side by side."""

    def add(self, layer: Layer) -> int:
        """Append a layer whose inputs are numbers of new ones; returns its number."""
        self.layers.append(layer)
        return len(self.layers) - 1

    def sources(self, layer: Layer) -> tuple[int, ...]:
        """Return the new layers that stand for an old layer's inputs."""
        return tuple(chain.from_iterable(self.parts[source] for source in layer.inputs))


def split_unsupported(layers: Sequence[Layer], source: Layer, device: Chip) -> tuple[Layer, ...]:
    """Take apart every combination that the part lacks.  source: the network's input.

    Raises one MaceError with all layers that cannot lie anywhere.
    """
    channels = {INPUT: source.out_channels} | {i: layer.out_channels for i, layer in enumerate(layers)}
    if faults := [*_find_unjoinable(layers, channels), *_find_unshiftable(layers)]:
        raise MaceError.of(faults)
    return _cut_joined(tuple(_widen_one_bit(layer) for layer in _separate_eltwise(layers, device)), source)


def copy_layer(producer: Layer, name: str, source: int) -> Layer:
    """Return a layer that writes its input again, in the same slots.

    producer: of its input, by the number `source`.
    """
    return Layer(
        name, Operation.PASSTHROUGH, (source,), producer.out_channels, producer.out_dim, producer.out_channels
    )


def select_layer(producer: Layer, name: str, source: int, span: range) -> Layer:
    """Return a copy of some channels as a convolution, which can write to any slots."""
    values = np.eye(producer.out_channels, dtype=np.int64)[span.start : span.stop]
    flat = producer.one_dimensional
    weights = Weights(values[:, :, None] if flat else values[:, :, None, None], COPY_BITS)
    operation = Operation.CONV1D if flat else Operation.CONV2D
    return replace(
        copy_layer(producer, name, source),
        operation=operation,
        out_channels=len(span),
        weights=weights,
        shift=UNIT_SHIFT,
    )


def _separate_eltwise(layers: Sequence[Layer], device: Chip) -> tuple[Layer, ...]:
    """Put element-wise operations into layers of their own where the part cannot go on in the same layer."""
    draft = LayerDraft(layers)
    for index, layer in enumerate(layers):
        rest = replace(layer, inputs=draft.sources(layer))
        if _must_separate(layer, device):
            sole = Layer(
                f"{layer.name}/{layer.eltwise.name.lower() if layer.eltwise else 'copy'}",
                Operation.PASSTHROUGH,
                rest.inputs,
                layer.channels,
                layer.dim,
                layer.channels,
                eltwise=layer.eltwise,
                operands=layer.operands,
            )
            # A pool that comes after the operation stays with the rest of the layer.
            if layer.pool_first:  # the pool of the operands stays before the operation
                sole = replace(sole, pool=layer.pool, stride=layer.stride)
                rest = replace(rest, pool=None, stride=1, dim=layer.pooled)
            rest = replace(rest, inputs=(draft.add(sole),), eltwise=None, operands=1, pool_first=True)
        draft.parts[index] = (draft.add(rest),)
    return tuple(draft.layers)


def _widen_one_bit(layer: Layer) -> Layer:
    """Store 1-bit weights in two bits where passes of outputs would begin inside a byte.

    How weight memory continues there is not documented; in two bits every pass, a multiple of four slots,
    fills whole bytes.
    """
    weights = layer.weights
    if (
        weights is None
        or weights.bits > 1
        or count_passes(layer.out_channels) == 1
        or processors_per_pass(layer.out_channels) % 8 == 0
    ):
        return layer
    return replace(layer, weights=Weights(weights.values, COPY_BITS))


def _must_separate(layer: Layer, device: Chip) -> bool:
    """Whether an element-wise operation and what follows it are more than a layer of the part can do.

    Source: the vendor's limits of element-wise operations: none before Conv1d, few with more than 64
    channels.
    """
    passes = count_passes(layer.channels)
    # Source: the vendor's limits of element-wise operations.
    if layer.eltwise is not None and layer.operation is Operation.CONV1D:
        return True
    if layer.eltwise is None or passes == 1 or (layer.pool is not None and layer.pool_first):
        return False
    if device.features.wide_operands:
        # The second generation has no bias behind an operation of several passes.
        return layer.bias is not None and layer.operation is not Operation.PASSTHROUGH
    # Two operands in two passes are the one combination that the first generation computes itself.
    nothing_follows = layer.operation is Operation.PASSTHROUGH and layer.pool is None
    return not nothing_follows and (layer.operands, passes) != (2, 2)


def _cut_joined(layers: Sequence[Layer], source: Layer) -> tuple[Layer, ...]:
    """Cut joined inputs of more than one pass into pieces that each lie in one pass."""
    channels = {INPUT: source.out_channels} | {i: layer.out_channels for i, layer in enumerate(layers)}
    pieces = [_list_pieces(layer, channels) for layer in layers]
    users = find_readers(layers)
    draft = LayerDraft(layers)
    for index, layer in enumerate(layers):
        rewritten = replace(layer, inputs=_cut_inputs(draft, source, layer, pieces[index]))
        spans = [range(layer.out_channels)]
        # Its only reader wants it in pieces: several layers make them at once, without a copy.
        if _is_divisible(layer, users[index]):
            reader = users[index][0]
            spans = pieces[reader][layers[reader].inputs.index(index)]
        draft.parts[index] = tuple(
            draft.add(_take_part(rewritten, span) if len(spans) > 1 else rewritten) for span in spans
        )
    return tuple(draft.layers)


def _list_pieces(layer: Layer, channels: Mapping[int, int]) -> list[list[range]]:
    """List for each joined input the ranges of its channels that lie in one pass each."""
    passes, count = count_passes(layer.channels), processors_per_pass(layer.channels)
    if passes == 1 or layer.eltwise is not None or len(layer.inputs) == 1:
        return [[range(channels[source])] for source in layer.inputs]
    pieces, first = [], 0
    for source in layer.inputs:
        last = first + channels[source]
        # A processor reads one channel of each pass, so a piece may not lie in two.
        edges = [first, *range(-(-(first + 1) // count) * count, last, count), last]
        pieces.append([range(a - first, b - first) for a, b in pairwise(edges)])
        first = last
    return pieces


def _is_divisible(layer: Layer, users: Sequence[int]) -> bool:
    """Whether several layers can make its output, each some of the channels, at no cost in weights."""
    return len(users) == 1 and layer.weights is not None and layer.groups == 1 and not layer.output


def _take_part(layer: Layer, span: range) -> Layer:
    assert layer.weights is not None
    values, cut = layer.weights.values, slice(span.start, span.stop)
    part = values[:, cut] if layer.operation is Operation.CONV_TRANSPOSE2D else values[cut]
    bias = None if layer.bias is None else layer.bias[cut]
    name = f"{layer.name}[{span.start}:{span.stop}]"
    return replace(
        layer, name=name, out_channels=len(span), weights=replace(layer.weights, values=part), bias=bias
    )


def _cut_inputs(
    draft: LayerDraft, input_layer: Layer, layer: Layer, pieces: Sequence[Sequence[range]]
) -> tuple[int, ...]:
    """Return the layer's inputs in the pieces that it needs; layers that select channels are added."""
    inputs: list[int] = []
    for source, spans in zip(layer.inputs, pieces, strict=True):
        parts = draft.parts[source]
        if len(spans) == len(parts):
            inputs.extend(parts)
            continue
        producer = draft.old[source] if source != INPUT else input_layer
        inputs.extend(
            draft.add(select_layer(producer, f"{layer.name}/channels[{s.start}:{s.stop}]", parts[0], s))
            for s in spans
        )
    return tuple(inputs)


def add_visits(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Add a copy of every 8-bit result that no layer reads, except the last.

    A quadrant works only if a layer reads in it, or if the last one writes to it: the copies read where
    results lie.
    """
    users = find_readers(layers)
    draft = LayerDraft(layers)
    for index, layer in enumerate(layers):
        number = draft.add(replace(layer, inputs=draft.sources(layer)))
        draft.parts[index] = (number,)
        # A wide result cannot be read, and the last layer's quadrants work anyway.
        if not users[index] and index + 1 < len(layers) and not layer.wide:
            draft.add(copy_layer(layer, f"{layer.name}/visit", number))
    return tuple(draft.layers)


def _find_unjoinable(layers: Sequence[Layer], channels: Mapping[int, int]) -> Iterator[str]:
    """Find joined inputs that would begin inside a word: a layer writes whole words of four channels."""
    for layer in layers:
        counts = [channels[source] for source in layer.inputs]
        if layer.eltwise is not None or len(counts) == 1:
            continue
        words = sum(-(-count // PER_MEMORY) for count in counts)
        several = count_passes(layer.channels) > 1 and any(count % PER_MEMORY for count in counts[:-1])
        if several or (count_passes(layer.channels) == 1 and words > PROCESSORS // PER_MEMORY):
            parts = ", ".join(map(str, counts))
            problem = f"it joins {parts} channels, of which each part begins with a new word of four"
            yield f"layer {layer.name}: {problem}; make each part but the last a multiple of four channels"


def _find_unshiftable(layers: Sequence[Layer]) -> Iterator[str]:
    """Find dilated layers of 32-bit results.

    The words before their output that hold nothing are counted as words of bytes.
    """
    for layer in layers:
        if layer.wide and runs_as_image(layer):
            problem = "it is dilated, and its results have 32 bits"
            yield f"layer {layer.name}: {problem}; let them have 8, or use dilation 1"
