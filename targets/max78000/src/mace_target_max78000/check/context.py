"""Describes to every check a layer in its network, on a part, with the options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from mace_frontend_ai8x.network import BUFFER, INPUT, Layer, LayerPlacement, Network, Operation
from mace_target_max78000.device import Chip
from mace_target_max78000.encode.hardware_layers import HardwareLayer
from mace_target_max78000.options import Options


@dataclass(frozen=True)
class Fault:
    """Something that the hardware cannot do.

    layer: its name; empty where it is the network.  key: what of it, in words of the description language.
    """

    layer: str
    key: str
    expected: str
    actual: str
    remedy: str

    def describe(self, layer: str) -> str:
        """Return what is wrong.  layer: the name of the layer in messages."""
        place = ": ".join(part for part in (layer, self.key) if part)
        return f"{place}: found {self.actual}, expected {self.expected}"

    def __str__(self) -> str:
        return f"{self.describe(self.layer)}; {self.remedy}"


class LayerInput(NamedTuple):
    """What a layer reads from: another layer's output, the network's input or a buffer, cropped."""

    name: str
    channels: int
    dim: tuple[int, int]
    wide: bool = False

    @property
    def positions(self) -> int:
        """Rows times columns."""
        return prod(self.dim)


@dataclass(frozen=True)
class LayerContext:
    """A layer in its network."""

    network: Network
    device: Chip
    options: Options
    index: int

    @property
    def layer(self) -> Layer:
        """The layer itself."""
        return self.network.layers[self.index]

    @property
    def place(self) -> LayerPlacement:
        """Where it lies."""
        return self.network.places[self.index]

    @cached_property
    def unit(self) -> HardwareLayer:
        """Its quantities; of a dilated convolution those of the layer as described."""
        return HardwareLayer(self.layer, self.place, self.index)

    @property
    def fifo(self) -> bool:
        """Whether it reads the network's input through FIFOs."""
        return self.index == 0 and (self.options.fifo or self.options.fast_fifo)

    @property
    def convolves(self) -> bool:
        """Whether it has weights."""
        return self.layer.operation is not Operation.PASSTHROUGH

    def fault(self, key: str, expected: str, actual: str, remedy: str) -> Fault:
        """Return a fault of this layer."""
        return Fault(self.layer.name, key, expected, actual, remedy)

    def source(self, index: int) -> LayerInput:
        """Return an input of this layer, without what it crops."""
        before, after = self.place.in_crop
        if index == INPUT:
            rows, columns = (*self.network.sample.shape[1:], 1)[:2]
            layer_input = LayerInput("the network's input", self.network.sample.shape[0], (rows, columns))
        elif index <= BUFFER:
            buffer = self.network.buffers[BUFFER - index]
            return LayerInput(buffer.name, buffer.channels, self.layer.dim)
        else:
            layer = self.network.layers[index]
            layer_input = LayerInput(layer.name, layer.out_channels, layer.out_dim, layer.wide)
        return layer_input._replace(dim=(layer_input.dim[0] - before - after, layer_input.dim[1]))

    def sources(self) -> list[LayerInput]:
        """Return all inputs of this layer."""
        return [self.source(i) for i in self.layer.inputs]


def format_size(dim: Sequence[int]) -> str:
    """Return rows and columns as people write them; a line's length."""
    return str(dim[0]) if dim[0] > 1 and dim[1:] == (1,) else "x".join(map(str, dim))
