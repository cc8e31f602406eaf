"""Checks weights, biases and products of matrices."""

from __future__ import annotations

import numpy as np

from mace_target_ethosu.checks.check import Check, Limits
from mace_target_ethosu.operators import OperatorView


def has_weights_of_8_bits(operator: OperatorView, limits: Limits) -> str | None:
    """Check the width of weights; those that are computed are feature maps."""
    weights = operator.weights
    return None if weights is None or weights.bits == 8 else f"{weights.name!r} is {weights.dtype}"


def has_weight_sum(operator: OperatorView, limits: Limits) -> str | None:
    """Check the sum of absolute weights of each output channel, zero point subtracted."""
    weights = operator.weights
    # Vela states limits for inputs of 8 and 16 bits, and computed weights have no sum yet.
    if weights is None or weights.data is None or operator.ifm.bits not in limits:
        return None
    # Depthwise filters are [1, H, W, channels]; all others have the output channels first.
    axis = 3 if operator.code == "DEPTHWISE_CONV_2D" else 0
    zero_points = np.asarray(weights.zero_points or (0,), np.int64)
    # In 64 bits: the limit of Ethos-U85 beside 16 bits is 2,130,706,432, close to where int32 wraps.
    values = np.moveaxis(weights.data, axis, 0).reshape(weights.shape[axis], -1).astype(np.int64)
    sums = np.abs(values - zero_points.reshape(-1, 1)).sum(axis=1)
    largest = int(sums.max(initial=0))
    limit = limits[operator.ifm.bits]
    return None if largest <= limit else f"the absolute weights of a channel add up to {largest}"


def has_constant_bias(operator: OperatorView, limits: Limits) -> str | None:
    """Check that the bias is stored."""
    bias = operator.bias
    return None if bias is None or bias.data is not None else f"the bias {bias.name!r} is computed"


def has_bias_type(operator: OperatorView, limits: Limits) -> str | None:
    """Check the type of the bias."""
    bias = operator.bias
    if bias is None or bias.dtype in ("INT32", "INT64"):
        return None
    return f"the bias {bias.name!r} is {bias.dtype}"


def has_bias_on_channels(operator: OperatorView, limits: Limits) -> str | None:
    """Check that the bias varies along its last axis alone."""
    bias = operator.bias
    if bias is None or all(size == 1 for size in bias.shape[:-1]):
        return None
    return f"the bias {bias.name!r} has the shape {list(bias.shape)}"


def has_bias_below(operator: OperatorView, limits: Limits) -> str | None:
    """Check the values of a bias of 64 bits."""
    bias = operator.bias
    # An int32 bias reaches neither limit, 40 bits nor 48.
    if bias is None or bias.data is None or bias.dtype != "INT64":
        return None
    largest = max(map(abs, (int(bias.data.max(initial=0)), int(bias.data.min(initial=0)))))
    return None if largest < limits["max"] else f"the bias {bias.name!r} has the value {largest}"


def has_fully_connected_weights(operator: OperatorView, limits: Limits) -> str | None:
    """Check that all axes of the weights but the first and the last are 1."""
    weights = operator.weights
    if weights is None or all(size == 1 for size in weights.shape[1:-1]):
        return None
    return f"{weights.name!r} has the shape {list(weights.shape)}"


def multiplies_int8(operator: OperatorView, limits: Limits) -> str | None:
    """Check the type of a product of two computed matrices."""
    if not _is_dynamic(operator) or operator.ifm.dtype == "INT8":
        return None
    return f"{operator.ifm.name!r} is {operator.ifm.dtype}"


def has_product_depth(operator: OperatorView, limits: Limits) -> str | None:
    """Check the depth of the result of a product of two computed matrices."""
    depth = operator.ofm.shape[-1]
    return None if not _is_dynamic(operator) or depth <= limits["max"] else f"the result is {depth} deep"


def has_product_axis(operator: OperatorView, limits: Limits) -> str | None:
    """Check the length of the sums of a product of two computed matrices."""
    if not _is_dynamic(operator):
        return None
    length = operator.ifm.shape[-2 if operator.option("AdjX") else -1]
    return None if length <= limits["max"] else f"the sums have {length} products"


def _is_dynamic(operator: OperatorView) -> bool:
    """Tell whether an operator multiplies two matrices that are computed."""
    # Vela's sentence counts every matrix product, and fully connected layers whose weights are computed.
    if operator.code == "BATCH_MATMUL":
        return True
    return operator.weights is not None and operator.weights.data is None


CHECKS: tuple[Check, ...] = (
    has_weights_of_8_bits,
    has_weight_sum,
    has_constant_bias,
    has_bias_type,
    has_bias_on_channels,
    has_bias_below,
    has_fully_connected_weights,
    multiplies_int8,
    has_product_depth,
    has_product_axis,
)
