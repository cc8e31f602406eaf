"""Normalizations and softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.subgraphs import find_function_body, inline_function


def _batch(node: OnnxNode) -> Sequence[Result]:
    # BatchNormalization: `training_mode` exists from operator set 14 on; before, a node in training has
    # further outputs. Before 9, spatial=0 has statistics per element, which the IR's op does not.
    is_training = bool(node.opset >= 14 and node.attr("training_mode"))
    is_per_element = node.opset < 9 and node.attr("spatial") == 0
    has_statistics = any(map(node.is_output_read, range(1, len(node.proto.output))))
    problem = "it works in training mode; export the model for inference"
    node.refuse_unless(not (is_training or is_per_element or has_statistics), problem)
    parameters = [node.input(i) for i in range(1, 5)]
    attrs = {"epsilon": node.attr("epsilon")}
    # Without spatial axes the channels are last already.
    if len(node.shape(0)) == 2:
        return node.done("BatchNorm", [node.input(0), *parameters], attrs)
    x = node.channels_last(node.input(0))
    return node.channels_first(node.emit("BatchNorm", [x, *parameters], attrs))


def _instance(node: OnnxNode) -> Sequence[Result]:
    inputs = [node.channels_last(node.input(0)), node.input(1), node.input(2)]
    return node.channels_first(node.emit("InstanceNorm", inputs, {"epsilon": node.attr("epsilon")}))


def _group(node: OnnxNode) -> Sequence[Result]:
    groups, channels = node.attr("num_groups"), node.shape(0)[1]
    factors = [_per_channel(node, i, channels) for i in (1, 2)]
    attrs = {"groups": groups, "epsilon": node.attr("epsilon")}
    return node.channels_first(node.emit("GroupNorm", [node.channels_last(node.input(0)), *factors], attrs))


def _per_channel(node: OnnxNode, index: int, channels: int) -> str:
    """Return a scale or bias of GroupNormalization with one number per channel."""
    # GroupNormalization: from operator set 21 on the file has that; in 18 it has one number per group.
    count = prod(node.shape(index))
    if count == channels:
        return node.input(index)
    node.refuse_unless(count > 0 and channels % count == 0, f"{count} factors for {channels} channels")
    repeats = channels // count

    def repeat(factors: Array) -> Array:
        return np.repeat(factors, repeats)

    if node.is_constant(index):
        return node.derive_constant(index, ("repeat", repeats), repeat)
    column = node.emit("Reshape", [node.input(index)], {"shape": (count, 1)}, tag="column")
    table = node.emit("Expand", [column], {"shape": (count, repeats)}, tag="table")
    return node.emit("Reshape", [table], {"shape": (channels,)}, tag="factors")


def _layer(node: OnnxNode) -> Sequence[Result]:
    # The IR's op has no outputs for mean and deviation; ONNX's function computes them.
    if node.is_output_read(1) or node.is_output_read(2):
        body = find_function_body(node)
        assert body is not None
        return inline_function(node, body)
    axis = node.axis(node.attr("axis"), len(node.shape(0)))
    shape = node.shape(0)[axis:]
    factors = [_expand_to(node, i, shape) for i in (1, 2) if node.has(i)]
    return node.done("LayerNorm", [node.input(0), *factors], {"axis": axis, "epsilon": node.attr("epsilon")})


def _rms(node: OnnxNode) -> Sequence[Result]:
    axis = node.axis(node.attr("axis"), len(node.shape(0)))
    scale = _expand_to(node, 1, node.shape(0)[axis:])
    return node.done("RMSNorm", [node.input(0), scale], {"axis": axis, "epsilon": node.attr("epsilon")})


def _expand_to(node: OnnxNode, index: int, shape: tuple[int, ...]) -> str:
    """Return a factor with the shape of the normalized axes; ONNX lets it broadcast."""
    tensor, stated = node.input(index), node.shape(index)
    if stated == shape:
        return tensor
    # A factor may have the rank of the input, with 1 for axes that are not normalized.
    outer = max(len(stated) - len(shape), 0)
    if outer and prod(stated[:outer]) == 1:
        stated = stated[outer:]
        tensor = node.emit("Reshape", [tensor], {"shape": stated}, tag="factor")
    return tensor if stated == shape else node.emit("Expand", [tensor], {"shape": shape}, tag="factors")


def _lrn(node: OnnxNode) -> Sequence[Result]:
    attrs = {key: node.attr(key) for key in ("size", "alpha", "beta", "bias")}
    return node.channels_first(node.emit("LRN", [node.channels_last(node.input(0))], attrs))


def _lp(node: OnnxNode) -> Sequence[Result]:
    return node.done("LpNorm", [node.input(0)], {"axis": node.attr("axis"), "p": node.attr("p")})


def _mean_variance(node: OnnxNode) -> Sequence[Result]:
    return node.done("MeanVarianceNorm", [node.input(0)], {"axes": node.attr("axes") or (0, 2, 3)})


def _softmax(op: str) -> Handler:
    """Return a handler of Softmax, LogSoftmax or Hardmax."""

    def handle(node: OnnxNode) -> Sequence[Result]:
        shape = node.shape(0)
        axis = node.attr("axis")
        if node.opset >= 13:
            return node.done(op, [node.input(0)], {"axis": axis})
        # Before operator set 13 the input is taken as a matrix: all axes from `axis` on are normalized
        # together.
        axis = axis + len(shape) if axis < 0 else axis
        node.refuse_unless(0 <= axis <= len(shape), f"axis {axis} of a tensor of rank {len(shape)}")
        columns = prod(shape[axis:])
        # Where only the last axis is longer than 1, that is the same as today's operator on it.
        if shape[-1:] == (columns,):
            return node.done(op, [node.input(0)], {"axis": -1})
        flat = node.emit("Reshape", [node.input(0)], {"shape": (prod(shape[:axis]), columns)}, tag="flat")
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
