"""What every layer computes, in the accelerator's integer arithmetic: the known answers.

Sums are whole numbers that a float holds exactly: 24 bits of float32 where the weights are small enough, else 53 of float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import Array
from mace_target_max78000.device import Device
from mace_target_max78000.network import INPUT, Activation, Eltwise, Layer, Network, Operation, Pool
from mace_target_max78000.options import Options

SINGLE = 1 << 24
"""The largest sum that float32 holds exactly."""
DATA = (-128, 127)


def outputs(network: Network, options: Options, device: Device) -> tuple[Array, ...]:
    """Every layer's output for the network's sample: int32 [channels, rows, columns], 8-bit values or 32-bit sums."""
    made = {INPUT: network.sample.astype(np.int32)}
    for index, layer in enumerate(network.layers):
        made[index] = _layer(layer, [made[i] for i in layer.inputs], options)
    return tuple(made[i] for i in range(len(network.layers)))


def _layer(layer: Layer, inputs: Sequence[Array], options: Options) -> Array:
    operands = _operands(layer, inputs)
    if layer.pool_first:
        operands = [_pooled(layer, x, options) for x in operands]
    x = _combined(layer, operands)
    if not layer.pool_first:
        x = _pooled(layer, x, options)
    return x if layer.operation is Operation.PASSTHROUGH else _finished(layer, _sums(layer, x))


def _operands(layer: Layer, inputs: Sequence[Array]) -> list[Array]:
    """What is combined element by element: several inputs, or parts of the channels of one."""
    if layer.operands == 1:
        inputs = [np.concatenate([x.reshape(x.shape[0], -1) for x in inputs])] if len(inputs) > 1 else inputs
    elif len(inputs) == 1:
        inputs = np.split(inputs[0], layer.operands)
    return [x.reshape(layer.channels, *layer.dim) for x in inputs]


def _pooled(layer: Layer, x: Array, options: Options) -> Array:
    pool, step = layer.pool, layer.window[2]
    if pool is None:
        return x if step == 1 else x[:, ::step, ::step]
    (rows, columns), (size, dilation) = layer.pooled, (pool.size, pool.dilation)
    if layer.one_dimensional and not pool.average and not options.documented:
        dilation = (1, 1)  # the maker's tool leaves it out for one-dimensional maxima
    parts = [
        x[:, i * dilation[0] :, j * dilation[1] :][:, : (rows - 1) * step + 1 : step, : (columns - 1) * step + 1 : step]
        for i in range(size[0])
        for j in range(size[1])
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part if pool.average else np.maximum(total, part)
    return _mean(layer, pool, total, options) if pool.average else total


def _mean(layer: Layer, pool: Pool, total: Array, options: Options) -> Array:
    """Sums divided by the window's size.

    The maker's tool cuts off towards zero, and rounds halves away from zero where it is asked to round, except along one axis.
    Its document says that the hardware rounds down, or halves up.
    """
    count = pool.size[0] * pool.size[1]
    if options.documented:
        return np.asarray((total + count // 2 if options.avg_pool_rounding and count % 2 == 0 else _down(total, count, options)) // count)
    rounding = options.avg_pool_rounding and not layer.one_dimensional
    size = (2 * np.abs(total) + count) // (2 * count) if rounding else np.abs(total) // count
    return np.asarray(np.sign(total) * size)


def _down(total: Array, count: int, options: Options) -> Array:
    return total + (count - 1) // 2 if options.avg_pool_rounding else total


def _combined(layer: Layer, operands: Sequence[Array]) -> Array:
    """Operands combined exactly, saturated once."""
    total = operands[0]
    for x in operands[1:]:
        total = _OPERATIONS[layer.eltwise](total, x) if layer.eltwise else total
    return total if len(operands) == 1 else np.clip(total, *DATA)


_OPERATIONS = {Eltwise.ADD: np.add, Eltwise.SUB: np.subtract, Eltwise.OR: np.bitwise_or, Eltwise.XOR: np.bitwise_xor}


def _sums(layer: Layer, x: Array) -> Array:
    """Products summed, without bias: float [out, rows, columns]."""
    assert layer.weights is not None
    weights = layer.weights.values
    if layer.operation is Operation.LINEAR:
        exact = _exact(np.abs(weights).sum(axis=1))
        return np.asarray(weights.astype(exact) @ x.reshape(-1).astype(exact)).reshape(-1, 1, 1)
    if layer.operation is Operation.CONV_TRANSPOSE2D:
        weights, x, pad = weights[:, :, ::-1, ::-1].swapaxes(0, 1), _stuffed(x), _transposed_pad(layer)
    else:
        pad = ((layer.pad[0],) * 2, (layer.pad[1],) * 2)
    return _convolved(weights.reshape(*weights.shape[:2], *layer.kernel), np.pad(x, ((0, 0), *pad)), layer)


def _exact(magnitudes: Array) -> type[np.floating]:
    """The float that holds every sum of 8-bit data times weights of these total magnitudes."""
    return np.float32 if int(magnitudes.max(initial=0)) * 128 < SINGLE else np.float64


def _convolved(weights: Array, x: Array, layer: Layer) -> Array:
    """Tap by tap: rows of padded data lie one after another, so that a shifted window is a slice of them."""
    exact = _exact(np.abs(weights).sum(axis=(1, 2, 3)))
    (height, width), (down, right) = layer.kernel, layer.dilation
    rows, columns = x.shape[1] - (height - 1) * down, x.shape[2] - (width - 1) * right
    flat = x.reshape(x.shape[0], -1).astype(exact)
    count = (rows - 1) * x.shape[2] + columns
    filters = weights.astype(exact)
    total = np.zeros((weights.shape[0], rows * x.shape[2]), exact)
    for i in range(height):
        for j in range(width):
            first = i * down * x.shape[2] + j * right
            seen = flat[:, first : first + count]
            total[:, :count] += filters[:, :, i, j] * seen if layer.groups > 1 else filters[:, :, i, j] @ seen
    return total.reshape(-1, rows, x.shape[2])[:, :, :columns]


def _stuffed(x: Array) -> Array:
    """Data with a zero between any two rows and columns."""
    stuffed = np.zeros((x.shape[0], 2 * x.shape[1] - 1, 2 * x.shape[2] - 1), x.dtype)
    stuffed[:, ::2, ::2] = x
    return stuffed


def _transposed_pad(layer: Layer) -> tuple[tuple[int, int], tuple[int, int]]:
    """Zeros around the stuffed data; one row and column more at the end, as output padding."""
    (height, width), (top, left) = layer.kernel, layer.pad
    return (height - 1 - top, height - top), (width - 1 - left, width - left)


def _finished(layer: Layer, sums: Array) -> Array:
    """Bias, shift, rounding half up, saturation, activation."""
    total = sums if layer.bias is None else sums + (128 * layer.bias).astype(sums.dtype)[:, None, None]
    if layer.wide:
        return total.astype(np.int32)
    scaled = np.floor(total.astype(np.float64) * 2.0 ** (layer.shift - 7) + 0.5)
    low = 0 if layer.activation is Activation.RELU else DATA[0]
    result = np.clip(scaled, low, DATA[1]).astype(np.int32)
    return np.minimum(np.abs(result), DATA[1]) if layer.activation is Activation.ABS else result
