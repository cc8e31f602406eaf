"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.subgraphs import call, function_body


def _batch(node: OnnxNode) -> Sequence[Held]:
    training = (node.opset >= 14 and node.attr("training_mode")) or (
        node.opset < 9 and node.attr("spatial") == 0
    )
    extra = any(node.wants(i) for i in range(1, len(node.proto.output)))
    node.refuse_unless(
        not training and not extra, "it works in training mode; export the model for inference"
    )
    inputs = [node.input(i) for i in range(1, 5)]
    attrs = {"epsilon": node.attr("epsilon")}
    rank = len(node.shape(0))
    if rank == 2:  # no spatial axes: the channels are last already
        return node.done("BatchNorm", [node.input(0), *inputs], attrs)
    return node.channels_first(node.emit("BatchNorm", [node.channels_last(node.input(0)), *inputs], attrs))


def _instance(node: OnnxNode) -> Sequence[Held]:
    x = node.channels_last(node.input(0))
    inputs = [x, node.input(1), node.input(2)]
    return node.channels_first(node.emit("InstanceNorm", inputs, {"epsilon": node.attr("epsilon")}))


def _group(node: OnnxNode) -> Sequence[Held]:
    groups, channels = node.attr("num_groups"), node.shape(0)[1]
    factors = [_per_channel(node, i, channels) for i in (1, 2)]
    attrs = {"groups": groups, "epsilon": node.attr("epsilon")}
    return node.channels_first(node.emit("GroupNorm", [node.channels_last(node.input(0)), *factors], attrs))


def _per_channel(node: OnnxNode, index: int, channels: int) -> str:
    """A factor per channel; before operator set 21 there is one per group."""
    count = prod(node.shape(index))
    if count == channels:
        return node.input(index)
    node.refuse_unless(count > 0 and channels % count == 0, f"{count} factors for {channels} channels")
    each = channels // count

    def repeat(factors: Array) -> Array:
        return np.repeat(factors, each)

    if node.array_is_constant(index):
        return node.derived(index, ("repeat", each), repeat)
    column = node.emit("Reshape", [node.input(index)], {"shape": (count, 1)}, tag="column")
    table = node.emit("Expand", [column], {"shape": (count, each)}, tag="table")
    return node.emit("Reshape", [table], {"shape": (channels,)}, tag="factors")


def _layer(node: OnnxNode) -> Sequence[Held]:
    if node.wants(1) or node.wants(2):  # the mean and the deviation: ONNX tells how
        body = function_body(node)
        assert body is not None
        return call(node, body)
    axis = node.axis(node.attr("axis"), len(node.shape(0)))
    shape = node.shape(0)[axis:]
    factors = [_of_shape(node, i, shape) for i in (1, 2) if node.has(i)]
    return node.done("LayerNorm", [node.input(0), *factors], {"axis": axis, "epsilon": node.attr("epsilon")})


def _rms(node: OnnxNode) -> Sequence[Held]:
    axis = node.axis(node.attr("axis"), len(node.shape(0)))
    scale = _of_shape(node, 1, node.shape(0)[axis:])
    return node.done("RMSNorm", [node.input(0), scale], {"axis": axis, "epsilon": node.attr("epsilon")})


def _of_shape(node: OnnxNode, index: int, shape: tuple[int, ...]) -> str:
    tensor = node.input(index)
    return (
        tensor
        if node.shape(index) == shape
        else node.emit("Expand", [tensor], {"shape": shape}, tag="factors")
    )


def _lrn(node: OnnxNode) -> Sequence[Held]:
    attrs = {key: node.attr(key) for key in ("size", "alpha", "beta", "bias")}
    return node.channels_first(node.emit("LRN", [node.channels_last(node.input(0))], attrs))


def _lp(node: OnnxNode) -> Sequence[Held]:
    return node.done("LpNorm", [node.input(0)], {"axis": node.attr("axis"), "p": node.attr("p")})


def _mean_variance(node: OnnxNode) -> Sequence[Held]:
    return node.done("MeanVarianceNorm", [node.input(0)], {"axes": node.attr("axes") or (0, 2, 3)})


def _softmax(op: str) -> Handler:
    """Along one axis; before operator set 13 over all axes from there on."""

    def handle(node: OnnxNode) -> Sequence[Held]:
        shape = node.shape(0)
        axis = node.attr("axis")
        if node.opset >= 13:
            return node.done(op, [node.input(0)], {"axis": axis})
        axis = axis + len(shape) if axis < 0 else axis
        node.refuse_unless(0 <= axis <= len(shape), f"axis {axis} of a tensor of rank {len(shape)}")
        if prod(shape[axis:]) == (shape[-1] if shape else 1) and axis < len(shape):
            return node.done(op, [node.input(0)], {"axis": -1})
        flat = node.emit(
            "Reshape", [node.input(0)], {"shape": (prod(shape[:axis]), prod(shape[axis:]))}, tag="flat"
        )
        return node.done("Reshape", [node.emit(op, [flat], {"axis": 1})], {"shape": shape})

    return handle


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "BatchNormalization": _batch,
        "GroupNormalization": _group,
        "Hardmax": _softmax("Hardmax"),
        "InstanceNormalization": _instance,
        "LRN": _lrn,
        "LayerNormalization": _layer,
        "LogSoftmax": _softmax("LogSoftmax"),
        "LpNormalization": _lp,
        "MeanVarianceNormalization": _mean_variance,
        "RMSNormalization": _rms,
        "Softmax": _softmax("Softmax"),
    }
)
