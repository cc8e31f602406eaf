"""Convolutions: channels first in ONNX, channels last in the IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.importer import to_last
from mace_core.ir import Array, Shape
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.ops.window import SlidingWindow, find_paddings, find_window


def _conv(node: OnnxNode) -> Sequence[Result]:
    x = node.channels_last(node.input(0))
    weights = node.permute(1, to_last(len(node.shape(1))))
    return node.channels_first(emit_conv(node, [x, weights, *_bias(node)], _kernel(node)))


def emit_conv(node: OnnxNode, inputs: Sequence[str], kernel: Shape) -> str:
    """Return x [N, *spatial, C] convolved with w [O, *kernel, I / group] by the node's attributes."""
    return node.emit("Conv", inputs, conv_attributes(node, kernel))


def conv_attributes(node: OnnxNode, kernel: Shape) -> Mapping[str, Any]:
    """Return the attributes of the IR's convolution for the node's."""
    window = find_window(node, kernel)
    before, after = find_paddings(node, window)
    return {"pads_before": before, "pads_after": after, **window.steps(), "group": node.attr("group")}


def _kernel(node: OnnxNode) -> Shape:
    # Conv, ConvTranspose: kernel_shape may be absent, then the weights [O, I, *kernel] tell.
    return tuple(node.attr("kernel_shape") or node.shape(1)[2:])


def _bias(node: OnnxNode) -> list[str]:
    return [node.input(2)] if node.has(2) else []


def _conv_transpose(node: OnnxNode) -> Sequence[Result]:
    window = find_window(node, _kernel(node))
    before, after, output_padding = _transposed_paddings(node, window)
    group = node.attr("group")
    attrs = {
        "pads_before": before,
        "pads_after": after,
        **window.steps(),
        "output_padding": output_padding,
        "group": group,
    }
    x = node.channels_last(node.input(0))
    weights = _transposed_weights(node, group)
    return node.channels_first(node.emit("ConvTranspose", [x, weights, *_bias(node)], attrs))


def _transposed_weights(node: OnnxNode, group: int) -> str:
    """Return weights [I, O / group, *kernel] as [O, *kernel, I / group]."""
    shape = node.shape(1)
    node.refuse_unless(shape[0] % group == 0, f"{shape[0]} input channels in {group} groups")
    if group == 1:
        return node.permute(1, (1, *range(2, len(shape)), 0))
    # The group splits the first axis in both orders, but what it shares that axis with changes from input to
    # output channels: no permutation of the axes alone does that.
    split = (group, shape[0] // group, *shape[1:])
    perm = (0, 2, *range(3, len(split)), 1)
    merged = (group * shape[1], *shape[2:], shape[0] // group)

    def regroup(weights: Array) -> Array:
        return np.transpose(weights.reshape(split), perm).reshape(merged)

    if node.is_constant(1):
        return node.derive_constant(1, ("transposed", group), regroup)
    groups = node.emit("Reshape", [node.input(1)], {"shape": split}, tag="groups")
    permuted = node.emit("Transpose", [groups], {"perm": perm}, tag="turned")
    return node.emit("Reshape", [permuted], {"shape": merged}, tag="weights")


def _transposed_paddings(node: OnnxNode, window: SlidingWindow) -> tuple[Shape, Shape, Shape]:
    """Return the padding before and after each spatial axis, and what is added to the output's end.

    The formulas stand on the page of the operator (ConvTranspose).
    """
    extra = list(node.attr("output_padding") or (0,) * len(window.kernel))
    auto, output = node.attr("auto_pad"), node.attr("output_shape")
    if auto in ("SAME_UPPER", "SAME_LOWER") and not output:
        output = [n * s for n, s in zip(window.size, window.strides, strict=True)]
    if not output:
        before, after = find_paddings(node, window)
        return before, after, tuple(extra)
    befores, afters = [], []
    # ONNX Runtime takes an output_shape with batch and channels as well, and skips these.
    for i, length in enumerate(output[-len(window.kernel) :]):
        total = window.strides[i] * (window.size[i] - 1) + extra[i] + window.reach[i] - length
        # A longer output than the kernel reaches is not padded but filled up at its end.
        if total < 0:
            extra[i], total = extra[i] - total, 0
        # The odd one goes to the end for SAME_UPPER, to the start for everything else, NOTSET as well.
        start = total // 2 if auto == "SAME_UPPER" else total - total // 2
        befores.append(start)
        afters.append(total - start)
    return tuple(befores), tuple(afters), tuple(extra)


HANDLERS: Mapping[str, Handler] = MappingProxyType({"Conv": _conv, "ConvTranspose": _conv_transpose})
