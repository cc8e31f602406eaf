"""Norms, reductions, and the anchors of detectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_frontend_caffe.node import Node
from mace_frontend_caffe.ops import Handler
from mace_frontend_caffe.ops.elementwise import along


def _softmax(op: str) -> Handler:
    def handle(node: Node) -> Sequence[str]:
        return node.done(op, [node.input()], {"axis": node.axis(node.layer.softmax_param.axis, len(node.shape()))})

    return handle


def _lrn(node: Node) -> Sequence[str]:
    p = node.layer.lrn_param
    size = int(p.local_size)
    node.refuse_unless(size % 2 == 1, f"a local size of {size}")
    x = node.channels_last(node.input())
    if p.norm_region == 0:
        attrs = {"size": size, "alpha": p.alpha, "beta": p.beta, "bias": p.k}
        return node.channels_first(node.emit("LRN", [x], attrs))
    rank = len(node.shape()) - 2
    pads = (size // 2,) * rank
    window = {"kernel": (size,) * rank, "strides": (1,) * rank, "dilations": (1,) * rank, "pads_before": pads, "pads_after": pads}
    mean = node.emit("AveragePool", [node.emit("Mul", [x, x])], {**window, "count_pad": True})
    scaled = node.emit("Add", [node.emit("Mul", [mean, node.weight(p.alpha)]), node.weight(1.0)])
    return node.channels_first(node.emit("Mul", [x, node.emit("Pow", [scaled, node.weight(-p.beta)])]))


def _mvn(node: Node) -> Sequence[str]:
    """Less the mean, over the standard deviation plus eps, of each image's channel or whole image."""
    p, rank = node.layer.mvn_param, len(node.shape())
    axes = {"axes": tuple(range(1 if p.across_channels else 2, rank))}
    centred = node.emit("Sub", [node.input(), node.emit("ReduceMean", [node.input()], axes)])
    if not p.normalize_variance:
        return node.done("Identity", [centred])
    variance = node.emit("ReduceMean", [node.emit("Mul", [centred, centred])], axes)
    return node.done("Div", [centred, node.emit("Add", [node.emit("Sqrt", [variance]), node.weight(p.eps, "eps")])])


def _normalize(node: Node) -> Sequence[str]:
    """SSD's: over the root of the sum of squares, along the channels or over all, times a scale."""
    p, rank = node.layer.norm_param, len(node.shape())
    axes = {"axes": tuple(range(1, rank)) if p.across_spatial else (1,)}
    squares = node.emit("ReduceSum", [node.emit("Mul", [node.input(), node.input()])], axes)
    length = node.emit("Sqrt", [node.emit("Add", [squares, node.weight(p.eps, "eps")])])
    unit = node.emit("Div", [node.input(), length])
    if not node.blobs:
        return node.done("Identity", [unit])
    scale = node.blob(0, "scale").reshape(-1)
    return node.done("Mul", [unit, node.weight(scale, "scale") if scale.size == 1 else along(node, scale, 1)])


def _group_norm(node: Node) -> Sequence[str]:
    p, channels = node.layer.group_norm_param, node.shape()[1]
    ones, zeros = node.weight(np.ones(channels), "ones"), node.weight(np.zeros(channels), "zeros")
    attrs = {"groups": int(p.group_num), "epsilon": p.eps}
    return node.channels_first(node.emit("GroupNorm", [node.channels_last(node.input()), ones, zeros], attrs))


def _reduction(node: Node) -> Sequence[str]:
    p, rank = node.layer.reduction_param, len(node.shape())
    kind = p.DESCRIPTOR.fields_by_name["operation"].enum_type.values_by_number[p.operation].name
    op = {"SUM": "ReduceSum", "ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare", "MEAN": "ReduceMean"}[kind]
    attrs = {"axes": tuple(range(node.axis(p.axis, rank), rank)), "keepdims": False}
    if p.coeff == 1:
        return node.done(op, [node.input()], attrs)
    return node.done("Mul", [node.emit(op, [node.input()], attrs), node.weight(p.coeff, "coefficient")])


def _arg_max(node: Node) -> Sequence[str]:
    p, shape = node.layer.argmax_param, node.shape()
    node.refuse_unless(p.top_k == 1 and not p.out_max_val, "more than the place of the greatest element")
    if p.HasField("axis"):
        place = node.emit("ArgMax", [node.input()], {"axis": node.axis(p.axis, len(shape))})
        return node.done("Cast", [place], {"to": "f32"})
    flat = node.emit("Reshape", [node.input()], {"shape": (shape[0], 1, prod(shape[1:]))})
    return node.done("Cast", [node.emit("ArgMax", [flat], {"axis": 2})], {"to": "f32"})


def _prior_box(node: Node) -> str:
    """SSD's anchors of every pixel and their variances, [1, 2, 4 * anchors]: constants, for all shapes are known."""
    p, (_, _, height, width), (_, _, rows, columns) = node.layer.prior_box_param, node.shape(0), node.shape(1)
    image = (p.img_h or p.img_size or rows, p.img_w or p.img_size or columns)
    steps = (p.step_h or p.step or image[0] / height, p.step_w or p.step or image[1] / width)
    sizes = np.array(list(_box_sizes(p)), np.float64)
    node.refuse_unless(sizes.size > 0, "no anchor sizes")
    y, x = np.meshgrid((np.arange(height) + p.offset) * steps[0], (np.arange(width) + p.offset) * steps[1], indexing="ij")
    centres = np.stack([x, y], -1)[:, :, None, :]
    corners = np.concatenate([centres - sizes / 2, centres + sizes / 2], -1) / [image[1], image[0], image[1], image[0]]
    boxes = np.clip(corners, 0, 1) if p.clip else corners
    given = list(p.variance) or [0.1]
    variances = np.broadcast_to(given if len(given) == 4 else given[:1], boxes.shape)
    return node.weight(np.stack([boxes.reshape(-1), variances.reshape(-1)])[None], "anchors")


def _box_sizes(p: Any) -> Iterator[tuple[float, float]]:
    """Width and height: of each least size the square, the one between it and its largest, then each ratio."""
    ratios = [1.0]
    for ratio in p.aspect_ratio:
        for value in (ratio, 1 / ratio) if p.flip else (ratio,):
            if all(abs(value - r) >= 1e-6 for r in ratios):
                ratios.append(value)
    for i, least in enumerate(p.min_size):
        yield least, least
        if len(p.max_size):
            side = sqrt(least * p.max_size[i])
            yield side, side
        yield from ((least * sqrt(r), least / sqrt(r)) for r in ratios[1:])


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
        "PriorBox": _prior_box,
    }
)
