"""Detectors: anchors, boxes that are decoded and told apart, regions of interest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_frontend_caffe.node import CaffeNode
from mace_frontend_caffe.ops import Handler

MOST_ANCHORS = 1 << 22
MOST_BOXES = 1 << 16


def _prior_box(node: CaffeNode) -> Sequence[str]:
    """SSD's anchors of every pixel and their variances, [1, 2, 4 * anchors]: constants, for all shapes are known."""
    p = node.layer.prior_box_param
    node.refuse_unless(len(node.shape(0)) == len(node.shape(1)) == 4, "its bottoms need rank 4")
    (_, _, height, width), (_, _, rows, columns) = node.shape(0), node.shape(1)
    image = (p.img_h or p.img_size or rows, p.img_w or p.img_size or columns)
    steps = (p.step_h or p.step or image[0] / height, p.step_w or p.step or image[1] / width)
    node.refuse_unless(
        len(p.max_size) in (0, len(p.min_size)),
        f"{len(p.max_size)} largest sizes for {len(p.min_size)} least ones",
    )
    node.refuse_unless(
        min(p.aspect_ratio, default=1) > 0 and len(p.variance) in (0, 1, 4),
        "ratios or variances that make no sense",
    )
    sizes = np.array(list(_box_sizes(p)), np.float64)
    node.refuse_unless(
        0 < sizes.size * height * width <= MOST_ANCHORS,
        f"{len(sizes)} anchor sizes for {height} x {width} pixels",
    )
    y, x = np.meshgrid(
        (np.arange(height) + p.offset) * steps[0], (np.arange(width) + p.offset) * steps[1], indexing="ij"
    )
    centres = np.stack([x, y], -1)[:, :, None, :]
    corners = np.concatenate([centres - sizes / 2, centres + sizes / 2], -1) / [
        image[1],
        image[0],
        image[1],
        image[0],
    ]
    boxes = np.clip(corners, 0, 1) if p.clip else corners
    variances = np.broadcast_to(list(p.variance) or [0.1], boxes.shape)
    return [node.add_float(np.stack([boxes.reshape(-1), variances.reshape(-1)])[None], "anchors")]


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


def _detection_output(node: CaffeNode) -> Sequence[str]:
    """Boxes above a threshold that overlap no better one: rows [image, class, score, left, top, right, bottom].

    They are counted at run time only: there are as many rows as there can be, and those behind the last box
    are 0. As in OpenCV, those of an image are in the order of their scores.
    """
    p = node.layer.detection_output_param
    classes, count = int(p.num_classes), node.shape(2)[-1] // 4
    images = node.shape()[0]
    kinds = 1 if p.share_location else classes
    told = (1, 1 + (not p.variance_encoded_in_target), 4 * count)
    node.refuse_unless(node.shape(2) in (told, (1, 2, 4 * count)), f"anchors of shape {list(node.shape(2))}")
    given = [tuple(np.prod(node.shape(i)[1:], dtype=np.int64, keepdims=True)) for i in (0, 1)]
    node.refuse_unless(
        given == [(count * kinds * 4,), (count * classes,)],
        f"numbers for other than {count} boxes of {classes} classes",
    )
    node.refuse_unless(p.nms_param.eta == 1 and count > 0, "thresholds that adapt (eta)")
    locations = node.emit("Reshape", [node.input(0)], {"shape": (images, count, kinds, 4)}, tag="locations")
    scores = node.emit("Reshape", [node.input(1)], {"shape": (images, count, classes)}, tag="scores")
    priors = [_part(node, node.input(2), 1, i, (count, 4)) for i in range(told[1])]
    rows = []
    for label in (c for c in range(classes) if c != p.background_label_id):
        place = _part(node, locations, 2, 0 if kinds == 1 else label, (images, count, 4))
        boxes = _decoded(node, place, priors)
        rows.append((label, boxes, _part(node, scores, 2, label, (images, count))))
    node.refuse_unless(len(rows) > 0, "no class but the background")
    made = [_of_image(node, image, rows) for image in range(images)]
    joined = _closed_up(node, node.emit("Concat", made, {"axis": 0})) if len(made) > 1 else made[0]
    return node.done("Reshape", [joined], {"shape": (1, 1, *node.builder.shape(joined))})


def _closed_up(node: CaffeNode, rows: str) -> str:
    """The rows that hold boxes before those that do not, else in their order."""
    count = node.builder.shape(rows)[0]
    empty = node.emit(
        "Equal",
        [
            node.emit("ReduceMax", [node.emit("Abs", [rows])], {"axes": (1,), "keepdims": False}),
            node.add_float(0.0),
        ],
    )
    _, order = node.emit_all(
        "TopK", [node.emit("Cast", [empty], {"to": "f32"})], {"k": count, "largest": False}, count=2
    )
    return node.emit("Gather", [rows, order], {"axis": 0})


def _part(node: CaffeNode, x: str, axis: int, index: int, shape: Sequence[int]) -> str:
    """What lies at one place of an axis, in this shape."""
    whole = node.builder.shape(x)
    starts = tuple(index if i == axis else 0 for i in range(len(whole)))
    sizes = tuple(1 if i == axis else n for i, n in enumerate(whole))
    cut = node.emit("Slice", [x], {"starts": starts, "sizes": sizes, "steps": (1,) * len(whole)})
    return node.emit("Reshape", [cut], {"shape": tuple(shape)})


