"""Adjusts finished layers: aligns joined inputs to words, and stores weights of -1 and +1 in one bit.

Four channels share a word of data memory, and a layer writes whole words. So an input that is joined to
another one gets channels of zeros at its end: weights of zero make them, and weights of zero read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mace_core.ir import Array
from mace_target_max78000.device import PER_MEMORY
from mace_target_max78000.legalize.refusals import Refusals
from mace_target_max78000.network import INPUT, Layer, Operation, Weights

UNIT_SHIFT = 7
"""What makes a sum of weight 1 its input again."""


def align_joined_inputs(
    layers: Sequence[Layer], faults: Refusals
) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """The layers with joined inputs of whole words, and which of them each layer given has become."""
    new: list[Layer] = []
    now: list[int] = []
    readers = Counter(i for layer in layers for i in layer.inputs)
    for layer in layers:
        whole = replace(layer, inputs=tuple(i if i == INPUT else now[i] for i in layer.inputs))
        if len(layer.inputs) > 1 and layer.eltwise is None:
            sole = {now[i] for i in layer.inputs if i != INPUT and readers[i] == 1 and not layers[i].output}
            whole = _align_inputs(whole, (new, sole), faults)
        now.append(len(new))
        new.append(whole)
    return tuple(new), tuple(now)


def _align_inputs(layer: Layer, before: tuple[list[Layer], set[int]], faults: Refusals) -> Layer:
    """A layer whose inputs fill their words.  before: the layers so far, and which of them it alone reads."""
    new, sole = before
    known = {i: new[i].out_channels for i in layer.inputs if i != INPUT}
    own = (layer.channels - sum(known[i] for i in layer.inputs if i != INPUT)) // max(
        layer.inputs.count(INPUT), 1
    )
    channels = [known.get(i, own) for i in layer.inputs]
    if not any(count % PER_MEMORY for count in channels[:-1]):
        return layer
    if layer.weights is None or layer.groups > 1:
        faults.add(
            f"layer {layer.name!r}",
            f"it joins {channels} channels; all but the last must be multiples of {PER_MEMORY}",
        )
        return layer
    wide = [-(-count // PER_MEMORY) * PER_MEMORY for count in channels[:-1]] + channels[-1:]
    inputs = []
    for source, narrow, count in zip(layer.inputs, channels, wide, strict=True):
        if narrow != count and source in sole and _can_grow(new[source]):
            new[source] = _grow(new[source], count)
        elif narrow != count:
            source = _add_wide_copy(layer, source, (narrow, count), new)
        inputs.append(source)
    values = _spread_weights(layer, channels, wide)
    return replace(
        layer, inputs=tuple(inputs), channels=sum(wide), weights=replace(layer.weights, values=values)
    )


def _can_grow(layer: Layer) -> bool:
    """Whether a layer can make channels of zeros itself."""
    return layer.weights is not None and layer.groups == 1 and not layer.weights.binary


def _grow(layer: Layer, channels: int) -> Layer:
    """A layer that makes channels of zeros behind its own."""
    assert layer.weights is not None
    axis, more = int(layer.operation is Operation.CONV_TRANSPOSE2D), channels - layer.out_channels
    values = layer.weights.values
    widths = [(0, more if a == axis else 0) for a in range(values.ndim)]
    bias = None if layer.bias is None else np.pad(layer.bias, (0, more))
    return replace(
        layer, out_channels=channels, weights=replace(layer.weights, values=np.pad(values, widths)), bias=bias
    )


def _add_wide_copy(layer: Layer, source: int, sizes: Sequence[int], new: list[Layer]) -> int:
    """A copy of an input with channels of zeros behind its own.  sizes: channels of both."""
    narrow, wide = sizes
    values = np.eye(wide, narrow, dtype=np.int64).reshape(
        wide, narrow, *(1,) * (1 if layer.one_dimensional else 2)
    )
    operation = Operation.CONV1D if layer.one_dimensional else Operation.CONV2D
    name = f"{layer.name}/words of {source}"
    new.append(
        Layer(
            name, operation, (source,), narrow, layer.dim, wide, weights=Weights(values, 2), shift=UNIT_SHIFT
        )
    )
    return len(new) - 1


def _spread_weights(layer: Layer, channels: Sequence[int], wide: Sequence[int]) -> Array:
    """Weights with zeros for the channels that were added."""
    assert layer.weights is not None
    axis = 0 if layer.operation is Operation.CONV_TRANSPOSE2D else 1
    places = np.concatenate(
        [first + np.arange(n) for first, n in zip(np.cumsum([0, *wide[:-1]]), channels, strict=True)]
    )
    values = np.moveaxis(layer.weights.values, axis, 0).reshape(
        layer.channels, -1, *layer.weights.values.shape[2:]
    )
    if layer.operation is Operation.LINEAR:
        values = layer.weights.values.reshape(layer.out_channels, layer.channels, -1).swapaxes(0, 1)
    whole = np.zeros((sum(wide), *values.shape[1:]), np.int64)
    whole[places] = values
    if layer.operation is Operation.LINEAR:
        return whole.swapaxes(0, 1).reshape(layer.out_channels, -1)
    return np.asarray(np.moveaxis(whole, 0, axis))


def use_binary_weights(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers, those with weights of -1 and +1 only in one bit each."""
    if any(layer.weights is not None and layer.weights.bits == 1 for layer in layers):
        return tuple(layers)
    return tuple(
        replace(layer, weights=_as_binary(layer.weights)) if layer.weights is not None else layer
        for layer in layers
    )


def _as_binary(weights: Weights) -> Weights:
    return Weights(weights.values, 1, True) if bool(np.all(np.abs(weights.values) == 1)) else weights
