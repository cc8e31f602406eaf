"""Pools: sliding ones channels last, global ones as reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_frontend_onnx.node import Held, Node
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.ops.window import paddings, window


def _pool(op: str) -> Handler:
    def handle(node: Node) -> Sequence[Held]:
        node.refuse_unless(not node.wants(1), "its output Indices is read; export the model without it")
        view = window(node, tuple(node.attr("kernel_shape")))
        before, after = paddings(node, view)
        attrs: dict[str, object] = {"kernel": view.kernel, **view.steps(), "pads_before": before, "pads_after": after}
        attrs["ceil"] = bool(node.attr("ceil_mode")) and node.attr("auto_pad") == "NOTSET"
        if op == "AveragePool":
            attrs["count_pad"] = bool(node.attr("count_include_pad"))
        if op == "LpPool":
            attrs["p"] = node.attr("p")
        return node.channels_first(node.emit(op, [node.channels_last(node.input(0))], attrs))

    return handle


def _global(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0)], {"axes": tuple(range(2, len(node.shape(0)))), "keepdims": True})


def _global_lp(node: Node) -> Sequence[Held]:
    p, axes = node.attr("p"), {"axes": tuple(range(2, len(node.shape(0)))), "keepdims": True}
    if p in (1, 2):
        return node.done(f"ReduceL{p}", [node.input(0)], axes)
    power, root = (node.weight(v, node.dtype(0)) for v in (p, 1 / p))
    powers = node.emit("Pow", [node.emit("Abs", [node.input(0)], tag="abs"), power], tag="powers")
    return node.done("Pow", [node.emit("ReduceSum", [powers], axes, tag="sum"), root])


def _unpool(node: Node) -> Sequence[Held]:
    """Scatter the elements to their flat positions in zeros; a larger output shape adds zeros at the ends."""
    kernel = node.attr("kernel_shape")
    strides = node.attr("strides") or (1,) * len(kernel)
    pads = node.attr("pads") or (0,) * (2 * len(kernel))
    cuts = [before + after for before, after in zip(pads, pads[len(kernel) :], strict=False)]
    spatial = [(n - 1) * s + k - c for n, s, k, c in zip(node.shape(0)[2:], strides, kernel, cuts, strict=True)]
    shape = (*node.shape(0)[:2], *spatial)
    wanted = node.ints(2, "output shape") if node.has(2) else shape
    flat = {"shape": (prod(node.shape(0)),)}
    zeros = node.weight(np.zeros(prod(shape)), node.dtype(0), "zeros")
    updates = [node.emit("Reshape", [node.input(i)], flat, tag="flat") for i in (1, 0)]
    filled = node.emit("ScatterElements", [zeros, *updates], {"axis": 0}, tag="scatter")
    if wanted == shape:
        return node.done("Reshape", [filled], {"shape": shape})
    after = tuple(w - n for w, n in zip(wanted, shape, strict=True))
    node.refuse_unless(min(after) >= 0, f"output shape {list(wanted)} is smaller than {list(shape)}")
    reshaped = node.emit("Reshape", [filled], {"shape": shape}, tag="unpooled")
    return node.done("Pad", [reshaped], {"before": (0,) * len(shape), "after": after})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "AveragePool": _pool("AveragePool"),
        "GlobalAveragePool": _global("ReduceMean"),
        "GlobalLpPool": _global_lp,
        "GlobalMaxPool": _global("ReduceMax"),
        "LpPool": _pool("LpPool"),
        "MaxPool": _pool("MaxPool"),
        "MaxUnpool": _unpool,
    }
)