def _decoded(node: CaffeNode, moves: str, priors: Sequence[str]) -> str:
    """Corners of boxes [images, count, 4] that are told as moves from anchors."""
    p = node.layer.detection_output_param
    anchors = priors[0]
    for variances in priors[1:]:
        moves = node.emit("Mul", [moves, variances])
    kind = node.choice(p, "code_type")
    node.refuse_unless(kind != "NO_CODE", "boxes that are not coded")
    if kind == "CORNER":
        return node.emit("Add", [anchors, moves])
    low, high = node.emit_all("Split", [anchors], {"axis": 1, "sizes": (2, 2)}, count=2)
    size = node.emit("Sub", [high, low])
    if kind == "CORNER_SIZE":
        return node.emit(
            "Add", [anchors, node.emit("Mul", [moves, node.emit("Tile", [size], {"repeats": (1, 2)})])]
        )
    middle = node.emit("Mul", [node.emit("Add", [low, high]), node.add_float(0.5, "half")])
    return node.emit("DecodeBoxes", [moves, node.emit("Concat", [middle, size], {"axis": 1})])


def _of_image(node: CaffeNode, image: int, classes: Sequence[tuple[int, str, str]]) -> str:
    """The rows of one image, the best first; classes: label, boxes and scores of each."""
    p = node.layer.detection_output_param
    count = node.builder.shape(classes[0][1])[1]
    first = min(int(p.nms_param.top_k), count) if p.nms_param.top_k > 0 else count
    parts = []
    for label, boxes, scores in classes:
        box = _part(node, boxes, 0, image, (count, 4))
        score = _part(node, scores, 0, image, (count,))
        if first < count:  # only the best go into the comparison
            score, places = node.emit_all("TopK", [score], {"k": first}, count=2)
            box = node.emit("Gather", [box, places], {"axis": 0})
        parts.append(_told_apart(node, (image, label), box, score))
    rows, keys = (
        node.emit("Concat", made, {"axis": 0}) if len(made) > 1 else made[0]
        for made in zip(*parts, strict=True)
    )
    total, keep = node.builder.shape(rows)[0], int(p.keep_top_k)
    node.refuse_unless(keep != 0 and keep <= MOST_BOXES, f"keep_top_k is {keep}")
    _, best = node.emit_all("TopK", [keys], {"k": min(keep, total) if keep > 0 else total}, count=2)
    kept = node.emit("Gather", [rows, best], {"axis": 0})
    return kept if keep <= total else node.emit("Pad", [kept], {"before": (0, 0), "after": (keep - total, 0)})


def _told_apart(node: CaffeNode, place: tuple[int, int], box: str, score: str) -> tuple[str, str]:
    """Rows of one image and class, 0 where there is no box; and their scores, which are least there."""
    p = node.layer.detection_output_param
    count = node.builder.shape(score)[0]
    threshold = p.confidence_threshold if p.HasField("confidence_threshold") else -inf
    attrs = {"per_class": count, "iou_threshold": p.nms_param.nms_threshold, "score_threshold": threshold}
    boxes = node.emit("Reshape", [box], {"shape": (1, count, 4)})
    scores = node.emit("Reshape", [score], {"shape": (1, 1, count)})
    selected, _ = node.emit_all("NonMaxSuppression", [boxes, scores], attrs, count=2)
    places = _part(node, selected, 1, 2, (count,))
    real = node.emit("GreaterEqual", [places, node.places(0, "zero")])
    rows = node.emit("Concat", [node.emit("Reshape", [score], {"shape": (count, 1)}), box], {"axis": 1})
    found = node.emit("Gather", [rows, places], {"axis": 0})
    head = node.emit("Expand", [node.add_float(np.array([place], np.float32), "head")], {"shape": (count, 2)})
    whole = node.emit("Concat", [head, found], {"axis": 1})
    shown = node.emit(
        "Where", [node.emit("Reshape", [real], {"shape": (count, 1)}), whole, node.add_float(0.0, "none")]
    )
    return shown, node.emit(
        "Where", [real, _part(node, found, 1, 0, (count,)), node.add_float(-inf, "least")]
    )


def _roi_pooling(node: CaffeNode) -> Sequence[str]:
    """Fast R-CNN's: regions are rows [image, left, top, right, bottom]."""
    p, regions = node.layer.roi_pooling_param, node.shape(1)
    node.refuse_unless(
        len(regions) in (2, 4) and regions[1] == 5 and np.prod(regions) == 5 * regions[0],
        f"regions of {list(regions)}",
    )
    rows = node.emit("Reshape", [node.input(1)], {"shape": regions[:2]})
    images, boxes = node.emit_all("Split", [rows], {"axis": 1, "sizes": (1, 4)}, count=2)
    numbers = node.emit(
        "Cast", [node.emit("Reshape", [images], {"shape": (regions[0],)})], {"to": "i64"}, tag="images"
    )
    attrs = {"size": (int(p.pooled_h), int(p.pooled_w)), "scale": p.spatial_scale}
    return node.channels_first(
        node.emit("RoiMaxPool", [node.channels_last(node.input()), boxes, numbers], attrs)
    )


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"PriorBox": _prior_box, "DetectionOutput": _detection_output, "ROIPooling": _roi_pooling}
)
