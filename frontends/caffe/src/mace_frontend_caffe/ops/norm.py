"""Norms and reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_frontend_caffe.node import CaffeNode
from mace_frontend_caffe.ops import Handler
from mace_frontend_caffe.ops.elementwise import along, channels

MOST_CHANNELS = 1 << 20


def _softmax(op: str) -> Handler:
    def handle(node: CaffeNode) -> Sequence[str]:
        return node.done(
            op, [node.input()], {"axis": node.axis(node.layer.softmax_param.axis, len(node.shape()))}
        )

    return handle


def _lrn(node: CaffeNode) -> Sequence[str]:
    p = node.layer.lrn_param
    size = int(p.local_size)
    node.refuse_unless(size % 2 == 1, f"a local size of {size}")
    x = node.channels_last(node.input())
    if p.norm_region == 0:
        attrs = {"size": size, "alpha": p.alpha, "beta": p.beta, "bias": p.k}
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
    mean = node.emit("AveragePool", [node.emit("Mul", [x, x])], {**window, "count_pad": True})
    scaled = node.emit("Add", [node.emit("Mul", [mean, node.add_float(p.alpha)]), node.add_float(1.0)])
    return node.channels_first(node.emit("Mul", [x, node.emit("Pow", [scaled, node.add_float(-p.beta)])]))


def _mvn(node: CaffeNode) -> Sequence[str]:
    """Less the mean, over the standard deviation plus eps, of each image's channel or whole image."""
    p, rank = node.layer.mvn_param, len(node.shape())
    axes = {"axes": tuple(range(1 if p.across_channels else 2, rank))}
    node.refuse_unless(bool(axes["axes"]), f"a blob of rank {rank} has no axes to normalize along")
    mean = node.emit("ReduceMean", [node.input()], axes)
    if not p.normalize_variance:
        return node.done("Sub", [node.input(), mean])
    centred = node.emit("Sub", [node.input(), mean])
    variance = node.emit("ReduceMean", [node.emit("Mul", [centred, centred])], axes)
    return node.done(
        "Div", [centred, node.emit("Add", [node.emit("Sqrt", [variance]), node.add_float(p.eps, "eps")])]
    )


def _normalize(node: CaffeNode) -> Sequence[str]:
    """SSD's: over the root of the sum of squares, along the channels or over all, times a scale."""
    p, rank = node.layer.norm_param, len(node.shape())
    axes = {"axes": tuple(range(1, rank)) if p.across_spatial else (1,)}
    squares = node.emit("ReduceSum", [node.emit("Mul", [node.input(), node.input()])], axes)
    length = node.emit("Sqrt", [node.emit("Add", [squares, node.add_float(p.eps, "eps")])])
    if not node.blobs:
        return node.done("Div", [node.input(), length])
    scale = node.fitted(0, "scale", (1,) if p.channel_shared else channels(node))
    return node.done(
        "Mul",
        [
            node.emit("Div", [node.input(), length]),
            node.add_float(scale, "scale") if scale.size == 1 else along(node, scale, 1),
        ],
    )


def _length_norm(power: int) -> Handler:
    def handle(node: CaffeNode) -> Sequence[str]:
        axis = node.axis(node.layer.l2normalization_param.axis, len(node.shape()))
        return node.done("LpNorm", [node.input()], {"axis": axis, "p": power})

    return handle


def _layer_norm(node: CaffeNode) -> Sequence[str]:
    """Over the last axis, times a scale, plus a bias."""
    wide = node.shape()[-1:]
    given = [node.add_float(node.fitted(i, what, wide), what) for i, what in ((0, "scale"), (1, "bias"))]
    return node.done("LayerNorm", [node.input(), *given])


def _group_norm(node: CaffeNode) -> Sequence[str]:
    p, channels = node.layer.group_norm_param, node.shape()[1]
    node.refuse_unless(channels <= MOST_CHANNELS, f"{channels} channels")
    ones, zeros = node.add_float(np.ones(channels), "ones"), node.add_float(np.zeros(channels), "zeros")
    attrs = {"groups": int(p.group_num), "epsilon": p.eps}
    return node.channels_first(node.emit("GroupNorm", [node.channels_last(node.input()), ones, zeros], attrs))


def _reduction(node: CaffeNode) -> Sequence[str]:
    p, rank = node.layer.reduction_param, len(node.shape())
    op = {"SUM": "ReduceSum", "ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare", "MEAN": "ReduceMean"}[
        node.choice(p, "operation")
    ]
    attrs = {"axes": tuple(range(node.axis(p.axis, rank), rank)), "keepdims": False}
    if p.coeff == 1:
        return node.done(op, [node.input()], attrs)
    return node.done("Mul", [node.emit(op, [node.input()], attrs), node.add_float(p.coeff, "coefficient")])


def _arg_max(node: CaffeNode) -> Sequence[str]:
    """The places of the greatest elements, their values, or both, along an axis or in all of each image."""
    p, shape = node.layer.argmax_param, node.shape()
    flat = not p.HasField("axis")
    axis = 1 if flat else node.axis(p.axis, len(shape))
    x = (
        node.emit("Reshape", [node.input()], {"shape": (shape[0], prod(shape[1:]))}, tag="flat")
        if flat
        else node.input()
    )
    count = int(p.top_k)
    node.refuse_unless(
        0 < count <= node.builder.shape(x)[axis], f"the greatest {count} of {node.builder.shape(x)[axis]}"
    )
    if count == 1 and not p.out_max_val:  # of equals Caffe names the last
        places = node.emit("ArgMax", [x], {"axis": axis, "last": True})
        values = ""
    else:
        values, places = node.emit_all("TopK", [x], {"k": count, "axis": axis}, count=2)
    if not flat:
        return (
            node.done("Identity", [values]) if p.out_max_val else node.done("Cast", [places], {"to": "f32"})
        )
    numbers = node.emit("Cast", [places], {"to": "f32"}, tag="numbers")
    made = node.emit("Concat", [numbers, values], {"axis": 1}) if p.out_max_val else numbers
    pairs = 2 if p.out_max_val else 1
    return node.done("Reshape", [made], {"shape": (shape[0], pairs, count, *(1,) * (len(shape) - 3))})


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
