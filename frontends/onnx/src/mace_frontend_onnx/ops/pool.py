"""Pools: sliding ones channels last, global ones as reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.importer import to_first
from mace_core.ir import DType, Shape
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.ops.window import SlidingWindow, find_paddings, find_window


def _pool(op: str) -> Handler:
    def handle(node: OnnxNode) -> Sequence[Result]:
        # With auto_pad the operator's page gives output sizes of its own, in which ceil_mode does not occur.
        has_ceil = bool(node.attr("ceil_mode")) and node.attr("auto_pad") == "NOTSET"
        window = find_window(node, tuple(node.attr("kernel_shape")))
        attrs = _geometry(window, *find_paddings(node, window), has_ceil)
        if op == "AveragePool":
            attrs["count_pad"] = bool(node.attr("count_include_pad"))
        if op == "LpPool":
            attrs["p"] = node.attr("p")
        x = node.channels_last(node.input(0))
        if node.is_output_read(1):
            return _with_indices(node, *node.emit_all("MaxPoolIndices", [x], attrs, count=2))
        return node.channels_first(node.emit(op, [x], attrs))

    return handle


def _geometry(window: SlidingWindow, before: Shape, after: Shape, has_ceil: bool) -> dict[str, object]:
    """Return the attributes that all pools of the IR have."""
    if has_ceil:
        window = window.cut_to(tuple(map(sum, zip(window.size, before, after, strict=True))))
    return {
        "kernel": window.kernel,
        **window.steps(),
        "pads_before": before,
        "pads_after": after,
        "ceil": has_ceil,
    }


def quantized_average_attributes(node: OnnxNode, image: Shape) -> Mapping[str, object]:
    """Return the attributes of AveragePool for a QLinearAveragePool (com.microsoft).

    image: the extent of its input.
    """
    window = find_window(node, tuple(node.attr("kernel_shape") or ()), image)
    auto = node.attr("auto_pad") or "NOTSET"
    if auto.startswith("SAME"):
        # Padding is as much as ceil(size / stride) results need, also less than 0, of which C++ cuts one half
        # towards 0: SAME_UPPER the smaller one, SAME_LOWER the larger (ComputePadAndOutputShape). Below 0 it
        # begins this pool inside the image, and refuses the pool of floats.
        sizes = zip(window.size, window.strides, window.reach, strict=True)
        total = min((-(-n // step) - 1) * step + reach - n for n, step, reach in sizes)
        problem = (
            f"strides {list(window.strides)} leave gaps with auto_pad={auto}; export the model with pads"
        )
        node.refuse_unless(total + (auto == "SAME_LOWER") > -2, problem)
    before, after = find_paddings(node, window)
    # Unlike ONNX's AveragePool, it rounds up with auto_pad=VALID as well (ONNX Runtime, PoolAttributes). With
    # SAME there is nothing to round.
    has_ceil = bool(node.attr("ceil_mode")) and auto in ("NOTSET", "VALID")
    count_pad = bool(node.attr("count_include_pad"))
    if has_ceil and count_pad:
        # Padding that counts is divided by the size of the kernel everywhere (qlinear_pool.cc), also where
        # the last window reaches beyond the stated padding: as if that reached further.
        axes = zip(image, before, after, window.reach, window.strides, strict=True)
        after = tuple(end + (reach - n - start - end) % step for n, start, end, reach, step in axes)
    return {**_geometry(window, before, after, has_ceil), "count_pad": count_pad}


def _with_indices(node: OnnxNode, y: str, indices: str) -> Sequence[Result]:
    """Return the outputs of MaxPool.

    indices: those of the IR, which count within one channel of one image.
    """
    batch, channels, *image = node.shape(0)
    # MaxPool: storage_order=1 counts down the columns of an image.
    if node.attr("storage_order"):
        problem = "storage_order=1 of a volume; export the model with the default"
        node.refuse_unless(len(image) <= 2, problem)
        by_columns = np.arange(prod(image)).reshape(image[::-1]).T.reshape(-1)
        order = node.add_constant(by_columns, DType.I64, "order")
        indices = node.emit("Gather", [order, indices], {"axis": 0}, tag="by-columns")
    permuted = node.emit("Transpose", [indices], {"perm": to_first(len(image) + 2)}, tag="indices")
    # ONNX counts through the whole input, channels first, so each channel's first element is added.
    first = np.arange(batch * channels).reshape(batch, channels, *(1,) * len(image)) * prod(image)
    terms = [permuted, node.add_constant(first, DType.I64, "first")]
    return [*node.channels_first(y), node.emit("Add", terms, tag="from-the-first")]


def _spatial_axes(node: OnnxNode) -> dict[str, object]:
    return {"axes": tuple(range(2, len(node.shape(0)))), "keepdims": True}


def _global(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0)], _spatial_axes(node))


def _global_lp(node: OnnxNode) -> Sequence[Result]:
    p, axes = node.attr("p"), _spatial_axes(node)
    if p in (1, 2):
        return node.done(f"ReduceL{p}", [node.input(0)], axes)
    power, root = (node.add_constant(v, node.dtype(0)) for v in (p, 1 / p))
    powers = node.emit("Pow", [node.emit("Abs", [node.input(0)], tag="abs"), power], tag="powers")
    return node.done("Pow", [node.emit("ReduceSum", [powers], axes, tag="sum"), root])


def _unpool(node: OnnxNode) -> Sequence[Result]:
    """Scatter the elements to their flat positions in a tensor of zeros."""
    kernel = node.attr("kernel_shape")
    strides = node.attr("strides") or (1,) * len(kernel)
    pads = node.attr("pads") or (0,) * (2 * len(kernel))
    cuts = [before + after for before, after in zip(pads, pads[len(kernel) :], strict=False)]
    lengths = zip(node.shape(0)[2:], strides, kernel, cuts, strict=True)
    shape = (*node.shape(0)[:2], *((n - 1) * s + k - c for n, s, k, c in lengths))
    output = node.ints(2, "output shape") if node.has(2) else shape
    flat = {"shape": (prod(node.shape(0)),)}
    zeros = node.add_constant(np.zeros(prod(shape)), node.dtype(0), "zeros")
    updates = [node.emit("Reshape", [node.input(i)], flat, tag="flat") for i in (1, 0)]
    filled = node.emit("ScatterElements", [zeros, *updates], {"axis": 0}, tag="scatter")
    if output == shape:
        return node.done("Reshape", [filled], {"shape": shape})
    # The indices count in the shape that the pool had, not in a larger one that output_shape asks for: so the
    # elements are placed first, and zeros appended after that. ONNX's own case with an output shape does so.
    after = tuple(n - m for n, m in zip(output, shape, strict=True))
    node.refuse_unless(min(after) >= 0, f"output shape {list(output)} is smaller than {list(shape)}")
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
