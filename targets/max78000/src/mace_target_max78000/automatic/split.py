"""Layers with more bias than one bias memory holds: results of a network may as well be those of several layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mace_target_max78000.automatic.forming import Formed
from mace_target_max78000.device import PER_MEMORY, Device
from mace_target_max78000.network import Layer, Operation


def with_split_bias(formed: Formed, device: Device) -> Formed:
    """The layers with every output layer whose bias is too long as several, one after another, each with a part of the channels."""
    parts = [list(_parts(layer, formed, index, device)) for index, layer in enumerate(formed.layers)]
    if all(len(p) == 1 for p in parts):
        return formed
    first = np.cumsum([0, *(len(p) for p in parts)])
    moved = (
        replace(layer, inputs=tuple(int(first[i]) if i >= 0 else i for i in layer.inputs))
        for p in parts
        for layer in p
    )
    tensors = tuple(name for name, p in zip(formed.tensors, parts, strict=True) for _ in p)
    steps = tuple(step for step, p in zip(formed.steps, parts, strict=True) for _ in p)
    made = {tensor: int(first[index]) if index >= 0 else index for tensor, index in formed.made.items()}
    return replace(formed, layers=tuple(moved), tensors=tensors, steps=steps, made=made)


def _parts(layer: Layer, formed: Formed, index: int, device: Device) -> Iterator[Layer]:
    read = any(index in other.inputs for other in formed.layers)
    count = -(-layer.out_channels // device.bias_bytes)
    plain = (
        layer.groups == 1 and layer.operation is not Operation.CONV_TRANSPOSE2D and layer.weights is not None
    )
    if count == 1 or read or layer.bias is None or not np.any(layer.bias) or not plain:
        yield layer
        return
    size = -(-layer.out_channels // count)
    size = -(-size // PER_MEMORY) * PER_MEMORY
    for number, start in enumerate(range(0, layer.out_channels, size)):
        assert layer.weights is not None
        values, bias = layer.weights.values[start : start + size], layer.bias[start : start + size]
        weights = replace(layer.weights, values=values)
        yield replace(
            layer, name=f"{layer.name}.{number}", out_channels=len(values), weights=weights, bias=bias
        )
