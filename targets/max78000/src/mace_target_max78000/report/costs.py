"""Counts the operations of layers, and estimates their cycles.

How many operations a layer computes; counted as the vendor's documentation counts them.

How many clock cycles a layer takes, as an estimate.

First generation: the vendor's formula.  A position is read in A cycles where it is padding and in B where it
is data; a row of outputs then takes one cycle for each output slot, pass and column.

Second generation: the vendor gives none.  This one has the same structure and two differences that the
documentation names: the pipeline reads the next positions while outputs are computed, so that a row takes the
longer of the two instead of their sum; and a depthwise layer computes its channels side by side, so that a
position takes only the time slots in which its words are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mace_frontend_ai8x.network import Activation, Eltwise, Layer, Operation
from mace_target_max78000.encode.hardware_layers import Unit

BITWISE = (Eltwise.OR, Eltwise.XOR)


@dataclass(frozen=True)
class Operations:
    """multiplications: with their additions.  comparisons: of max pooling and activations.

    additions: of average pooling and element-wise operations.
    """

    multiplications: int = 0
    comparisons: int = 0
    additions: int = 0
    bitwise: int = 0

    def __add__(self, other: Operations) -> Operations:
        """Both together."""
        return Operations(
            self.multiplications + other.multiplications,
            self.comparisons + other.comparisons,
            self.additions + other.additions,
            self.bitwise + other.bitwise,
        )

    @property
    def total(self) -> int:
        """All of them."""
        return self.multiplications + self.comparisons + self.additions + self.bitwise


def count_operations(layer: Layer) -> Operations:
    """What one layer computes: each value of a window is one comparison or addition, each positive-part one comparison.

    Multiplications of a transposed convolution include those with the zeros between its inputs.
    """
    outputs = layer.out_channels * prod(layer.out_dim)
    compared = outputs if layer.activation is not Activation.NONE else 0
    added = bitwise = 0
    if layer.pool is not None:
        elements = (
            layer.channels
            * prod(layer.pooled)
            * prod(layer.pool.size)
            * (layer.operands if layer.pool_first else 1)
        )
        compared, added = (compared, elements) if layer.pool.average else (compared + elements, 0)
    if layer.eltwise is not None:
        elements = (
            layer.channels * prod(layer.pooled if layer.pool_first else layer.dim) * (layer.operands - 1)
        )
        added, bitwise = (added, elements) if layer.eltwise in BITWISE else (added + elements, 0)
    return Operations(_multiplications(layer), compared, added, bitwise)


def _multiplications(layer: Layer) -> int:
    if layer.operation is Operation.PASSTHROUGH:
        return 0
    positions = prod(layer.pooled) if layer.flatten else 1
    return (
        layer.channels
        // layer.groups
        * positions
        * prod(layer.kernel)
        * layer.out_channels
        * prod(layer.out_dim)
    )


STARTUP = 1
"""Cycles before the first layer."""
LARGE = 16
"""Values of a flattened layer's input, for each processor, beyond which it takes a cycle more."""


@dataclass(frozen=True)
class _Reads:
    """Cycles to read a position: of padding, of data.  times: how often a row is read."""

    padding: int
    data: int
    times: int


def estimate_cycles(unit: Unit, quadrants: Sequence[int], pipeline: bool) -> int:
    """Cycles of one layer; half as many again where it streams, because it waits for its input.

    pipeline: reading goes on while outputs are computed (second generation).
    """
    reads = _reads(unit)
    rows, columns = unit.layer.pooled
    if not unit.convolves:
        found = rows * columns * (reads.data + unit.in_passes * unit.timeslots(tuple(quadrants)))
    else:
        found = _convolution(unit, reads, tuple(quadrants), pipeline)
    return found * 3 // 2 if unit.place.streaming else found


def _reads(unit: Unit) -> _Reads:
    layer = unit.layer
    (rows, columns), _, _ = layer.window
    window = rows * columns
    passes = unit.flattened
    if not unit.convolves and passes > 1 and layer.pool is not None:
        passes = 2 * passes - 1
    if layer.pool_first:
        return _Reads(passes * layer.operands * 2, passes * layer.operands * (window + 1), 1)
    return _Reads(2 * passes, passes * (layer.operands * window + 1), passes)


def _convolution(unit: Unit, reads: _Reads, quadrants: tuple[int, ...], pipeline: bool) -> int:
    """Padding rows above, rows until the first window is complete, rows of outputs, padding rows below."""
    layer = unit.layer
    double = 2 if layer.operation is Operation.CONV_TRANSPOSE2D else 1
    rows, columns = (1, 1) if layer.flatten else (double * n for n in layer.pooled)
    (kernel_rows, kernel_columns), (pad_rows, pad_columns) = layer.kernel, unit.pad
    right = layer.out_dim[1] - pad_columns
    a, b, times = reads.padding, reads.data, reads.times

    def row(inside: int) -> int:
        lead = pad_columns * (a + 1) + times * (kernel_columns - 1 - pad_columns) * (inside + 1)
        return max(0, lead + times * right * inside + a * pad_columns)

    above = 2 * pad_columns * (a + 1) + times * columns * (a + 1)
    full = 2 * pad_columns * (a + 1) + times * columns * (b + 1)
    out = _outputs(unit, quadrants)
    before = max(0, kernel_rows - 1 - pad_rows)
    whole, bottom = (max(row(x), out) if pipeline else row(x) + out for x in (b, a))
    large = layer.flatten and unit.flattened > LARGE
    return large + pad_rows * above + before * full + whole * max(0, rows - before) + pad_rows * bottom


def _outputs(unit: Unit, quadrants: tuple[int, ...]) -> int:
    """Cycles of one row of outputs."""
    columns, passes = unit.layer.out_dim[1], unit.flattened
    if unit.depthwise:
        return columns * passes * (unit.timeslots(quadrants) + 1)
    slots = unit.out_channel_count // passes
    return columns * passes * slots + (slots if slots == passes == 1 else 0)
