"""Joined inputs that begin in the middle of a data word: what comes before them gets channels of zeros until it does not.

Four channels share a word, and a layer writes whole words.  Weights of zero make the channels, and weights of zero read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mace_core.ir import Array
from mace_target_max78000.automatic.forming.refusal import Faults
from mace_target_max78000.device import PER_MEMORY
from mace_target_max78000.network import INPUT, Layer, Operation, Weights

UNIT_SHIFT = 7
"""What makes a sum of weight 1 its input again."""


def aligned(layers: Sequence[Layer], faults: Faults) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """The layers with joined inputs of whole words, and which of them each layer given has become."""
    new: list[Layer] = []
    now: list[int] = []
    for layer in layers:
        whole = replace(layer, inputs=tuple(i if i == INPUT else now[i] for i in layer.inputs))
        if len(layer.inputs) > 1 and layer.eltwise is None:
            whole = _joined(whole, new, faults)
        now.append(len(new))
        new.append(whole)
    return tuple(new), tuple(now)


def _joined(layer: Layer, new: list[Layer], faults: Faults) -> Layer:
    """A layer that reads copies with channels of zeros in the place of inputs that do not fill their words."""
    known = {i: new[i].out_channels for i in layer.inputs if i != INPUT}
    own = layer.channels - sum(known[i] for i in layer.inputs if i != INPUT)
    channels = [known.get(i, own) for i in layer.inputs]
    if not any(count % PER_MEMORY for count in channels[:-1]):
        return layer
    if layer.weights is None or layer.groups > 1:
        faults.add(f"layer {layer.name!r}", f"it joins {channels} channels; all but the last must be multiples of {PER_MEMORY}")
        return layer
    wide = [-(-count // PER_MEMORY) * PER_MEMORY for count in channels[:-1]] + channels[-1:]
    inputs = tuple(_widened(layer, source, sizes, new) for source, *sizes in zip(layer.inputs, channels, wide, strict=True))
    values = _spread(layer, channels, wide)
    return replace(layer, inputs=inputs, channels=sum(wide), weights=replace(layer.weights, values=values))


def _widened(layer: Layer, source: int, sizes: Sequence[int], new: list[Layer]) -> int:
    """A copy of an input with channels of zeros behind its own; the input itself if it needs none."""
    narrow, wide = sizes
    if narrow == wide:
        return source
    values = np.eye(wide, narrow, dtype=np.int64).reshape(wide, narrow, *(1,) * (1 if layer.one_dimensional else 2))
    operation = Operation.CONV1D if layer.one_dimensional else Operation.CONV2D
    name = f"{layer.name}/words of {source}"
    new.append(Layer(name, operation, (source,), narrow, layer.dim, wide, weights=Weights(values, 2), shift=UNIT_SHIFT))
    return len(new) - 1


def _spread(layer: Layer, channels: Sequence[int], wide: Sequence[int]) -> Array:
    """Weights with zeros for the channels that were added."""
    assert layer.weights is not None
    axis = 0 if layer.operation is Operation.CONV_TRANSPOSE2D else 1
    places = np.concatenate([first + np.arange(n) for first, n in zip(np.cumsum([0, *wide[:-1]]), channels, strict=True)])
    values = np.moveaxis(layer.weights.values, axis, 0).reshape(layer.channels, -1, *layer.weights.values.shape[2:])
    if layer.operation is Operation.LINEAR:
        values = layer.weights.values.reshape(layer.out_channels, layer.channels, -1).swapaxes(0, 1)
    whole = np.zeros((sum(wide), *values.shape[1:]), np.int64)
    whole[places] = values
    if layer.operation is Operation.LINEAR:
        return whole.swapaxes(0, 1).reshape(layer.out_channels, -1)
    return np.asarray(np.moveaxis(whole, 0, axis))
