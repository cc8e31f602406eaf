"""Computes the range of values that each channel of each tensor can hold, for every possible input.

A range is a pair of arrays, one number for each channel: steps from the zero point where a tensor stores
integers, else the real numbers themselves. A channel is constant where both numbers are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product as pair_up

import numpy as np

from mace_core.ir import Array, Graph, Node, Tensor
from mace_core.ops import unary, unary_attrs
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.pad import PadAttributes
from mace_core.ops.pool import AveragePoolAttributes, PoolAttributes
from mace_transform_standard.channel_links import LinkedChannels
from mace_transform_standard.channel_products import ChannelProduct

Range = tuple[Array, Array]

UNKNOWN = 1e30
"""Stands for an unknown bound in place of infinity, because its product with 0 is 0 and not NaN."""

MARGIN = 2.0**-8
"""Steps that a kernel may be off before it rounds.

Results nearer to the middle of two steps count as either, so that no kernel's rounding decides what is
constant.
"""

RELATIVE_MARGIN = 1e-6
"""The same for large results: kernels scale sums in single precision."""

UNARY = {op.name for op in unary.OPS} | {op.name for op in unary_attrs.OPS}
UNARY |= {"Identity", "Quantize", "Dequantize"}
"""Ops of one operand that compute each element by itself."""

CORNERS: Mapping[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
}
"""Ops of two operands whose extremes lie where those of their operands do."""


def default_range(tensor: Tensor) -> Range:
    """Return the range of all that a tensor can store."""
    channels = tensor.shape[-1] if tensor.shape else 1
    low, high = _read_limits(tensor)
    return np.full(channels, low), np.full(channels, high)


def _read_limits(tensor: Tensor) -> tuple[float, float]:
    if tensor.quant is None or tensor.quant.axis is not None:
        return -UNKNOWN, UNKNOWN
    limits, zero = np.iinfo(tensor.dtype.numpy), tensor.quant.zero_point[0]
    return float(limits.min - zero), float(limits.max - zero)


def is_constant(bounds: Range) -> Array:
    """Tell for each channel whether it holds one value."""
    return np.asarray(bounds[0] == bounds[1])


def step_of(tensor: Tensor) -> float:
    """Return the real number that one step of a tensor stands for."""
    return tensor.quant.scale[0] if tensor.quant else 1.0


def _store(low: Array, high: Array, tensor: Tensor) -> Range:
    """Return the range of what a tensor stores of real numbers between two, whichever way a kernel rounds.

    Nothing is known of what is no number, nor of one that a tensor of floats can only hold as infinity: no
    bias can hold a constant of that.
    """
    low, high = np.nan_to_num(low, nan=-UNKNOWN), np.nan_to_num(high, nan=UNKNOWN)
    if tensor.quant is None:
        limit = min(UNKNOWN, float(np.finfo(tensor.dtype.numpy).max))
        return np.where(np.abs(low) <= limit, low, -UNKNOWN), np.where(np.abs(high) <= limit, high, UNKNOWN)
    low, high = np.clip(low, -UNKNOWN, UNKNOWN), np.clip(high, -UNKNOWN, UNKNOWN)
    full = _read_limits(tensor)
    first, last = low / step_of(tensor), high / step_of(tensor)
    first = np.ceil(first - RELATIVE_MARGIN * np.abs(first) - MARGIN - 0.5)
    last = np.floor(last + RELATIVE_MARGIN * np.abs(last) + MARGIN + 0.5)
    return np.clip(first, *full), np.clip(last, *full)


def bound_product(product: ChannelProduct, ranges: Mapping[str, Range]) -> Range:
    """Bound the results of a convolution or matrix product by interval arithmetic."""
    low, high = ranges[product.x.name]
    if product.is_padded:  # a tap outside reads 0
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    attrs = product.node.attributes(ClampAttributes)
    sums = _bound_sums(product, low, high) if product.x.quant else _find_known_sums(product, low, high)
    real = [np.clip(s * product.unit, attrs.low, attrs.high) for s in sums]
    return _store(real[0], real[1], product.y)


def _bound_sums(product: ChannelProduct, low: Array, high: Array) -> Range:
    """Bound sums of integers, which are exact."""
    up = np.maximum(product.weights, 0).sum(1).astype(np.float64)
    down = np.minimum(product.weights, 0).sum(1).astype(np.float64)
    if product.is_depthwise:
        up, down = up[:, 0], down[:, 0]
        return up * low + down * high + product.bias, up * high + down * low + product.bias
    return up @ low + down @ high + product.bias, up @ high + down @ low + product.bias


def _find_known_sums(product: ChannelProduct, low: Array, high: Array) -> Range:
    """Return the sums of floats that read constants only, or nothing; others are not bounded.

    They are rounded in an order that only the kernel knows.
    """
    is_known, is_read = low == high, product.read_weights()
    totals, values = product.weights.sum(1, dtype=np.float64), np.where(is_known, low, 0)
    with np.errstate(invalid="ignore"):  # infinity times 0, or less infinity, is NaN: nothing is known then
        if product.is_depthwise:
            is_open, sums = is_read[:, 0] & ~is_known, totals[:, 0] * values
        else:
            is_open, sums = (is_read & ~is_known).any(1), totals @ values
        sums = sums + product.bias
    return np.where(is_open, -UNKNOWN, sums), np.where(is_open, UNKNOWN, sums)


def bound_result(
    node: Node, graph: Graph, ranges: Mapping[str, Range], links: list[LinkedChannels]
) -> dict[str, Range]:
    """Bound the results of an op that works channel by channel."""
    if node.op.name in UNARY:
        return {node.outputs[0]: _bound_unary(node, graph, ranges[node.inputs[0]])}
    if node.op.name in CORNERS:
        return {node.outputs[0]: _bound_corners(node, graph, ranges)}
    results: dict[str, Range] = {}
    for name in node.outputs:
        tensor = graph.tensors[name]
        low, high = np.full(tensor.shape[-1], UNKNOWN), np.full(tensor.shape[-1], -UNKNOWN)
        for link in links:
            if link.y == name:
                step, (first, last) = step_of(graph.tensors[link.x]), ranges[link.x]
                np.minimum.at(low, link.y_channels, first[link.x_channels] * step)
                np.maximum.at(high, link.y_channels, last[link.x_channels] * step)
        edge = _find_edge(node)
        if edge is not None:
            low, high = np.minimum(low, edge), np.maximum(high, edge)
        results[name] = default_range(tensor) if _may_see_nothing(node) else _store(low, high, tensor)
    return results


def _find_edge(node: Node) -> float | None:
    """Return the real number beside those of the input that an op may read; None if there is none."""
    if isinstance(node.attrs, PadAttributes) and node.attrs.mode == "constant":
        return float(node.attrs.value)
    if isinstance(node.attrs, AveragePoolAttributes):
        return 0.0 if node.attrs.count_pad or reaches_outside(node.attrs) else None
    return None


def reaches_outside(attrs: PoolAttributes) -> bool:
    """Tell whether a window may lie in the padding completely."""
    sides = (*attrs.pads_before, *attrs.pads_after)
    # The taps of a dilated window may all lie in a narrow padding and beyond a small image.
    is_sparse = any(sides) and max(attrs.dilations) > 1
    pads = zip(sides, attrs.kernel * 2, strict=True)
    return attrs.ceil or is_sparse or any(pad >= kernel for pad, kernel in pads)


def _may_see_nothing(node: Node) -> bool:
    """Tell whether a maximum may be one of no elements."""
    is_average = isinstance(node.attrs, AveragePoolAttributes)
    return isinstance(node.attrs, PoolAttributes) and not is_average and reaches_outside(node.attrs)


def _bound_unary(node: Node, graph: Graph, bounds: Range) -> Range:
    """Bound a function of one operand: of constants by their value, of eight bits by trying all values."""
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    lowest, highest = _read_limits(x)
    known = is_constant(bounds)
    low, high = default_range(y)
    if x.quant and highest - lowest == 255:
        values = np.arange(lowest, highest + 1)
        table = _store(*2 * (_evaluate(node, values * step_of(x)),), y)
        first, last = ((bound - lowest).astype(np.int64) for bound in bounds)
        for channel, (start, end) in enumerate(zip(first, last, strict=True)):
            reached = slice(start, end + 1)
            low[channel], high[channel] = table[0][reached].min(), table[1][reached].max()
    elif known.any() and (x.quant is None or y.quant is None or node.op.moves):
        # Sixteen bits run through straight lines between knots, which may be a step off: not known here.
        real = _evaluate(node, np.where(known, bounds[0], 0) * step_of(x))
        rounded = _store(real, real, y)
        low, high = (np.where(known, s, d) for s, d in zip(rounded, (low, high), strict=True))
    return low, high


def _evaluate(node: Node, real: Array) -> Array:
    (result,) = node.op.compute([real], node.attrs)
    return result.astype(np.float64)


def _bound_corners(node: Node, graph: Graph, ranges: Mapping[str, Range]) -> Range:
    y = graph.tensors[node.outputs[0]]
    reals = [_read_operand(name, graph, ranges) for name in node.inputs]
    function = CORNERS[node.op.name]
    with np.errstate(over="ignore", invalid="ignore"):
        results = [function(a, b) for a, b in pair_up(*reals)]
        corners = [np.broadcast_to(result, y.shape[-1:]) for result in results]
    return _store(np.minimum.reduce(corners), np.maximum.reduce(corners), y)


def _read_operand(name: str, graph: Graph, ranges: Mapping[str, Range]) -> Range:
    """Return the range of an operand in real numbers; a constant's is over all but its last axis."""
    tensor = graph.tensors[name]
    if name not in graph.weights:
        return ranges[name][0] * step_of(tensor), ranges[name][1] * step_of(tensor)
    zero = tensor.quant.zero_point[0] if tensor.quant else 0
    values = (graph.weights[name].astype(np.float64) - zero) * step_of(tensor)
    rows = values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)
    return rows.min(0), rows.max(0)
