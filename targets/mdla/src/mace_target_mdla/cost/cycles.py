"""Estimates the cycles of a node on one core, from the guide's rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from mace_core.lint import Interval
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.pool import PoolAttributes
from mace_target_mdla.cost.rates import (
    DeviceRates,
    batch_utilization,
    elementwise_rate,
    mac_rate,
    read_rates,
    table_rate,
    type_column,
    utilization,
)
from mace_target_mdla.cost.work import MacCount
from mace_target_mdla.operation import TfliteOperation
from mace_target_mdla.rules.checks import CHECKS
from mace_target_mdla.rules.table import read_table

PADDING = "inferred: filters and channels are filled up to 16"
UNRATED = Interval(0.0, math.inf, ("the guide has no rate",))


@dataclass(frozen=True)
class NodeLoad:
    """What the cycles of a node are computed from."""

    operation: TfliteOperation
    macs: MacCount
    rates: DeviceRates


def estimate_cycles(load: NodeLoad) -> Interval:
    """Return the cycles of one core; an open interval for an operator without a published rate."""
    operator = load.operation.operator
    if operator in read_rates()["free"]:
        return Interval(0.0, 0.0, ("inferred: the operator moves no data",))
    return ESTIMATORS.get(operator, _estimate_elementwise)(load)


def _estimate_convolution(load: NodeLoad) -> Interval:
    return _divide_products(load, load.operation.operator)


def _divide_products(load: NodeLoad, convolution: str) -> Interval:
    """Divide the products by the peak; the guide's list of small filters that are slower is lost.

    convolution: the operator as which the node is computed.
    """
    peak = mac_rate(load.rates.generation, load.operation.inputs[0])
    share = utilization(convolution)
    cycles = load.macs.padded / (peak.value * share.value)
    high = cycles * load.rates.small_filter_factor
    return Interval(cycles, high, (peak.provenance, share.provenance, PADDING))


def _estimate_transposed(load: NodeLoad) -> Interval:
    """Bound a transposed convolution by its products alone, and by those with the zeros between rows.

    Of MDLA 1.5 and 2.0 the guide's remark on the rate is lost, and inserted zeros are the usual way.
    """
    bounds = _estimate_convolution(load)
    zeros = prod(load.operation.node.attributes(ConvAttributes).strides)
    # The guide's remark is about MDLA 1.5 and 2.0 only (line 418).
    if load.rates.generation == "3.0":
        return bounds
    provenance = (*bounds.provenance, "inferred: zeros between rows may be multiplied as well")
    return Interval(bounds.low, bounds.high * zeros, provenance)


def _estimate_product(load: NodeLoad) -> Interval:
    """Divide the products by the peak at the batch; a batch that is not listed lies between its neighbors.

    Where the rules say that such a batch is computed as a convolution, it has that one's rate.
    """
    rule = read_table(load.rates.generation).rules.get("fully-connected-batch")
    if rule and CHECKS[rule.check](load.operation, rule.limits):
        bounds = _divide_products(load, "CONV_2D")
        computed = f"{rule.source.mark}: {rule.source}: other batches are computed as CONV_2D"
        return Interval(bounds.low, bounds.high, (*bounds.provenance, computed))
    result = load.operation.outputs[0]
    batch = prod(result.shape[:-1])
    peak = mac_rate(load.rates.generation, load.operation.inputs[0])
    slow, fast = batch_utilization(load.rates.generation, batch)
    provenance = tuple(dict.fromkeys((peak.provenance, slow.provenance, fast.provenance, PADDING)))
    macs = load.macs.padded
    return Interval(macs / (peak.value * fast.value), macs / (peak.value * slow.value), provenance)


def _estimate_pool(load: NodeLoad) -> Interval:
    """Apply the guide's formula (line 625) to one tile.

    The guide calls all dimensions of the tile those of the result, with which a global pool would take less
    than no time; with the operand's height the formula counts 16 channels of an element of the operand for
    each cycle wherever windows do not overlap.
    """
    operation = load.operation
    x, result = operation.inputs[0], operation.outputs[0]
    factor = table_rate("pools", operation.operator, "factors", type_column(x))
    attributes = operation.node.attributes(PoolAttributes)
    # The guide has NA for L2 pools of half precision (line 612), and its formula is for images.
    if factor is None or len(x.shape) != 4:
        return UNRATED
    height = x.shape[1] + attributes.pads_before[0] + attributes.pads_after[0]
    (ps_h, ps_w), (s_h, s_w) = attributes.kernel, attributes.strides
    row = ps_w * ps_h + (result.shape[2] - 1) * ps_h * s_w
    rows = (height - ps_h) // s_h + 1
    # A rest of channels takes a whole group of 16, because they are stored so (inferred).
    cycles = x.shape[0] * row * rows * math.ceil(x.shape[3] / 16) * factor.value
    return Interval(cycles, cycles, (factor.provenance, "seed: guide 625: cycles of a tile of a pool"))


def _estimate_resize(load: NodeLoad) -> Interval:
    """Divide results by the rate of scaling up; nothing bounds scaling down, which the guide calls slower."""
    x, result = load.operation.inputs[0], load.operation.outputs[0]
    rate = table_rate("resize_up", load.operation.operator, "rates", type_column(x))
    if rate is None:
        return UNRATED
    cycles = result.elements / rate.value
    is_up = all(a <= b for a, b in zip(x.shape, result.shape, strict=True))
    return Interval(cycles, cycles if is_up else math.inf, (rate.provenance,))


def _estimate_elementwise(load: NodeLoad) -> Interval:
    return _divide_elements(load, (load.operation.operator,))


def _estimate_arithmetic(load: NodeLoad) -> Interval:
    """Bound an operation with a constant by the guide's rows for two operands and for normalization."""
    operation = load.operation
    # That rows of batch normalization hold for all constants is our reading, so both rows bound the result.
    names = {"ADD": "BN_ADD", "SUB": "BN_ADD", "MUL": "BN_MUL"}
    has_constant = len(operation.activations) < 2
    more = (names[operation.operator],) if has_constant and operation.operator in names else ()
    return _divide_elements(load, (operation.operator, *more))


def _divide_elements(load: NodeLoad, names: tuple[str, ...]) -> Interval:
    result, column = load.operation.outputs[0], type_column(load.operation.outputs[0])
    rates = [elementwise_rate(name, load.rates.generation, column) for name in names]
    known = [rate for rate in rates if rate]
    if not known:
        return UNRATED
    cycles = [result.elements / rate.value for rate in known]
    return Interval(min(cycles), max(cycles), tuple(rate.provenance for rate in known))


ESTIMATORS: Mapping[str, Callable[[NodeLoad], Interval]] = MappingProxyType(
    {
        "ADD": _estimate_arithmetic,
        "AVERAGE_POOL_2D": _estimate_pool,
        "CONV_2D": _estimate_convolution,
        "CONV_3D": _estimate_convolution,
        "DEPTHWISE_CONV_2D": _estimate_convolution,
        "FULLY_CONNECTED": _estimate_product,
        "L2_POOL_2D": _estimate_pool,
        "MAX_POOL_2D": _estimate_pool,
        "MUL": _estimate_arithmetic,
        "RESIZE_BILINEAR": _estimate_resize,
        "SUB": _estimate_arithmetic,
        "TRANSPOSE_CONV": _estimate_transposed,
    }
)
"""Estimators by operator; every other operator is computed element by element, or has no rate."""
