"""Defines a network in the terms of the vendor's accelerator: what layers compute, and where they lie.

Descriptions are read into it, and targets for the accelerator make one of any graph; `DescribedModel` gives
them that of a description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from pathlib import Path

from mace_core.ir import Array

INPUT = -1
"""Among a layer's inputs: the network's own input."""
# -2 is STOP, which shares the range of indexes with these.
BUFFER = -3
"""Among a layer's inputs: the first of the network's buffers; the others follow as -4, -5 ..."""


class Operation(Enum):
    """A layer's main operation, after pooling and element-wise operations."""

    CONV1D = "conv1d"
    CONV2D = "conv2d"
    CONV_TRANSPOSE2D = "convtranspose2d"
    LINEAR = "linear"
    PASSTHROUGH = "passthrough"


class Eltwise(Enum):
    """An element-wise operation; the value is its code in the hardware."""

    SUB = 0
    ADD = 1
    OR = 2
    XOR = 3


class LayerActivation(Enum):
    """The function after the shift; every layer that is not wide also saturates to 8 bits."""

    NONE = "none"
    RELU = "relu"
    ABS = "abs"


@dataclass(frozen=True)
class Pool:
    """Pooling of a layer's input.

    size, dilation: in rows and columns; 1 column where data is one-dimensional.
    """

    average: bool
    size: tuple[int, int]
    stride: int
    dilation: tuple[int, int] = (1, 1)


@dataclass(frozen=True, eq=False)
class Weights:
    """A layer's weights as the model has them.

    values: int64 in the range of `bits`: [out, in / groups, rows, columns]; of Conv1d [out, in, length]; of
    linear layers [out, in], where inputs that are flattened count channels, then rows, then columns; of
    transposed convolutions [in, out, rows, columns], as in PyTorch.
    bits: 1, 2, 4 or 8.  binary: whether one bit stands for -1 and +1 instead of -1 and 0.
    """

    values: Array
    bits: int = 8
    binary: bool = False


