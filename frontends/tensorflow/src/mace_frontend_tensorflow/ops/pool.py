"""Pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

from mace_core.ir import DType
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.window import Layout, channels_last, finished, layout, paddings, per_axis


def _attrs(node: TensorFlowNode, how: Layout) -> dict[str, Any]:
    kernel, strides = per_axis(node, "ksize", how), per_axis(node, "strides", how)
    before, after = paddings(node, how.spatial(node.shape(0)), kernel, strides, how)
    ones = (1,) * len(kernel)
    return {
        "kernel": kernel,
        "strides": strides,
        "pads_before": before,
        "pads_after": after,
        "dilations": ones,
    }


def _pool(op: str) -> Handler:
    def handle(node: TensorFlowNode) -> Sequence[Held]:
        how = layout(node)
        return finished(node, op, [channels_last(node, node.input(0), how)], _attrs(node, how), how)

    return handle


def _max_v2(node: TensorFlowNode) -> Sequence[Held]:
    """Kernel and strides are operands."""
    how = layout(node)
    kernel, strides = (how.spatial(node.ints(i, what)) for i, what in ((1, "kernel"), (2, "strides")))
    node.refuse_unless(
        len(kernel) == len(strides) == how.rank - 2, f"kernel {list(kernel)} for {how.rank} axes"
    )
    before, after = paddings(node, how.spatial(node.shape(0)), kernel, strides, how)
    ones = (1,) * len(kernel)
    attrs = {
        "kernel": kernel,
        "strides": strides,
        "pads_before": before,
        "pads_after": after,
        "dilations": ones,
    }
    return finished(node, "MaxPool", [channels_last(node, node.input(0), how)], attrs, how)


def _max_with_places(node: TensorFlowNode) -> Sequence[Held]:
    """Places count through the flat [H, W, C], or [N, H, W, C] with include_batch_in_index."""
    how = layout(node)
    node.refuse_unless(not how.first and how.rank == 4, "its data_format is not NHWC")
    batch, height, width, channels = node.shape(0)
    y, places = node.emit_all("MaxPoolIndices", [node.input(0)], _attrs(node, how), count=2, tag="places")
    offset = node.counted(channels).reshape(1, 1, 1, channels)
    if node.attr("include_batch_in_index", False):
        offset = offset + node.counted(batch).reshape(batch, 1, 1, 1) * prod((height, width, channels))
    scaled = node.emit("Mul", [places, node.add_constant(channels, DType.I64)], tag="scaled")
    flat = node.emit("Add", [scaled, node.add_constant(offset, DType.I64)], tag="flat")
    return [y, node.cast(flat, node.kind("Targmax", DType.I64))]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "AvgPool": _pool("AveragePool"),
        "AvgPool3D": _pool("AveragePool"),
        "MaxPool": _pool("MaxPool"),
        "MaxPool3D": _pool("MaxPool"),
        "MaxPoolV2": _max_v2,
        "MaxPoolWithArgmax": _max_with_places,
    }
)
