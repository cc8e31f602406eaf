"""Rounds a layer's weights and bias together, for the least error in what the layer computes.

The accumulator counts products of weight steps and data steps; the bias is a byte that counts 128 of these.
So coarser weights give the bias a longer reach, and both are chosen together. The shift of a channel's mean
that rounding causes goes into its bias (Nagel et al., 2019).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, Node
from mace_core.ops.conv import ConvAttributes
from mace_target_max78000.device import SHIFTS, UNIT_SHIFT
from mace_target_max78000.quantize.calibrate import TensorStatistics

COARSER_POWERS = 6
"""Powers of two around the one that holds every weight that are tried."""

FINER_POWERS = 2


@dataclass(frozen=True, eq=False)
class RoundedWeights:
    """Weights as integers in steps of 2 ** power, [out, weights of one output].

    bias: bytes.  error: what is expected of the output, squared, over all channels.
    """

    values: Array
    power: int
    bias: Array
    bits: int
    error: float


@dataclass(frozen=True, eq=False)
class WeightRounding:
    """A layer to be rounded.

    rows: its weights, [out, weights of one output].  bias: [out].  mean, variance: of what each weight
    multiplies, [1 or out, weights].
    data, result: powers of the steps of its input and output; result None for 32-bit sums.
    """

    rows: Array
    bias: Array
    mean: Array
    variance: Array
    data: int
    result: int | None

    def choose(self, bits: int) -> RoundedWeights:
        """Choose the best steps for weights of so many bits."""
        peak = float(np.abs(self.rows).max(initial=0))
        minimum = -(1 << bits - 1)
        holding = math.ceil(math.log2(peak / -minimum)) if peak else -UNIT_SHIFT
        powers = [
            p for p in range(holding - FINER_POWERS, holding + COARSER_POWERS) if self._shift(p) in SHIFTS
        ] or [self._nearest(holding)]
        return min((self._round(power, bits) for power in powers), key=lambda c: c.error)

    def _shift(self, power: int) -> int:
        return power + self.data - self.result + UNIT_SHIFT if self.result is not None else 0

    def _nearest(self, power: int) -> int:
        """Return the power nearest to another that the hardware can shift."""
        assert self.result is not None
        base = self.result - self.data - UNIT_SHIFT
        return int(np.clip(power, base + SHIFTS[0], base + SHIFTS[-1]))

    def _round(self, power: int, bits: int) -> RoundedWeights:
        minimum = -(1 << bits - 1)
        values = np.clip(np.rint(self.rows * 2.0**-power), minimum, -minimum - 1)
        errors = values * 2.0**power - self.rows
        # The mean of what rounding adds to each output is known, so the bias takes it back.
        exact_bias = self.bias - np.sum(errors * self.mean, axis=1)
        unit = 2.0 ** (power + self.data + UNIT_SHIFT)
        bias = np.clip(np.rint(exact_bias / unit), -128, 127)
        # The expected squared error: of weights by the variance of what they multiply, of the bias itself.
        error = np.sum(errors**2 * self.variance, axis=1) + (bias * unit - exact_bias) ** 2
        return RoundedWeights(values, power, bias, bits, float(error.sum()))


def describe_rounding(
    node: Node, arrays: Sequence[Array], seen: TensorStatistics, steps: tuple[int, int | None]
) -> WeightRounding:
    """Describe what is to be rounded of a Conv, ConvTranspose or MatMul.

    arrays: weights and bias.  seen: its input.  steps: powers of its input's and output's steps.
    """
    w = arrays[0].astype(np.float64)
    if node.op.name == "MatMul":
        # A matrix over flattened data reads each channel once for every position.
        rows, places = w.T, len(w) // len(seen.mean)
        mean, variance = (np.tile(m, places)[None] for m in (seen.mean, seen.variance))
    else:
        rows = w.reshape(len(w), -1)
        group = node.attributes(ConvAttributes).group
        # Each output of a group multiplies the channels of that group only.
        by_group = [
            np.repeat(m.reshape(group, -1), len(w) // group, axis=0) for m in (seen.mean, seen.variance)
        ]
        mean, variance = (np.tile(m, math.prod(w.shape[1:-1])) for m in by_group)
    bias = arrays[1].astype(np.float64) if len(arrays) > 1 else np.zeros(len(rows))
    return WeightRounding(rows, bias, mean, variance, *steps)


def reshape_rows(values: Array, node: Node, shape: Sequence[int]) -> Array:
    """Return rows of weights as the node has them, bytes."""
    array = values.T if node.op.name == "MatMul" else values.reshape(tuple(shape))
    return np.ascontiguousarray(array).astype(np.int8)
