"""Computes a network in integers, as the accelerator does: the reference for every layer.

Where the vendor's generator and its documentation disagree, the default follows the generator, because its
known-answer tests were made with it; `documented` follows the document:

    what                                generator                  document
    average pooling                     cuts fractions off         rounds down
    the same with avg_pool_rounding     halves away from zero      halves up
    average pooling of one dimension    never rounds               rounds as of two
    max pooling of one dimension        ignores dilation           has dilation
    several operands of one layer       by channel                 pixel by pixel
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from mace_core.ir import Array
from mace_frontend_ai8x.network import (
    BUFFER,
    INPUT,
    Buffer,
    Eltwise,
    Layer,
    LayerActivation,
    LayerPlacement,
    Network,
    Operation,
    Pool,
)
from mace_frontend_ai8x.options import NetworkOptions
from mace_frontend_ai8x.products import add_product

LOW, HIGH = -128, 127
FRACTION_BITS = 7
"""Of a weight: the sum of products is divided by 128."""
EXACT = 1 << 24
"""Below this every integer is a float32, which has 24 bits of significand."""


Pair = tuple[int, int]

OPERATIONS: Mapping[Eltwise, np.ufunc] = {
    Eltwise.ADD: np.add,
    Eltwise.SUB: np.subtract,
    Eltwise.OR: np.bitwise_or,
    Eltwise.XOR: np.bitwise_xor,
}


def outputs(network: Network, options: NetworkOptions) -> tuple[Array, ...]:
    """Return every layer's output for the network's sample.

    Outputs are int32 [channels, rows, columns], of one-dimensional data [channels, length, 1].  Values are
    from -128 to 127; in wide layers they are the sums of products plus 128 times the bias.
    """
    results: list[Array] = []
    sample = network.sample.astype(np.int32)
    sample = sample.reshape(*sample.shape, *(1,) * (3 - sample.ndim))
    # Zeros are what a buffer holds before the first inference, which is the one of the known answer.
    buffered = [np.zeros((buffer.channels, prod(buffer.dim)), np.int32) for buffer in network.buffers]
    executed_before = dict(zip(network.sampled[1:], network.sampled, strict=False))
    for index, (layer, place) in enumerate(zip(network.layers, network.places, strict=True)):
        # Where conditions left out the layer before this one, the data are those of the layer that ran last.
        sources = [executed_before.get(index, i) if i == index - 1 else i for i in layer.inputs if i > BUFFER]
        inputs = [sample if i == INPUT else results[i] for i in sources]
        inputs += [
            _read(network.buffers[BUFFER - i], buffered[BUFFER - i], layer, place)
            for i in layer.inputs
            if i <= BUFFER
        ]
        step = _Step(layer, options)
        results.append(step.output(step.operands(_crop(inputs, place))))
        for buffer, data in zip(network.buffers, buffered, strict=True):
            _write(buffer, data, place, results[-1])
    return tuple(results)


def _read(buffer: Buffer, data: Array, layer: Layer, place: LayerPlacement) -> Array:
    """Return what a layer reads of a buffer from its offset on."""
    start = (place.in_offset - buffer.offset) // buffer.pitch
    return data[:, start : start + prod(layer.dim)].reshape(buffer.channels, *layer.dim)


def _write(buffer: Buffer, data: Array, place: LayerPlacement, output: Array) -> None:
    """Put an output where it lies in a buffer, if it does."""
    start = (place.out_offset - buffer.offset) // buffer.pitch
    if place.output_processors == buffer.processors and 0 <= start < data.shape[1]:
        values = output.reshape(output.shape[0], -1)
        data[:, start : start + values.shape[1]] = values


def _crop(inputs: Sequence[Array], place: LayerPlacement) -> list[Array]:
    before, after = place.in_crop
    return [x[:, before : x.shape[1] - after] for x in inputs]


@dataclass(frozen=True)
class _Step:
    """One layer's computation."""

    layer: Layer
    options: NetworkOptions

    def operands(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the operands of the layer, each [channels, rows, columns] of its input.

        One input of an element-wise operation holds all its operands.  The hardware reads them pixel by pixel
        in turn; the generator's tests take the first and the second half of all values in the order of
        channels, as in the network's own input.
        """
        layer = self.layer
        shape = (layer.channels, *layer.dim)
        if layer.operands == 1:
            joint = inputs[0]
            if len(inputs) > 1:
                joint = np.concatenate([x.reshape(len(x), -1) for x in inputs])
            return [joint.reshape(shape)]
        if len(inputs) > 1:
            return [x.reshape(shape) for x in inputs]
        # The network's own input has its operands one behind the other by either reading.
        if self.options.documented and layer.inputs != (INPUT,):
            in_turn = inputs[0].reshape(layer.channels, -1, layer.operands)
            return [in_turn[:, :, i].reshape(shape) for i in range(layer.operands)]
        return list(inputs[0].reshape(layer.operands, *shape))

    def output(self, operands: Sequence[Array]) -> Array:
        """Return the layer's output from its operands."""
        layer = self.layer
        if layer.pool_first:
            operands = [self._pool(x) for x in operands]
        x = _combine(operands, layer.eltwise) if layer.eltwise is not None else operands[0]
        if not layer.pool_first:
            x = self._pool(x)
        if layer.operation is Operation.PASSTHROUGH:
            return x
        # A wide layer hands over its accumulator: neither shift nor activation has effect on it.
        sums = self._sums(x)
        return sums if layer.wide else _activate(_narrow(sums, layer.shift), layer.activation)

    def _pool(self, x: Array) -> Array:
        layer = self.layer
        if layer.pool is None:
            # The convolver has stride 1 only; the pooling unit takes every n-th position before it.
            return x[:, :: layer.stride, :: layer.stride]
        return self._average(x, layer.pool) if layer.pool.average else self._largest(x, layer.pool)

    def _largest(self, x: Array, pool: Pool) -> Array:
        # The generator's simulation of one-dimensional pools never looks at pool_dilation.
        undilated = self.layer.one_dimensional and not self.options.documented
        dilation = (1, 1) if undilated else pool.dilation
        # A maximum over a window is the maximum over its columns of the maxima over its rows.
        for axis in (1, 2):
            x = np.maximum.reduce(_windows(x, axis, self.layer, dilation[axis - 1]))
        return x

    def _average(self, x: Array, pool: Pool) -> Array:
        for axis in (1, 2):
            x = np.add.reduce(_windows(x, axis, self.layer, pool.dilation[axis - 1]))
        count, rounded = prod(pool.size), self.options.avg_pool_rounding
        if self.options.documented:
            mean: Array = (2 * x + count) // (2 * count) if rounded else x // count
            return mean
        # The generator cuts off towards zero and rounds away from it: both work on the magnitude.
        size = np.abs(x)
        mean = (
            (2 * size + count) // (2 * count) if rounded and not self.layer.one_dimensional else size // count
        )
        signed: Array = np.sign(x) * mean
        return signed

    def _sums(self, x: Array) -> Array:
        """Return sums of products plus 128 times the bias."""
        layer = self.layer
        assert layer.weights is not None
        values = layer.weights.values
        if layer.flatten or layer.operation is Operation.LINEAR:
            x = x.reshape(-1, 1, 1) if layer.flatten else x
            sums = _convolve(x, values.reshape(*values.shape[:2], 1, 1), (0, 0), (1, 1))
        elif layer.operation is Operation.CONV_TRANSPOSE2D:
            sums = _transpose(x, values, layer.pad)
        else:
            kernels = values.reshape(*values.shape[:2], *layer.kernel)
            # The hardware has no other groups than one for each channel, see the vendor's limits.
            convolve = _depthwise if layer.groups > 1 else _convolve
            sums = convolve(x, kernels, layer.pad, layer.dilation)
        if layer.bias is not None:
            # A bias byte counts steps of the result, which are 128 steps of the accumulator.
            sums += (layer.bias << FRACTION_BITS).astype(np.int32)[:, None, None]
        return sums


def _windows(x: Array, axis: int, layer: Layer, dilation: int) -> list[Array]:
    """Return for each element of a pool's window along an axis that element of every window."""
    assert layer.pool is not None
    size, count, step = layer.pool.size[axis - 1], layer.pooled[axis - 1], layer.pool.stride
    last = (count - 1) * step + 1
    return [x[(slice(None),) * axis + (slice(i * dilation, i * dilation + last, step),)] for i in range(size)]


def _combine(operands: Sequence[Array], eltwise: Eltwise) -> Array:
    """Combine all operands and saturate once, at the end; subtraction takes all others from the first."""
    result: Array = OPERATIONS[eltwise].reduce(np.stack(operands))
    return np.clip(result, LOW, HIGH)


def _convolve(x: Array, kernels: Array, pad: Pair, dilation: Pair) -> Array:
    """Return the convolution of [in, rows, columns] with kernels [out, in, rows, columns].

    It is one matrix product for each element of a kernel.  Rows lie one after the other with their padding,
    so that each element reads one slice of all positions.
    """
    # Floats, because numpy has matrix products of integers only as a plain loop, without BLAS.  They are
    # exact as long as no sum is larger than the integers of their significand.
    largest_sum = np.abs(kernels).sum(axis=(1, 2, 3)).max() * -LOW
    real = np.float32 if largest_sum < EXACT else np.float64
    channels, rows, columns = x.shape
    wide, high = columns + 2 * pad[1], rows + 2 * pad[0]
    # One row more, because the last slices reach beyond the last position.
    padded = np.zeros((channels, high + 1, wide), real)
    padded[:, pad[0] : pad[0] + rows, pad[1] : pad[1] + columns] = x
    flat = padded.reshape(channels, -1)
    taps = kernels.transpose(2, 3, 0, 1).astype(real)
    out_rows, out_columns = (
        n - (k - 1) * d for n, k, d in zip((high, wide), kernels.shape[2:], dilation, strict=True)
    )
    sums = np.zeros((kernels.shape[0], out_rows * wide), real)
    for row, column in np.ndindex(*kernels.shape[2:]):
        start = row * dilation[0] * wide + column * dilation[1]
        add_product(sums, taps[row, column], flat[:, start : start + sums.shape[1]])
    return sums.astype(np.int32).reshape(-1, out_rows, wide)[:, :, :out_columns]


def _depthwise(x: Array, kernels: Array, pad: Pair, dilation: Pair) -> Array:
    """Return the convolution with one kernel for each channel: [channels, 1, rows, columns]."""
    padded = np.pad(x, ((0, 0), (pad[0],) * 2, (pad[1],) * 2))
    rows, columns = (
        n - (k - 1) * d for n, k, d in zip(padded.shape[1:], kernels.shape[2:], dilation, strict=True)
    )
    sums = np.zeros((x.shape[0], rows, columns), np.int32)
    for row, column in np.ndindex(*kernels.shape[2:]):
        top, left = row * dilation[0], column * dilation[1]
        sums += (
            kernels[:, 0, row, column].astype(np.int32)[:, None, None]
            * padded[:, top : top + rows, left : left + columns]
        )
    return sums


def _transpose(x: Array, kernels: Array, pad: Pair) -> Array:
    """Return a transposed convolution of stride 2 and output padding 1, the only one of the hardware.

    It is the convolution of the data with zeros in between.  kernels: [in, out, rows, columns].
    """
    channels, rows, columns = x.shape
    spread = np.zeros((channels, 2 * rows, 2 * columns), np.int32)
    spread[:, ::2, ::2] = x
    height, width = kernels.shape[2:]
    return _convolve(
        spread, kernels[:, :, ::-1, ::-1].swapaxes(0, 1), (height - 1 - pad[0], width - 1 - pad[1]), (1, 1)
    )


def _narrow(sums: Array, shift: int) -> Array:
    """Return sums times two to the shift, divided by 128, rounded with halves up, saturated to 8 bits."""
    # A left shift beyond 7 would overflow what numpy computes with; saturating first gives the same.
    right = FRACTION_BITS - shift
    y: Array = (sums + (1 << (right - 1))) >> right if right > 0 else np.clip(sums, LOW, HIGH) << -right
    return np.clip(y, LOW, HIGH)


def _activate(x: Array, activation: LayerActivation) -> Array:
    if activation is LayerActivation.RELU:
        # ReLU comes after the saturation, as in the hardware; the order makes no difference for it.
        return np.maximum(x, 0)
    # The absolute value of -128 has no byte, so the hardware saturates it to 127.
    return np.minimum(np.abs(x), HIGH) if activation is LayerActivation.ABS else x
