"""Convolutions and matrix products with constant weights, as sums over their input's channels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, Graph, Node, Quant, Tensor
from mace_core.ops.conv import ConvAttributes

MAX_SUM = 2**31 - 1
"""The largest sum that kernels of integers form."""


@dataclass(frozen=True)
class ChannelProduct:
    """A Conv or MatMul: y = clamp(unit * (sum of weights * x + bias)), x in steps from its zero point.

    weights: [results, taps, channels] less their zero points; [channels, taps, 1] if each result reads its
    own channel alone.
    unit: the real number that one unit of a sum stands for; bias: in units; both [results].
    axis: that of the results in the constant as the graph holds it; the channels are its last or first.
    is_padded: whether a window may reach beyond the input.
    """

    node: Node
    x: Tensor
    y: Tensor
    weights: Array
    unit: Array
    bias: Array
    axis: int
    is_depthwise: bool
    is_padded: bool

    @property
    def input_axis(self) -> int:
        """The axis of the input's channels in the constant as the graph holds it."""
        return 0 if self.axis else -1

    @property
    def macs(self) -> int:
        """Multiplications for one run."""
        taps, channels = self.weights.shape[1:]
        return self.y.elements * int(taps) * int(channels)

    def read_weights(self) -> Array:
        """Tell for each result and channel whether any weight between them is not zero."""
        return np.asarray((self.weights != 0).any(1))

    def has_room(self, constants: Array) -> bool:
        """Tell whether any part of a sum may become part of the bias: no sum can leave its type.

        constants: the number that each channel of the input always holds; 0 where it does not.
        """
        if self.x.quant is None:
            factors = np.abs(self.weights).sum(1, dtype=np.float64)
            with np.errstate(invalid="ignore"):  # infinity times 0 is NaN, which is within no limit
                reach = (
                    factors[:, 0] * np.abs(constants) if self.is_depthwise else factors @ np.abs(constants)
                )
            return bool((reach + np.abs(self.bias) <= np.finfo(self.x.dtype.numpy).max).all())
        limits, zero = np.iinfo(self.x.dtype.numpy), self.x.quant.zero_point[0]
        farthest = max(limits.max - zero, zero - limits.min)
        reach = np.abs(self.weights.astype(np.int64)).sum((1, 2)) * farthest
        return bool((reach + np.abs(self.bias) <= MAX_SUM).all())


def read_product(node: Node, graph: Graph) -> ChannelProduct | None:
    """Return the product that a Conv or MatMul computes; None where its input channels cannot be separated.

    Those are grouped convolutions that are not depthwise, factors and biases that are computed, operands of
    which only some are stored as integers.
    """
    if node.op.name not in ("Conv", "MatMul") or not _has_constants(node, graph):
        return None
    x, w, y = (graph.tensors[name] for name in (*node.inputs[:2], node.outputs[0]))
    axis = 0 if node.op.name == "Conv" else 1
    group, is_padded = 1, False
    if isinstance(node.attrs, ConvAttributes):
        group = node.attrs.group
        is_padded = any((*node.attrs.pads_before, *node.attrs.pads_after))
    is_depthwise = group > 1 and group == x.shape[-1] == y.shape[-1]
    if not _has_simple_storage(x, w, y, axis) or (group > 1 and not is_depthwise):
        return None
    centered = _center(graph.weights[w.name], w.quant, axis)
    results = centered.shape[axis]
    rows = centered.T.reshape(results, 1, -1) if axis else centered.reshape(results, -1, centered.shape[-1])
    unit = np.ones(results)
    if x.quant and w.quant:
        unit = np.broadcast_to(x.quant.scale[0] * np.array(w.quant.scale, np.float64), (results,))
    bias = _read_bias(node, graph, unit, is_integer=x.quant is not None)
    return ChannelProduct(node, x, y, rows, unit, bias, axis, is_depthwise, is_padded)


def _has_simple_storage(x: Tensor, w: Tensor, y: Tensor, axis: int) -> bool:
    """Tell whether both factors are floats or integers, with one scale for each tensor or result."""
    is_matrix = axis == 0 or (len(w.shape) == 2 and len(x.shape) > 1)
    is_alike = (x.quant is None) == (w.quant is None) and x.real.dtype.is_float and w.elements > 0
    if any(t.quant and t.quant.axis is not None for t in (x, y)):
        return False
    return is_matrix and is_alike and (w.quant is None or w.quant.axis in (None, axis))


def _has_constants(node: Node, graph: Graph) -> bool:
    x, w, *bias = node.inputs
    return x not in graph.weights and w in graph.weights and all(not b or b in graph.weights for b in bias)


def _center(array: Array, quant: Quant | None, axis: int) -> Array:
    """Return integers less their zero points, floats as they are."""
    if quant is None:
        return array
    zero_points = np.array(quant.zero_point)
    if quant.axis is not None:
        zero_points = zero_points.reshape(-1, *(1,) * (array.ndim - axis - 1))
    # Eight bits less a zero point need nine.
    dtype = np.int16 if array.dtype.itemsize == 1 else np.int64
    return np.asarray(np.subtract(array, zero_points.astype(dtype), dtype=dtype))


def _read_bias(node: Node, graph: Graph, unit: Array, *, is_integer: bool) -> Array:
    name = node.inputs[2] if len(node.inputs) > 2 else ""
    if not name:
        return np.zeros(unit.shape)
    values, quant = graph.weights[name].astype(np.float64), graph.tensors[name].quant
    if quant is not None:
        values = (values - np.array(quant.zero_point)) * np.array(quant.scale)
    # Kernels of integers begin a sum with the bias in its units, rounded.
    return np.rint(values / unit) if is_integer else values
