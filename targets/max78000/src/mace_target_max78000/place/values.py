"""Describes what layers leave in data memory: how many words, in how many slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mace_frontend_ai8x.network import INPUT, Layer, LayerPlacement, Network, Operation
from mace_target_max78000.device import MAX_KERNEL_1D, PER_MEMORY, PROCESSORS, Chip
from mace_target_max78000.encode.hardware_layers import HardwareLayer, make_hardware_layers


@dataclass(frozen=True)
class StoredValue:
    """The network's input, or one layer's output.

    pattern: bit i for each slot from the value's first on.  words: in each data memory, without gaps.
    lead: of these, words before the first that counts, which hold nothing.
    """

    pattern: int
    words: int
    lead: int = 0

    @property
    def extent(self) -> int:
        """Slots from the first to the last."""
        return self.pattern.bit_length()

    @property
    def memories(self) -> int:
        """Data memories that hold it where its first slot is the first of a memory."""
        return -(-self.extent // PER_MEMORY)


def count_passes(channels: int) -> int:
    """Return how many channels share a processor."""
    return -(-channels // PROCESSORS)


def processors_per_pass(channels: int) -> int:
    """Return the processors that so many channels take: where one has several, a multiple of four."""
    # All passes use the same processors, and a word is that of four.
    passes = count_passes(channels)
    count = -(-channels // passes)
    return -(-count // PER_MEMORY) * PER_MEMORY if passes > 1 else count


def contiguous_slots(channels: int) -> int:
    """Return the slots of so many channels side by side."""
    return (1 << processors_per_pass(channels)) - 1


def make_units(
    layers: Sequence[Layer], places: Sequence[LayerPlacement], device: Chip
) -> tuple[HardwareLayer, ...]:
    """Return the layers as the hardware runs them."""
    # Only layers and places decide; the sample does not.
    network = Network("", tuple(layers), tuple(places), np.zeros(0, np.int64))
    return make_hardware_layers(network, device)


def describe_source(layers: Sequence[Layer], shape: tuple[int, ...] | None) -> Layer:
    """Describe the network's input as if a layer had made it.

    `shape` counts where its first reader joins it with something else.
    """
    reader = next(layer for layer in layers if INPUT in layer.inputs)
    channels, dim = reader.channels, reader.dim
    # A reader that joins it counts the channels of all its inputs.
    if len(reader.inputs) > 1 and reader.eltwise is None and shape is not None:
        channels, dim = shape[0], (shape[1], shape[2] if len(shape) > 2 else 1)
    return Layer("the network's input", Operation.PASSTHROUGH, (), channels, dim, channels)


def list_values(layers: Sequence[Layer], source: Layer, device: Chip) -> dict[int, StoredValue]:
    """Return the value of each layer, and that of the input under `INPUT`."""
    places = [
        LayerPlacement(contiguous_slots(layer.channels), contiguous_slots(layer.out_channels))
        for layer in layers
    ]
    values = {unit.index: _output_value(unit) for unit in make_units(layers, places, device)}
    first = layers[0]
    operands = first.operands if len(first.inputs) == 1 else 1
    # The operands of the first layer come as positions in turn.
    positions = source.dim[0] * source.dim[1]
    values[INPUT] = StoredValue(
        contiguous_slots(source.channels), positions * count_passes(source.channels) * operands
    )
    return values


def _output_value(unit: HardwareLayer) -> StoredValue:
    layer = unit.layer
    rows, columns = layer.out_dim
    # A sum of 32 bits takes a word for each channel instead of a byte.
    words = rows * columns * unit.out_passes * (layer.width // 8)
    return StoredValue(contiguous_slots(layer.out_channels), words, unit.ignored)


def find_readers(layers: Sequence[Layer]) -> Mapping[int, tuple[int, ...]]:
    """List for the input and each layer the layers that read it, in order; one that reads it twice, twice."""
    readers: dict[int, list[int]] = {i: [] for i in range(INPUT, len(layers))}
    for index, layer in enumerate(layers):
        for source in layer.inputs:
            readers[source].append(index)
    return {source: tuple(indices) for source, indices in readers.items()}


def runs_as_image(layer: Layer) -> bool:
    """Whether it is a dilated Conv1d that runs as an image, with unused words before its output."""
    return (
        layer.one_dimensional
        and layer.dilation[0] > 1
        and (layer.kernel[0] - 1) * layer.dilation[0] >= MAX_KERNEL_1D
    )
