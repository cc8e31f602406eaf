"""Convolutions: channels first in ONNX, channels last in the IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.importer import to_last
from mace_core.ir import Array, Shape
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.ops.window import Window, paddings, window


def _conv(node: OnnxNode) -> Sequence[Held]:
    x = node.channels_last(node.input(0))
    weights = node.permuted(1, to_last(len(node.shape(1))))
    return node.channels_first(convolved(node, [x, weights, *_bias(node)], _kernel(node)))


def convolved(node: OnnxNode, inputs: Sequence[str], kernel: Shape) -> str:
    """The convolution of x [N, *spatial, C] with w [O, *kernel, I / group], as the node's attributes say."""
    return node.emit("Conv", inputs, convolution(node, kernel))


def convolution(node: OnnxNode, kernel: Shape) -> Mapping[str, Any]:
    """The attributes of the IR's convolution for the node's."""
    view = window(node, kernel)
    before, after = paddings(node, view)
    return {"pads_before": before, "pads_after": after, **view.steps(), "group": node.attr("group")}


def _kernel(node: OnnxNode) -> Shape:
    return tuple(node.attr("kernel_shape") or node.shape(1)[2:])


def _bias(node: OnnxNode) -> list[str]:
    return [node.input(2)] if node.has(2) else []


def _conv_transpose(node: OnnxNode) -> Sequence[Held]:
    view = window(node, _kernel(node))
    before, after, extra = _transposed_paddings(node, view)
    group = node.attr("group")
    attrs = {
        "pads_before": before,
        "pads_after": after,
        **view.steps(),
        "output_padding": extra,
        "group": group,
    }
    x = node.channels_last(node.input(0))
    return node.channels_first(
        node.emit("ConvTranspose", [x, _transposed_weights(node, group), *_bias(node)], attrs)
    )


def _transposed_weights(node: OnnxNode, group: int) -> str:
    """[I, O / group, *k] as [O, *k, I / group]."""
    shape = node.shape(1)
    node.refuse_unless(shape[0] % group == 0, f"{shape[0]} input channels in {group} groups")
    if group == 1:
        return node.permuted(1, (1, *range(2, len(shape)), 0))
    split = (group, shape[0] // group, *shape[1:])
    perm = (0, 2, *range(3, len(split)), 1)
    whole = (group * shape[1], *shape[2:], shape[0] // group)

    def regroup(weights: Array) -> Array:
        return np.transpose(weights.reshape(split), perm).reshape(whole)

    if node.array_is_constant(1):
        return node.derived(1, ("transposed", group), regroup)
    groups = node.emit("Reshape", [node.input(1)], {"shape": split}, tag="groups")
    turned = node.emit("Transpose", [groups], {"perm": perm}, tag="turned")
    return node.emit("Reshape", [turned], {"shape": whole}, tag="weights")


def _transposed_paddings(node: OnnxNode, view: Window) -> tuple[Shape, Shape, Shape]:
    """Padding before and after, and what is added to the output's end (ONNX's operator page, ConvTranspose)."""
    extra = list(node.attr("output_padding") or (0,) * len(view.kernel))
    auto, wanted = node.attr("auto_pad"), node.attr("output_shape")
    if auto in ("SAME_UPPER", "SAME_LOWER") and not wanted:
        wanted = [n * s for n, s in zip(view.size, view.strides, strict=True)]
    if not wanted:
        before, after = paddings(node, view)
        return before, after, tuple(extra)
    befores, afters = [], []
    for i, out in enumerate(wanted[-len(view.kernel) :]):
        total = view.strides[i] * (view.size[i] - 1) + extra[i] + view.reach[i] - out
        if total < 0:  # more is wanted than the kernel reaches
            extra[i], total = extra[i] - total, 0
        start = total // 2 if auto == "SAME_UPPER" else total - total // 2
        befores.append(start)
        afters.append(total - start)
    return tuple(befores), tuple(afters), tuple(extra)


HANDLERS: Mapping[str, Handler] = MappingProxyType({"Conv": _conv, "ConvTranspose": _conv_transpose})
