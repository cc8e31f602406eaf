"""Counts the products and the elements that nodes compute."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from mace_core.ops.conv import ConvAttributes
from mace_target_mdla.cost.layout import STEP, channels_of, pad_channels
from mace_target_mdla.operation import TfliteOperation


@dataclass(frozen=True)
class MacCount:
    """Products of a node: those of the model, and those that filled-up channels make of them."""

    useful: int
    padded: int


def count_macs(operation: TfliteOperation, layout: str) -> MacCount:
    """Return the products of a node whose operand lies in a layout; none for what multiplies no filters."""
    # By the op and not by the operator: what no operator states has products as well.
    op = operation.node.op.name
    if op == "Conv":
        return _count_convolution(operation, layout)
    if op == "ConvTranspose":
        return _count_transposed(operation, layout)
    if op in ("MatMul", "MatMulInteger"):
        rows, depth = operation.outputs[0].elements, channels_of(operation.inputs[0])
        columns = channels_of(operation.outputs[0])
        padded = rows // max(columns, 1) * _round_up(columns) * _round_up(depth)
        return MacCount(rows * depth, padded)
    return MacCount(0, 0)


def _count_convolution(operation: TfliteOperation, layout: str) -> MacCount:
    result, filters = operation.outputs[0], operation.inputs[1]
    pixels, taps = prod(result.shape[:-1]), prod(filters.shape[1:-1])
    useful = pixels * result.shape[-1] * taps * filters.shape[-1]
    columns = _round_up(result.shape[-1])
    if operation.operator == "DEPTHWISE_CONV_2D":
        return MacCount(useful, pixels * taps * columns)
    group = operation.node.attributes(ConvAttributes).group
    depth = pad_channels(filters.shape[-1], layout if group == 1 else "16C")
    return MacCount(useful, pixels * taps * columns * depth)


def _count_transposed(operation: TfliteOperation, layout: str) -> MacCount:
    """Count a product for each element of the operand, each tap and each result channel."""
    x, filters = operation.inputs[:2]
    pixels, taps, columns = prod(x.shape[:-1]), prod(filters.shape[1:-1]), filters.shape[0]
    useful = pixels * taps * columns * x.shape[-1]
    return MacCount(useful, pixels * taps * _round_up(columns) * pad_channels(x.shape[-1], layout))


def _round_up(channels: int) -> int:
    return -(-channels // STEP) * STEP
