"""Describes a layer as the accelerator runs it, with the quantities that registers and memories follow from.

Formulas without another source are those of the vendor's network loader, as its generated programs show them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mace_core.ir import Array
from mace_frontend_ai8x.network import Layer, LayerPlacement, Network, Operation
from mace_target_max78000.device import MAX_KERNEL_1D, PER_MEMORY, PER_QUADRANT, PROCESSORS, QUADRANTS, Chip


@dataclass(frozen=True, eq=False)
class HardwareLayer:
    """A layer in hardware form and its place.  index: its number among the network's layers.

    ignored: words at the beginning of the output that hold nothing (the write pointer starts before its
    offset by as many).
    """

    layer: Layer
    place: LayerPlacement
    index: int
    ignored: int = 0
    emulated_rows: int = 1
    """Passes that run as further rows.

    More than one where the chip has no element-wise operation over several passes of this size.
    """

    @property
    def convolves(self) -> bool:
        """Whether it multiplies by weights."""
        return self.layer.operation is not Operation.PASSTHROUGH

    @property
    def pointwise(self) -> bool:
        """Whether it is a 1x1 convolution or a linear layer."""
        return self.layer.operation is Operation.LINEAR or (
            self.layer.operation is Operation.CONV2D and self.layer.kernel == (1, 1)
        )

    @property
    def depthwise(self) -> bool:
        """Whether each channel has a kernel of its own."""
        return self.layer.groups > 1

    @property
    def broadcast(self) -> bool:
        """Whether a depthwise layer writes to the slots that it reads from."""
        return self.depthwise and self.place.processors == self.place.output_processors

    @property
    def in_passes(self) -> int:
        """How many channels each processor reads for one position."""
        return -(-self.layer.channels // PROCESSORS)

    @property
    def tcalc(self) -> bool:
        """Whether passes go through the row memory four at a time."""
        choice = self.place.tcalc
        return self.place.read_ahead and self.in_passes > 1 if choice is None else choice

    @property
    def stream_passes(self) -> int:
        """Passes as streaming layers count them: whole fours where they go four at a time."""
        return -(-self.in_passes // 4) * 4 if self.tcalc else self.in_passes

    @property
    def out_passes(self) -> int:
        """How many channels each output slot gets for one position."""
        return -(-self.layer.out_channels // PROCESSORS)

    @cached_property
    def processors(self) -> tuple[int, ...]:
        """Numbers of the reading processors, ascending."""
        return bits_of(self.place.processors)

    @cached_property
    def slots(self) -> tuple[int, ...]:
        """Numbers of the output slots, ascending."""
        return bits_of(self.place.output_processors)

    @property
    def skipped_slots(self) -> int:
        """Slots of the first word of output that lie before the first one in use."""
        return self.slots[0] % PER_MEMORY

    @property
    def positions(self) -> int:
        """Positions that a flattened layer joins; 1 for others."""
        return self.layer.pooled[0] * self.layer.pooled[1] if self.layer.flatten else 1

    @property
    def flattened(self) -> int:
        """Values that each processor reads for one output of a flattened layer."""
        return self.in_passes * self.positions

    @property
    def bits(self) -> int:
        """Bits of a weight; 0 without weights."""
        return self.layer.weights.bits if self.layer.weights else 0

    @property
    def taps(self) -> int:
        """Weights of one kernel."""
        return self.layer.kernel[0] * self.layer.kernel[1]

    @property
    def pad(self) -> tuple[int, int]:
        """Padding as the hardware counts it."""
        # A transposed convolution runs as a plain one over data with zeros between, which needs k - 1 - p
        # zeros around.
        (kh, kw), (ph, pw) = self.layer.kernel, self.layer.pad
        return (kh - 1 - ph, kw - 1 - pw) if self.layer.operation is Operation.CONV_TRANSPOSE2D else (ph, pw)

    @property
    def in_dim(self) -> tuple[int, int]:
        """Rows and columns that the counters run over."""
        rows, columns = self.layer.dim
        if self.layer.flatten:
            return self.layer.window[0]
        if self.layer.operation is Operation.CONV_TRANSPOSE2D:
            # The zeros between rows and columns are counted as well.
            return 2 * rows, 2 * columns
        return rows * self.emulated_rows, columns

    @property
    def tram(self) -> int:
        """Words of row memory for one pass."""
        if not self.convolves:
            return 1
        columns, kernel, pad = self.layer.pooled[1], self.layer.kernel[1], self.pad[1]
        if self.layer.operation is Operation.CONV_TRANSPOSE2D:
            columns = 2 * columns
        # The vendor's formula: one word for each place of the kernel in a padded row.
        return max(0, columns + 2 * pad - kernel) + 1

    @property
    def kernel_slots(self) -> int:
        """Output slots that the layer has kernels for in one pass, unused ones between them included."""
        # Where outputs take several passes, unused slots before the first one of its word have kernels in
        # every pass.
        first = self.slots[0] - (self.skipped_slots if self.out_passes > 1 else 0)
        return self.slots[-1] + 1 - first

    @property
    def kernel_count(self) -> int:
        """Kernels in one processor's memory, without those skipped at the beginning."""
        if self.depthwise:
            return self.in_passes
        count = self.kernel_slots * self.out_passes * self.in_passes
        if self.layer.flatten:
            # The vendor's loader leaves out the kernels that the last output pass of a flattened layer
            # lacks.
            missing = self.out_passes * len(self.slots) - self.layer.out_channels
            count = (count - missing * self.in_passes) * self.positions
        return count

    @property
    def skipped_kernels(self) -> int:
        """Kernels before the first, for the output slots that are not in use."""
        if self.depthwise:
            return self.skipped_slots * self.in_passes
        return self.skipped_slots * self.out_passes * self.in_passes * self.positions

    @property
    def out_channel_count(self) -> int:
        """What the hardware counts as output channels of one pass."""
        return (
            self.kernel_slots * self.in_passes if self.depthwise else self.kernel_count + self.skipped_kernels
        )

    @property
    def joins(self) -> bool:
        """Whether it is flattened in hardware: up to 16 values are read as passes."""
        # LCTL2 counts up to 16 passes; more values need the flattening mode of POST.
        return self.layer.flatten and self.flattened > 16

    @property
    def write_step(self) -> int:
        """Words between two positions of the output."""
        return self.place.write_gap + 1

    def in_quadrant(self, quadrant: int) -> int:
        """Return the reading processors of a quadrant, as 16 bits."""
        return self.place.processors >> quadrant * PER_QUADRANT & 0xFFFF

    def timeslots(self, quadrants: tuple[int, ...]) -> int:
        """Time slots beyond the first that writing takes, for layers that do not sum over processors."""
        counts = [self.in_quadrant(q).bit_count() for q in quadrants]
        n, bytes_each = max(counts), self.layer.width // 8
        if not self.convolves:
            # A passthrough packs the bytes of four processors to one word.
            return (n * bytes_each - 1) // 4
        if not self.depthwise:
            return 0
        # Written to where it was read, each memory takes its four processors in turn, all memories at
        # once; otherwise all processors of a quadrant write in turn.
        return (min(n - 1, 3) + 1) * bytes_each - 1 if self.broadcast else (n * bytes_each * 8 + 7) // 8 - 1


