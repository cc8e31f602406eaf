"""Detectors: anchors, the choice among decoded boxes, and pools of regions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import Array, Shape
from mace_frontend_caffe.node import CUT_BEFORE, CaffeNode
from mace_frontend_caffe.ops import Handler

MAX_ANCHORS = 1 << 21
"""Anchors of a layer: they become constants, which a damaged file must not make huge."""

MAX_BOXES = 1 << 16
"""Boxes that an image may keep: the output has a row for each, whether there is a box or not."""

RATIO_TOLERANCE = 1e-6
"""How close two aspect ratios are the same one for SSD (prior_box_layer.cpp)."""


def _prior_box(node: CaffeNode) -> Sequence[str]:
    """Add SSD's anchors of every pixel and their variances, [1, 2, 4 * anchors].

    They depend on the shapes of the bottoms alone, which are known here, so that they become a constant.
    """
    parameters = node.layer.prior_box_param
    node.refuse_unless(len(node.shape(0)) == len(node.shape(1)) == 4, "its bottoms need rank 4")
    height, width = node.shape(0)[2:]
    node.refuse_unless(
        len(parameters.max_size) in (0, len(parameters.min_size)),
        f"it has {len(parameters.max_size)} values of max_size for {len(parameters.min_size)} of min_size",
    )
    node.refuse_unless(
        min(parameters.aspect_ratio, default=1) > 0, "it has an aspect_ratio that is not positive"
    )
    variances = list(parameters.variance) or [0.1]
    node.refuse_unless(len(variances) in (1, 4), f"it has {len(variances)} variances; it needs 1 or 4")
    sizes = np.array(list(_box_sizes(parameters)), np.float64)
    count = len(sizes) * height * width
    node.refuse_unless(0 < count <= MAX_ANCHORS, f"it has {count} anchors; it needs 1 to {MAX_ANCHORS}")
    corners = _anchor_corners(node, sizes)
    boxes = np.clip(corners, 0, 1) if parameters.clip else corners
    rows = [boxes.reshape(-1), np.broadcast_to(variances, boxes.shape).reshape(-1)]
    return [node.add_float(np.stack(rows)[None], "anchors")]


def _anchor_corners(node: CaffeNode, sizes: Array) -> Array:
    """Return left, top, right and bottom of the anchors [height, width, sizes, 4] as parts of the image."""
    parameters = node.layer.prior_box_param
    (height, width), (rows, columns) = node.shape(0)[2:], node.shape(1)[2:]
    image_height = parameters.img_h or parameters.img_size or rows
    image_width = parameters.img_w or parameters.img_size or columns
    # A step that the file does not state is the exact ratio, not a rounded number of pixels.
    step_y = parameters.step_h or parameters.step or image_height / height
    step_x = parameters.step_w or parameters.step or image_width / width
    centers_y = (np.arange(height) + parameters.offset) * step_y
    centers_x = (np.arange(width) + parameters.offset) * step_x
    y, x = np.meshgrid(centers_y, centers_x, indexing="ij")
    centers = np.stack([x, y], -1)[:, :, None, :]
    corners = np.concatenate([centers - sizes / 2, centers + sizes / 2], -1)
    normalized: Array = corners / [image_width, image_height, image_width, image_height]
    return normalized


def _box_sizes(parameters: Any) -> Iterator[tuple[float, float]]:
    """Yield width and height of the anchors of a pixel.

    The order is that of prior_box_layer.cpp, because the outputs of the network are in the same: for each
    min_size the square, the square between it and its max_size, and then each ratio.
    """
    # The ratio 1 is the square; Caffe skips a ratio that was there before, so that 1 and the inverse of 2 may
    # be listed.
    ratios = [1.0]
    for ratio in parameters.aspect_ratio:
        for value in (ratio, 1 / ratio) if parameters.flip else (ratio,):
            if all(abs(value - other) >= RATIO_TOLERANCE for other in ratios):
                ratios.append(value)
    for i, size in enumerate(parameters.min_size):
        yield size, size
        if len(parameters.max_size):
            side = sqrt(size * parameters.max_size[i])
            yield side, side
        yield from ((size * sqrt(ratio), size / sqrt(ratio)) for ratio in ratios[1:])


def _detection_output(node: CaffeNode) -> Sequence[str]:
    """Add the boxes above a threshold that overlap no better one.

    Each is a row [image, class, score, left, top, right, bottom].

    How many there are is known at run time alone, but tensors of the IR have fixed shapes: there are as many
    rows as there can be, and those behind the last box are 0. As in OpenCV, the boxes of an image are in the
    order of their scores; SSD's Caffe groups them by class.
    """
    parameters = node.layer.detection_output_param
    classes, count = int(parameters.num_classes), node.shape(2)[-1] // 4
    _check_detections(node, classes, count)
    images = node.shape()[0]
    boxes_per_anchor = 1 if parameters.share_location else classes
    locations_shape = (images, count, boxes_per_anchor, 4)
    locations = node.emit("Reshape", [node.input(0)], {"shape": locations_shape}, tag="locations")
    scores = node.emit("Reshape", [node.input(1)], {"shape": (images, count, classes)}, tag="scores")
    # The second row of the anchors are the variances, which a network that has learned them needs no more.
    rows_of_anchors = 1 if parameters.variance_encoded_in_target else 2
    priors = [_select(node, node.input(2), 1, i, (count, 4)) for i in range(rows_of_anchors)]
    candidates = []
    for label in range(classes):
        if label == parameters.background_label_id:
            continue
        moves = _select(node, locations, 2, 0 if parameters.share_location else label, (images, count, 4))
        boxes = _decode_boxes(node, moves, priors)
        candidates.append((label, boxes, _select(node, scores, 2, label, (images, count))))
    node.refuse_unless(len(candidates) > 0, "it has no class but the background")
    parts = [_detect_in_image(node, image, candidates) for image in range(images)]
    rows = parts[0]
    if len(parts) > 1:
        rows = _move_boxes_to_front(node, node.emit("Concat", parts, {"axis": 0}))
    return node.done("Reshape", [rows], {"shape": (1, 1, *node.builder.shape(rows))})


def _check_detections(node: CaffeNode, classes: int, count: int) -> None:
    """Refuse bottoms whose sizes do not belong together, and parameters that the IR cannot represent."""
    parameters = node.layer.detection_output_param
    # A network whose variances are encoded in its outputs may have anchors with or without them.
    allowed = [(1, 2, 4 * count)]
    if parameters.variance_encoded_in_target:
        allowed.append((1, 1, 4 * count))
    node.refuse_unless(
        node.shape(2) in allowed,
        f"its anchors have shape {list(node.shape(2))}; they need {list(allowed[0])}",
    )
    sizes = [int(np.prod(node.shape(i)[1:], dtype=np.int64)) for i in (0, 1)]
    boxes_per_anchor = 1 if parameters.share_location else classes
    node.refuse_unless(
        sizes == [count * boxes_per_anchor * 4, count * classes],
        f"it has {sizes[0]} locations and {sizes[1]} scores for {count} boxes of {classes} classes",
    )
    node.refuse_unless(count > 0, "it has no anchors")
    node.refuse_unless(
        parameters.nms_param.eta == 1, "its overlap threshold adapts (eta is not 1)", CUT_BEFORE
    )


def _move_boxes_to_front(node: CaffeNode, rows: str) -> str:
    """Return the rows that hold boxes before those of zeros, in their order otherwise."""
    count = node.builder.shape(rows)[0]
    # TopK keeps the order of equal elements, so that sorting by "is empty" moves whole groups alone.
    sizes = node.emit("ReduceMax", [node.emit("Abs", [rows])], {"axes": (1,), "keepdims": False})
    is_empty = node.emit("Cast", [node.emit("Equal", [sizes, node.add_float(0.0)])], {"to": "f32"})
    _, order = node.emit_all("TopK", [is_empty], {"k": count, "largest": False}, count=2)
    return node.emit("Gather", [rows, order], {"axis": 0})


def _select(node: CaffeNode, x: str, axis: int, index: int, shape: Shape) -> str:
    """Return the elements at one index of an axis, in this shape."""
    full = node.builder.shape(x)
    starts = tuple(index if i == axis else 0 for i in range(len(full)))
    sizes = tuple(1 if i == axis else n for i, n in enumerate(full))
    part = node.emit("Slice", [x], {"starts": starts, "sizes": sizes, "steps": (1,) * len(full)})
    return node.emit("Reshape", [part], {"shape": shape})


def _decode_boxes(node: CaffeNode, moves: str, priors: Sequence[str]) -> str:
    """Return corners of boxes [images, count, 4], which the network computes as moves from anchors.

    priors: the anchors and, unless the network has learned them, the variances (bbox_util.cpp of SSD).
    """
    parameters = node.layer.detection_output_param
    anchors = priors[0]
    for variances in priors[1:]:
        moves = node.emit("Mul", [moves, variances])
    code = node.enum_name(parameters, "code_type")
    node.refuse_unless(code != "NO_CODE", "its boxes are not coded", CUT_BEFORE)
    if code == "CORNER":
        return node.emit("Add", [anchors, moves])
    low, high = node.emit_all("Split", [anchors], {"axis": 1, "sizes": (2, 2)}, count=2)
    size = node.emit("Sub", [high, low])
    if code == "CORNER_SIZE":
        # Corners that move in units of the anchor's width and height.
        size_of_corners = node.emit("Tile", [size], {"repeats": (1, 2)})
        return node.emit("Add", [anchors, node.emit("Mul", [moves, size_of_corners])])
    # CENTER_SIZE: the op of the IR reads anchors as center and size.
    center = node.emit("Mul", [node.emit("Add", [low, high]), node.add_float(0.5, "half")])
    return node.emit("DecodeBoxes", [moves, node.emit("Concat", [center, size], {"axis": 1})])


def _detect_in_image(node: CaffeNode, image: int, candidates: Sequence[tuple[int, str, str]]) -> str:
    """Return the rows of one image, the best first; candidates: label, boxes and scores of each class."""
    parameters = node.layer.detection_output_param
    count = node.builder.shape(candidates[0][1])[1]
    top_k = parameters.nms_param.top_k
    compared = min(int(top_k), count) if top_k > 0 else count
    rows_of_classes, scores_of_classes = [], []
    for label, boxes, scores in candidates:
        image_boxes = _select(node, boxes, 0, image, (count, 4))
        image_scores = _select(node, scores, 0, image, (count,))
        if compared < count:
            # Caffe takes the best boxes of a class before it compares them, not after.
            image_scores, indices = node.emit_all("TopK", [image_scores], {"k": compared}, count=2)
            image_boxes = node.emit("Gather", [image_boxes, indices], {"axis": 0})
        rows, keys = _suppress_overlaps(node, (image, label), image_boxes, image_scores)
        rows_of_classes.append(rows)
        scores_of_classes.append(keys)
    rows = _concat_classes(node, rows_of_classes)
    keys = _concat_classes(node, scores_of_classes)
    total, keep = node.builder.shape(rows)[0], int(parameters.keep_top_k)
    node.refuse_unless(
        keep != 0 and keep <= MAX_BOXES, f"its keep_top_k is {keep}; it needs -1 for all, or 1 to {MAX_BOXES}"
    )
    _, best = node.emit_all("TopK", [keys], {"k": min(keep, total) if keep > 0 else total}, count=2)
    rows = node.emit("Gather", [rows, best], {"axis": 0})
    if keep <= total:
        return rows
    return node.emit("Pad", [rows], {"before": (0, 0), "after": (keep - total, 0)})


def _concat_classes(node: CaffeNode, parts: Sequence[str]) -> str:
    return node.emit("Concat", parts, {"axis": 0}) if len(parts) > 1 else parts[0]


def _suppress_overlaps(
    node: CaffeNode, image_and_label: tuple[int, int], boxes: str, scores: str
) -> tuple[str, str]:
    """Return the rows of one image and class, 0 where there is no box, and the scores to sort them by."""
    parameters = node.layer.detection_output_param
    count = node.builder.shape(scores)[0]
    # Without a threshold every box counts, also one of a negative score: Caffe starts from the lowest float.
    has_threshold = parameters.HasField("confidence_threshold")
    attrs = {
        "per_class": count,
        "iou_threshold": parameters.nms_param.nms_threshold,
        "score_threshold": parameters.confidence_threshold if has_threshold else -inf,
    }
    batch_boxes = node.emit("Reshape", [boxes], {"shape": (1, count, 4)})
    batch_scores = node.emit("Reshape", [scores], {"shape": (1, 1, count)})
    selected, _ = node.emit_all("NonMaxSuppression", [batch_boxes, batch_scores], attrs, count=2)
    # The op of the IR fills the indices behind the last box with -1.
    indices = _select(node, selected, 1, 2, (count,))
    is_box = node.emit("GreaterEqual", [indices, node.add_indices(0, "zero")])
    column = node.emit("Reshape", [scores], {"shape": (count, 1)})
    rows = node.emit("Concat", [column, boxes], {"axis": 1})
    rows = node.emit("Gather", [rows, indices], {"axis": 0})
    head = node.add_float(np.array([image_and_label], np.float32), "head")
    heads = node.emit("Expand", [head], {"shape": (count, 2)})
    full_rows = node.emit("Concat", [heads, rows], {"axis": 1})
    is_box_column = node.emit("Reshape", [is_box], {"shape": (count, 1)})
    visible = node.emit("Where", [is_box_column, full_rows, node.add_float(0.0, "none")])
    # Rows without a box sort behind all others, also behind boxes of negative scores.
    keys = node.emit("Where", [is_box, _select(node, rows, 1, 0, (count,)), node.add_float(-inf, "least")])
    return visible, keys


def _roi_pooling(node: CaffeNode) -> Sequence[str]:
    """Add the largest elements of regions (R. Girshick, "Fast R-CNN", 2015).

    The second bottom has a row [image, left, top, right, bottom] for each region, in pixels of the network's
    input; `spatial_scale` makes them pixels of the first bottom.
    """
    parameters, regions = node.layer.roi_pooling_param, node.shape(1)
    node.refuse_unless(
        len(regions) in (2, 4) and regions[1] == 5 and np.prod(regions) == 5 * regions[0],
        f"its regions have shape {list(regions)}; they need [n, 5]",
    )
    rows = node.emit("Reshape", [node.input(1)], {"shape": regions[:2]})
    images, boxes = node.emit_all("Split", [rows], {"axis": 1, "sizes": (1, 4)}, count=2)
    # All blobs of Caffe are floats, the number of the image among them.
    images = node.emit("Reshape", [images], {"shape": (regions[0],)})
    numbers = node.emit("Cast", [images], {"to": "i64"}, tag="images")
    size = (int(parameters.pooled_h), int(parameters.pooled_w))
    attrs = {"size": size, "scale": parameters.spatial_scale}
    x = node.channels_last(node.input())
    return node.channels_first(node.emit("RoiMaxPool", [x, boxes, numbers], attrs))


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"PriorBox": _prior_box, "DetectionOutput": _detection_output, "ROIPooling": _roi_pooling}
)
