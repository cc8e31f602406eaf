"""Pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

from mace_core.ir import DType, Shape
from mace_frontend_tensorflow.node import CUT_BEFORE, TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.window import (
    AxisOrder,
    axis_order,
    channels_last,
    done_in_order,
    paddings,
    per_axis,
)
from mace_frontend_tensorflow.values import OptionalValue


def _pool_attrs(node: TensorFlowNode, order: AxisOrder, kernel: Shape, strides: Shape) -> dict[str, Any]:
    before, after = paddings(node, order.spatial(node.shape(0)), kernel, strides, order)
    return {
        "kernel": kernel,
        "strides": strides,
        "pads_before": before,
        "pads_after": after,
        # TensorFlow has no dilated pools in its graphs: tf.nn.pool makes SpaceToBatchND of them.
        "dilations": (1,) * len(kernel),
    }


def _attrs(node: TensorFlowNode, order: AxisOrder) -> dict[str, Any]:
    return _pool_attrs(node, order, per_axis(node, "ksize", order), per_axis(node, "strides", order))


def _pool(op: str) -> Handler:
    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        order = axis_order(node)
        x = channels_last(node, node.input(0), order)
        # Means of TensorFlow leave the padding out, which is the default of AveragePool.
        return done_in_order(node, op, [x], _attrs(node, order), order)

    return handle


def _max_pool_v2(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a MaxPoolV2, whose kernel and strides are operands instead of attributes."""
    order = axis_order(node)
    kernel = order.spatial(node.ints(1, "kernel"))
    strides = order.spatial(node.ints(2, "strides"))
    node.refuse_unless(
        len(kernel) == len(strides) == order.rank - 2,
        f"it has a kernel of {list(kernel)} and strides of {list(strides)} for {order.rank} axes",
    )
    attrs = _pool_attrs(node, order, kernel, strides)
    x = channels_last(node, node.input(0), order)
    return done_in_order(node, "MaxPool", [x], attrs, order)


def _max_pool_with_argmax(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a pool and the indices of its maxima in the flat image.

    TensorFlow counts through [H, W, C], or with include_batch_in_index through [N, H, W, C]; the op of the IR
    counts the pixels [H, W] of one channel.
    """
    order = axis_order(node)
    node.refuse_unless(
        not order.channels_first and order.rank == 4, "its data_format is not NHWC", CUT_BEFORE
    )
    batch, height, width, channels = node.shape(0)
    attrs = _attrs(node, order)
    y, pixels = node.emit_all("MaxPoolIndices", [node.input(0)], attrs, count=2, tag="places")
    offset = node.indices_to(channels).reshape(1, 1, 1, channels)
    if node.attr("include_batch_in_index", False):
        offset = offset + node.indices_to(batch).reshape(batch, 1, 1, 1) * prod((height, width, channels))
    scaled = node.emit("Mul", [pixels, node.add_constant(channels, DType.I64)], tag="scaled")
    flat = node.emit("Add", [scaled, node.add_constant(offset, DType.I64)], tag="flat")
    return [y, node.cast(flat, node.dtype_attr("Targmax", DType.I64))]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "AvgPool": _pool("AveragePool"),
        "AvgPool3D": _pool("AveragePool"),
        "MaxPool": _pool("MaxPool"),
        "MaxPool3D": _pool("MaxPool"),
        "MaxPoolV2": _max_pool_v2,
        "MaxPoolWithArgmax": _max_pool_with_argmax,
    }
)