def bits_of(mask: int) -> tuple[int, ...]:
    """Return numbers of the bits that are set, ascending."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def used_quadrants(network: Network) -> tuple[int, ...]:
    """Return quadrants that any layer reads in, or that get the results."""
    mask = network.places[-1].output_processors
    for place in network.places:
        mask |= place.processors
    return tuple(q for q in range(QUADRANTS) if mask >> q * PER_QUADRANT & 0xFFFF)


def make_hardware_layers(network: Network, device: Chip) -> tuple[HardwareLayer, ...]:
    """Return the network's layers as the hardware runs them."""
    pairs = zip(network.layers, network.places, strict=True)
    streams = (False, *(place.streaming for place in network.places))
    return tuple(
        _unit(HardwareLayer(layer, place, i), device, streams[i]) for i, (layer, place) in enumerate(pairs)
    )


def _unit(unit: HardwareLayer, device: Chip, behind_a_stream: bool) -> HardwareLayer:
    layer, place, index = unit.layer, unit.place, unit.index
    # what streams, or reads what streamed, waits for rows, which a 1x1 kernel does not have
    waits = place.streaming or behind_a_stream
    if (
        waits
        and layer.operation is Operation.CONV2D
        and layer.kernel == (1, 1)
        and layer.weights is not None
        and not place.bypass
    ):
        return HardwareLayer(_widen(layer), place, index)
    if layer.operation is Operation.CONV1D and layer.dilation[0] > 1:
        return _dilate(layer, place, index)
    # The first generation combines operands over several passes only as further rows. The vendor's tool
    # knows one exception: two passes of two operands.
    passes = unit.in_passes
    if (
        not device.features.wide_operands
        and layer.operands > 1
        and passes > 1
        and layer.operands * passes != layer.operands + passes
    ):
        return replace(unit, emulated_rows=passes)
    return unit


def _widen(layer: Layer) -> Layer:
    """Return a 1x1 kernel as the center of a 3x3 one: streaming layers must have rows to wait for."""
    assert layer.weights is not None
    values = np.pad(layer.weights.values, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return replace(layer, kernel=(3, 3), pad=(1, 1), weights=replace(layer.weights, values=values))


def _dilate(layer: Layer, place: LayerPlacement, index: int) -> HardwareLayer:
    """Return a dilated Conv1d in a form that the hardware has.

    Its kernel is filled with zeros up to the longest one; beyond that, the data become rows of as many
    columns as the layer is dilated.
    """
    length, dilation = layer.kernel[0], layer.dilation[0]
    assert layer.weights is not None
    values = layer.weights.values
    if (length - 1) * dilation < MAX_KERNEL_1D:
        filled = np.zeros((*values.shape[:2], (length - 1) * dilation + 1), values.dtype)
        filled[:, :, ::dilation] = values
        return HardwareLayer(
            _kernel(layer, filled, kernel=(filled.shape[2], 1), dilation=(1, 1)), place, index
        )
    # A row of the rearranged data is as wide as the dilation, so the taps of one column are the dilated
    # ones. The outer columns stay zero.
    square = np.zeros((*values.shape[:2], 3, 3), values.dtype)
    square[:, :, 3 - length :, 1] = values
    rows = -(-layer.dim[0] // dilation)
    flat = _kernel(
        layer,
        square,
        operation=Operation.CONV2D,
        kernel=(3, 3),
        pad=(1, 1),
        dilation=(1, 1),
        dim=(rows, dilation),
    )
    # With three taps the first row of results is computed from padding and means nothing.
    ignored = dilation * -(-layer.out_channels // PROCESSORS) if length == 3 else 0
    return HardwareLayer(flat, place, index, ignored=ignored)


def _kernel(layer: Layer, values: Array, **changes: object) -> Layer:
    assert layer.weights is not None
    return replace(layer, weights=replace(layer.weights, values=values), **changes)  # type: ignore[arg-type]
