"""Adjusts finished layers: aligns joined inputs to words, and stores weights of -1 and +1 in one bit.

Four channels share a word of data memory, and a layer writes whole words. So an input that is joined to
another one gets channels of zeros at its end: weights of zero make them, and weights of zero read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from mace_core.ir import Array
from mace_frontend_ai8x.network import INPUT, Layer, Operation, Weights
from mace_target_max78000.device import COPY_BITS, PER_MEMORY, UNIT_SHIFT
from mace_target_max78000.legalize.refusals import Refusals


def align_joined_inputs(
    layers: Sequence[Layer], refusals: Refusals
) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """Return the layers with joined inputs of whole words, and the new number of each layer given."""
    aligner = _Aligner(layers, refusals)
    for index in range(len(layers)):
        aligner.add(index)
    return tuple(aligner.layers), tuple(aligner.numbers)


class _Aligner:
    """Renumbers layers one by one and inserts copies.

    layers: those done so far.  numbers: of each old layer the new one.
    """

    def __init__(self, old: Sequence[Layer], refusals: Refusals) -> None:
        self.old, self.refusals = old, refusals
        self.layers: list[Layer] = []
        self.numbers: list[int] = []
        self.read_counts = Counter(chain.from_iterable(layer.inputs for layer in old))

    def add(self, index: int) -> None:
        """Append an old layer, before it the copies that it needs."""
        layer = self.old[index]
        inputs = tuple(i if i == INPUT else self.numbers[i] for i in layer.inputs)
        renumbered = replace(layer, inputs=inputs)
        if len(layer.inputs) > 1 and layer.eltwise is None:
            # Only a layer that nothing else reads, and that is no result, can make more channels.
            sole = (i for i in layer.inputs if i != INPUT and self.read_counts[i] == 1)
            growable = {self.numbers[i] for i in sole if not self.old[i].output}
            renumbered = self._align(renumbered, growable)
        self.numbers.append(len(self.layers))
        self.layers.append(renumbered)

    def _align(self, layer: Layer, growable: set[int]) -> Layer:
        """Return a layer whose inputs fill their words.  growable: layers that may make more channels."""
        channels = self._input_channels(layer)
        # The last input may end inside a word, because nothing follows it.
        if not any(count % PER_MEMORY for count in channels[:-1]):
            return layer
        if layer.weights is None or layer.groups > 1:
            problem = f"it joins inputs of {channels} channels and has no weights for further ones"
            remedy = f"make all but the last multiples of {PER_MEMORY}"
            self.refusals.add(f"layer {layer.name!r}", f"{problem}; {remedy}")
            return layer
        aligned = [-(-count // PER_MEMORY) * PER_MEMORY for count in channels[:-1]] + channels[-1:]
        inputs = []
        for source, before, after in zip(layer.inputs, channels, aligned, strict=True):
            if before == after:
                inputs.append(source)
            elif source in growable and _can_grow(self.layers[source]):
                self.layers[source] = _grow(self.layers[source], after)
                inputs.append(source)
            else:
                self.layers.append(_make_wide_copy(layer, source, before, after))
                inputs.append(len(self.layers) - 1)
        weights = replace(layer.weights, values=_spread_weights(layer, channels, aligned))
        return replace(layer, inputs=tuple(inputs), channels=sum(aligned), weights=weights)

    def _input_channels(self, layer: Layer) -> list[int]:
        """Return the channels of each input; what no layer makes is the network's input."""
        known = {i: self.layers[i].out_channels for i in layer.inputs if i != INPUT}
        rest = layer.channels - sum(known[i] for i in layer.inputs if i != INPUT)
        from_input = rest // max(layer.inputs.count(INPUT), 1)
        return [known.get(i, from_input) for i in layer.inputs]


def _can_grow(layer: Layer) -> bool:
    """Whether a layer can make channels of zeros itself; weights of -1 and +1 cannot be zero."""
    return layer.weights is not None and layer.groups == 1 and not layer.weights.binary


def _grow(layer: Layer, channels: int) -> Layer:
    """Return a layer that makes channels of zeros behind its own."""
    assert layer.weights is not None
    axis, added = int(layer.operation is Operation.CONV_TRANSPOSE2D), channels - layer.out_channels
    values = layer.weights.values
    widths = [(0, added if a == axis else 0) for a in range(values.ndim)]
    bias = None if layer.bias is None else np.pad(layer.bias, (0, added))
    weights = replace(layer.weights, values=np.pad(values, widths))
    return replace(layer, out_channels=channels, weights=weights, bias=bias)


def _make_wide_copy(layer: Layer, source: int, before: int, after: int) -> Layer:
    """Return a layer that copies an input, with channels of zeros behind its own."""
    spatial = (1,) if layer.one_dimensional else (1, 1)
    values = np.eye(after, before, dtype=np.int64).reshape(after, before, *spatial)
    operation = Operation.CONV1D if layer.one_dimensional else Operation.CONV2D
    name, weights = f"{layer.name}/words of {source}", Weights(values, COPY_BITS)
    return Layer(name, operation, (source,), before, layer.dim, after, weights=weights, shift=UNIT_SHIFT)


def _spread_weights(layer: Layer, channels: Sequence[int], aligned: Sequence[int]) -> Array:
    """Return weights with zeros for the channels that were added."""
    assert layer.weights is not None
    firsts = np.cumsum([0, *aligned[:-1]])
    places = np.concatenate([first + np.arange(n) for first, n in zip(firsts, channels, strict=True)])
    values = layer.weights.values
    if layer.operation is Operation.LINEAR:
        # Its inputs count channels, then positions.
        by_channel = values.reshape(layer.out_channels, layer.channels, -1)
        spread = np.zeros((layer.out_channels, sum(aligned), by_channel.shape[2]), np.int64)
        spread[:, places] = by_channel
        return spread.reshape(layer.out_channels, -1)
    axis = 0 if layer.operation is Operation.CONV_TRANSPOSE2D else 1
    shape = list(values.shape)
    shape[axis] = sum(aligned)
    spread = np.zeros(shape, np.int64)
    np.moveaxis(spread, axis, 0)[places] = np.moveaxis(values, axis, 0)
    return spread


def use_binary_weights(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Store weights of -1 and +1 only in one bit each, which the second generation can.

    One bit of the accelerator's control register says what one-bit weights mean, for all layers together. So
    nothing changes in a network that has one-bit weights of -1 and 0.
    """
    if any(layer.weights is not None and layer.weights.bits == 1 for layer in layers):
        return tuple(layers)
    return tuple(_use_binary(layer) for layer in layers)


def _use_binary(layer: Layer) -> Layer:
    weights = layer.weights
    if weights is None or not np.all(np.abs(weights.values) == 1):
        return layer
    return replace(layer, weights=Weights(weights.values, 1, True))