@dataclass(frozen=True, eq=False)
class Layer:
    """What one layer computes.

    Its order: pool and element-wise operation in either order, the main operation, bias, shift, activation.

    inputs: earlier layers by index, INPUT, or buffers; several are operands of `eltwise`, else they are
    joined along channels.
    channels, dim: of the input before pooling; one-dimensional data is (length, 1).
    stride: subsampling where there is no pool.  kernel, pad, dilation: rows and columns; Conv1d uses the
    first of each.
    bias: int64 bytes, one for each output channel; the accumulator gets 128 times as much.
    shift: the whole power of two that multiplies the sum before its division by 128, -15 ... 15; without
    effect in wide layers.
    wide: the output is the 32-bit sum.  output: its data are results of the network.
    """

    name: str
    operation: Operation
    inputs: tuple[int, ...]
    channels: int
    dim: tuple[int, int]
    out_channels: int
    weights: Weights | None = None
    bias: Array | None = None
    kernel: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    stride: int = 1
    pool: Pool | None = None
    eltwise: Eltwise | None = None
    operands: int = 1
    pool_first: bool = True
    flatten: bool = False
    shift: int = 0
    activation: LayerActivation = LayerActivation.NONE
    wide: bool = False
    output: bool = False

    @property
    def one_dimensional(self) -> bool:
        """Whether it is a convolution along one axis."""
        return self.operation is Operation.CONV1D

    @property
    def pooled(self) -> tuple[int, int]:
        """Rows and columns after pooling or subsampling."""
        size, dilation, stride = self.window
        # A window that begins inside but ends beyond the data is left out, as in PyTorch without ceil_mode.
        rows, columns = (
            (n + stride - (s - 1) * d - 1) // stride for n, s, d in zip(self.dim, size, dilation, strict=True)
        )
        # One-dimensional data has one column, whatever a two-dimensional window would leave of it.
        return rows, 1 if self.dim[1] == 1 else columns

    @property
    def window(self) -> tuple[tuple[int, int], tuple[int, int], int]:
        """Size, dilation and stride of the pool; of size 1 where there is none."""
        return (
            (self.pool.size, self.pool.dilation, self.pool.stride)
            if self.pool
            else ((1, 1), (1, 1), self.stride)
        )

    @property
    def pools(self) -> bool:
        """Whether a window of several positions is pooled; a pool of one position only subsamples."""
        return self.pool is not None and self.pool.size != (1, 1)

    @property
    def out_dim(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        if self.operation is Operation.PASSTHROUGH:
            return self.pooled
        if self.operation is Operation.LINEAR:
            return (1, 1) if self.flatten else self.pooled
        if self.operation is Operation.CONV1D:
            return self.pooled[0] + 2 * self.pad[0] - (self.kernel[0] - 1) * self.dilation[0], 1
        axes = zip(self.pooled, self.kernel, self.pad, self.dilation, strict=True)
        if self.operation is Operation.CONV_TRANSPOSE2D:
            # Stride 2 and output padding 1 are the only ones of the hardware, so they stand here as numbers.
            rows, columns = ((n - 1) * 2 - 2 * p + k + 1 for n, k, p, _ in axes)
        else:
            rows, columns = (n + 2 * p - (k - 1) * d for n, k, p, d in axes)
        return rows, columns

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """The shape that its weights must have, see `Weights`."""
        inputs = self.channels // self.groups
        if self.operation is Operation.CONV1D:
            return self.out_channels, inputs, self.kernel[0]
        if self.operation is Operation.LINEAR:
            return self.out_channels, self.channels * (prod(self.pooled) if self.flatten else 1)
        if self.operation is Operation.CONV_TRANSPOSE2D:
            # PyTorch keeps the weights of a transposed convolution with the input channels first.
            return self.channels, self.out_channels, *self.kernel
        return self.out_channels, inputs, *self.kernel

    @property
    def width(self) -> int:
        """Bits of an output value."""
        return 32 if self.wide else 8


@dataclass(frozen=True)
class LayerPlacement:
    """Where a layer works.

    processors: bit p for each processor that reads input.  output_processors: bit p for each slot that a
    channel is written to.
    in_offset, out_offset: bytes in every data memory.  write_gap, read_gap: words left out after each word.
    bias_groups: quadrants whose bias memory may be used; None for all.  chw: the input lies channel by
    channel (first layer).
    next: the layer that follows instead of the next one, `STOP` to end (MAX78002 only).  in_crop: rows left
    out before and after.
    weight_source: the earlier layer whose weight memory is used.
    bypass: every weight is 1 (the layer has such weights), and none is stored.
    read_ahead: the next input is read while a position is computed.
    calcx4: four output channels are computed at once, their weights lie in four memories.
    tcalc: the passes of the input go through the row memory four at a time; None for what read_ahead needs.
    conditional_next: the layer that follows where the network's conditions are met (MAX78002 only).
    """

    processors: int
    output_processors: int
    in_offset: int = 0
    out_offset: int = 0
    write_gap: int = 0
    read_gap: int = 0
    streaming: bool = False
    chw: bool = False
    bias_groups: tuple[int, ...] | None = None
    next: int | None = None
    in_crop: tuple[int, int] = (0, 0)
    weight_source: int | None = None
    bypass: bool = False
    read_ahead: bool = False
    calcx4: bool = False
    tcalc: bool | None = None
    conditional_next: int | None = None


def processors_needed(channels: int) -> int:
    """Return how many processors, or slots of the output, a number of channels needs.

    More than 64 channels go in passes of equal size, each a multiple of four: a word of data memory has four
    channels.
    """
    # Sixty-four processors work at once; more channels take several passes over the same positions.
    passes = -(-channels // 64)
    each = -(-channels // passes)
    return each if passes == 1 else -(-each // 4) * 4


STOP = -2
"""As `LayerPlacement.next`: the network ends here."""


@dataclass(frozen=True)
class Unload:
    """A block of results as `cnn_unload` of the generated program delivers it.

    Without any in the description, every output layer is one.
    """

    processors: int
    channels: int
    dim: tuple[int, int]
    offset: int
    width: int = 8
    write_gap: int = 0


@dataclass(frozen=True)
class Buffer:
    """A part of data memory that keeps its data from one inference to the next, zeros before the first.

    Layers write to it and read from it by their offsets, positions from `offset` on in words of four
    channels.
    """

    name: str
    processors: int
    channels: int
    dim: tuple[int, int]
    offset: int

    @property
    def pitch(self) -> int:
        """Bytes between two positions."""
        return 4 * -(-self.channels // 64)

    @property
    def end(self) -> int:
        """The offset behind the last position."""
        return self.offset + self.dim[0] * self.dim[1] * self.pitch


@dataclass(frozen=True)
class Section:
    """The lines of a description that state one layer.

    title: the layer in messages.  keys: the line of each key that is written.
    """

    title: str
    line: int
    keys: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """The description that a network comes from.

    layers: by the layer's name.  keys: lines of what belongs to no layer.
    """

    path: Path
    layers: Mapping[str, Section]
    keys: Mapping[str, int] = field(default_factory=dict)

    def locate(self, layer: str, key: str) -> tuple[int, str]:
        """Return the line of a layer's key, else that of the layer, and the layer's title."""
        if layer not in self.layers:
            # What belongs to no layer is shown at its key, else where the description begins.
            return self.keys.get(key, min(self.keys.values(), default=1)), ""
        section = self.layers[layer]
        return section.keys.get(key, section.line), section.title


@dataclass(frozen=True, eq=False)
class Network:
    """Layers in the order of their execution, each with its placement.

    sample: one input, int64 in -128 ... 127: [channels, rows, columns], one-dimensional [channels, length].
    recounts: whether layers may count the positions of what they read as other rows and columns, as a graph's
    views do; a description's may only where they have one input.
    origin: where the description states each layer; None for a network that was designed of a graph.
    """

    name: str
    layers: tuple[Layer, ...]
    places: tuple[LayerPlacement, ...]
    sample: Array
    unloads: tuple[Unload, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What the user should know about how the description was read."""
    buffers: tuple[Buffer, ...] = ()
    snoop: tuple[int, ...] = ()
    """Values of the registers that make layers conditional (MAX78002); empty where none is."""
    sampled: tuple[int, ...] = ()
    """Layers that run for the sample, where conditions leave some out; empty where all run."""
    recounts: bool = False
    origin: Origin | None = None

    def runs(self, index: int) -> bool:
        """Return whether a layer runs for the sample."""
        return not self.sampled or index in self.sampled
