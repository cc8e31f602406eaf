"""Norms and reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_frontend_caffe.node import CUT_BEFORE, CaffeNode
from mace_frontend_caffe.ops import Handler
from mace_frontend_caffe.ops.elementwise import broadcast_from, channels

MAX_CHANNELS = 1 << 20
"""Channels of a GroupNorm: it gets two constants of this size, which a damaged file must not make huge."""


def _softmax(op: str) -> Handler:
    def handle(node: CaffeNode) -> Sequence[str]:
        axis = node.axis(node.layer.softmax_param.axis, len(node.shape()))
        return node.done(op, [node.input()], {"axis": axis})

    return handle


def _lrn(node: CaffeNode) -> Sequence[str]:
    """Add local response normalization, over nearby channels or over a window of each channel."""
    parameters = node.layer.lrn_param
    size = int(parameters.local_size)
    node.refuse_unless(size % 2 == 1, f"it has a local size of {size}, but Caffe accepts odd ones alone")
    x = node.channels_last(node.input())
    if node.enum_name(parameters, "norm_region") == "ACROSS_CHANNELS":
        attrs = {"size": size, "alpha": parameters.alpha, "beta": parameters.beta, "bias": parameters.k}
        return node.channels_first(node.emit("LRN", [x], attrs))
    rank = len(node.shape()) - 2
    pads = (size // 2,) * rank
    window = {
        "kernel": (size,) * rank,
        "strides": (1,) * rank,
        "dilations": (1,) * rank,
        "pads_before": pads,
        "pads_after": pads,
    }
    # lrn_layer.cpp composes this region of its other layers: an AVE pool, whose means count the padding, and
    # a Power layer with a shift of 1. It does not read `k` there.
    mean = node.emit("AveragePool", [node.emit("Mul", [x, x])], {**window, "count_pad": True})
    scaled = node.emit(
        "Add", [node.emit("Mul", [mean, node.add_float(parameters.alpha)]), node.add_float(1.0)]
    )
    factor = node.emit("Pow", [scaled, node.add_float(-parameters.beta)])
    return node.channels_first(node.emit("Mul", [x, factor]))


def _mvn(node: CaffeNode) -> Sequence[str]:
    """Add (x - mean) / (sqrt(variance) + eps), over each channel of an image or over the image."""
    parameters, rank = node.layer.mvn_param, len(node.shape())
    axes = {"axes": tuple(range(1 if parameters.across_channels else 2, rank))}
    node.refuse_unless(bool(axes["axes"]), f"its bottom of rank {rank} has no axes to normalize over")
    mean = node.emit("ReduceMean", [node.input()], axes)
    if not parameters.normalize_variance:
        return node.done("Sub", [node.input(), mean])
    centered = node.emit("Sub", [node.input(), mean])
    variance = node.emit("ReduceMean", [node.emit("Mul", [centered, centered])], axes)
    # mvn_layer.cpp adds eps to the deviation, where other norms add it to the variance: LayerNorm does not
    # fit.
    deviation = node.emit("Add", [node.emit("Sqrt", [variance]), node.add_float(parameters.eps, "eps")])
    return node.done("Div", [centered, deviation])


def _normalize(node: CaffeNode) -> Sequence[str]:
    """Add x / sqrt(sum of squares + eps) * scale over the channels, or over all of an image.

    This is the layer of SSD (W. Liu et al., "SSD: Single Shot MultiBox Detector", 2016).
    """
    parameters, rank = node.layer.norm_param, len(node.shape())
    axes = {"axes": tuple(range(1, rank)) if parameters.across_spatial else (1,)}
    squares = node.emit("ReduceSum", [node.emit("Mul", [node.input(), node.input()])], axes)
    # eps inside of the root keeps a vector of zeros from a division by 0; LpNorm has no such term.
    length = node.emit("Sqrt", [node.emit("Add", [squares, node.add_float(parameters.eps, "eps")])])
    if not node.blob_count:
        return node.done("Div", [node.input(), length])
    blob = node.shaped_blob(0, "scale", (1,) if parameters.channel_shared else channels(node))
    normalized = node.emit("Div", [node.input(), length])
    scale = node.add_float(blob, "scale") if blob.size == 1 else broadcast_from(node, blob, 1)
    return node.done("Mul", [normalized, scale])


def _length_norm(power: int) -> Handler:
    def handle(node: CaffeNode) -> Sequence[str]:
        axis = node.axis(node.layer.l2normalization_param.axis, len(node.shape()))
        return node.done("LpNorm", [node.input()], {"axis": axis, "p": power})

    return handle


def _layer_norm(node: CaffeNode) -> Sequence[str]:
    """Add the norm over the last axis, times a scale, plus a bias."""
    shape = node.shape()[-1:]
    scale = node.add_float(node.shaped_blob(0, "scale", shape), "scale")
    bias = node.add_float(node.shaped_blob(1, "bias", shape), "bias")
    return node.done("LayerNorm", [node.input(), scale, bias])


def _group_norm(node: CaffeNode) -> Sequence[str]:
    parameters, count = node.layer.group_norm_param, node.shape()[1]
    node.refuse_unless(
        count <= MAX_CHANNELS, f"it has {count} channels; the maximum is {MAX_CHANNELS}", CUT_BEFORE
    )
    # Networks of Caffe have a Scale layer behind it instead of a scale and a bias in it.
    ones, zeros = node.add_float(np.ones(count), "ones"), node.add_float(np.zeros(count), "zeros")
    attrs = {"groups": int(parameters.group_num), "epsilon": parameters.eps}
    return node.channels_first(node.emit("GroupNorm", [node.channels_last(node.input()), ones, zeros], attrs))


REDUCTIONS: Mapping[str, str] = MappingProxyType(
    {"SUM": "ReduceSum", "ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare", "MEAN": "ReduceMean"}
)


def _reduction(node: CaffeNode) -> Sequence[str]:
    """Add a reduction over `axis` and all axes behind it, which Caffe cannot leave apart."""
    parameters, rank = node.layer.reduction_param, len(node.shape())
    operation = node.enum_name(parameters, "operation")
    node.refuse_unless(operation in REDUCTIONS, f"{operation} is no reduction")
    op = REDUCTIONS[operation]
    attrs = {"axes": tuple(range(node.axis(parameters.axis, rank), rank)), "keepdims": False}
    if parameters.coeff == 1:
        return node.done(op, [node.input()], attrs)
    reduced = node.emit(op, [node.input()], attrs)
    return node.done("Mul", [reduced, node.add_float(parameters.coeff, "coefficient")])


def _arg_max(node: CaffeNode) -> Sequence[str]:
    """Add the indices of the largest elements, their values, or both.

    With an axis, they are searched along it, and the top has either; without, in all of each image, and the
    top has one row of indices, and a second one of values if those are wanted (argmax_layer.cpp).
    """
    parameters, shape = node.layer.argmax_param, node.shape()
    is_flat = not parameters.HasField("axis")
    if is_flat:
        axis = 1
        x = node.emit("Reshape", [node.input()], {"shape": (shape[0], prod(shape[1:]))}, tag="flat")
    else:
        axis = node.axis(parameters.axis, len(shape))
        x = node.input()
    count, available = int(parameters.top_k), node.builder.shape(x)[axis]
    node.refuse_unless(0 < count <= available, f"it asks for the largest {count} of {available} elements")
    if count == 1 and not parameters.out_max_val:
        # Caffe sorts pairs of value and index in falling order, so that the last of equal elements comes
        # first.
        indices = node.emit("ArgMax", [x], {"axis": axis, "last": True})
        values = ""
    else:
        values, indices = node.emit_all("TopK", [x], {"k": count, "axis": axis}, count=2)
    if not is_flat and parameters.out_max_val:
        return node.done("Identity", [values])
    if not is_flat:
        # All blobs of Caffe are floats, indices among them.
        return node.done("Cast", [indices], {"to": "f32"})
    rows = node.emit("Cast", [indices], {"to": "f32"}, tag="numbers")
    if parameters.out_max_val:
        rows = node.emit("Concat", [rows, values], {"axis": 1})
    row_count = 2 if parameters.out_max_val else 1
    # The top has at least three axes, and the rank of the bottom if that is more.
    return node.done("Reshape", [rows], {"shape": (shape[0], row_count, count, *(1,) * (len(shape) - 3))})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "Softmax": _softmax("Softmax"),
        "LogSoftmax": _softmax("LogSoftmax"),
        "LRN": _lrn,
        "MVN": _mvn,
        "Normalize": _normalize,
        "GroupNorm": _group_norm,
        "Reduction": _reduction,
        "ArgMax": _arg_max,
        "L1Normalization": _length_norm(1),
        "L2Normalization": _length_norm(2),
        "LayerNorm": _layer_norm,
    }
)
