"""Selection of boxes by their scores (non-maximum suppression)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

MAX_BOXES = 1 << 20
"""Limit of the boxes that a node may select: the results have this size whatever is found."""


def _scalar(node: TfliteNode, index: int, meaning: str) -> float:
    return float(node.constant(index, meaning).reshape(()))


def _select_boxes(node: TfliteNode) -> tuple[str, str]:
    """Return the numbers of the selected boxes, 0 behind the last, and their count."""
    boxes, limit = node.shape(0), node.ints(2, "number of boxes")[0]
    node.require_consistent(
        len(boxes) == 2 and 0 < limit <= MAX_BOXES, f"it selects {limit} of boxes of shape {list(boxes)}"
    )
    attrs = {
        "per_class": limit,
        "iou_threshold": _scalar(node, 3, "overlap"),
        "score_threshold": _scalar(node, 4, "score"),
    }
    shaped = node.emit("Reshape", [node.input(0)], {"shape": (1, *boxes)}, tag="boxes")
    scores = node.emit("Reshape", [node.input(1)], {"shape": (1, 1, boxes[0])}, tag="scores")
    rows, number = node.emit_tagged("NonMaxSuppression", [shaped, scores], attrs, ("rows", "found"))
    size = node.tensor(rows).shape[0]
    # The op's rows are (batch, class, box), and -1 behind the last; the kernel gives the boxes alone, and 0
    # behind.
    cut = {"starts": (0, 2), "sizes": (size, 1), "steps": (1, 1)}
    column = node.emit("Slice", [rows], cut, tag="column")
    flat = node.emit("Reshape", [column], {"shape": (size,)}, tag="flat")
    places = node.emit("Maximum", [flat, node.add_constant(np.int64(0))], tag="places")
    # The op selects no more than there are boxes, the kernel's results have the stated size.
    padded = node.emit("Pad", [places], {"before": (0,), "after": (limit - size,)}, tag="padded")
    scalar = node.emit("Reshape", [number], {"shape": ()}, tag="count")
    count = node.emit("Cast", [scalar], {"to": "i32"}, tag="count")
    return node.emit("Cast", [padded], {"to": "i32"}, tag="selected"), count


def _nms(node: TfliteNode) -> Sequence[str]:
    """Add NON_MAX_SUPPRESSION_V4(boxes, scores, number, overlap, score)."""
    return _select_boxes(node)


def _nms_scores(node: TfliteNode) -> Sequence[str]:
    """Add NON_MAX_SUPPRESSION_V5(..., sigma), which also gives the scores of the selected boxes."""
    # With sigma above 0 the scores of overlapping boxes decay instead of being left out; the IR's op cannot.
    node.require_supported(
        _scalar(node, 5, "sigma") == 0, "it has scores that fall with overlap (its soft form)"
    )
    selected, count = _select_boxes(node)
    size = node.tensor(selected).shape[0]
    scores = node.emit("Gather", [node.input(1), selected], {"axis": 0}, tag="scores")
    order = node.add_constant(np.arange(size, dtype=np.int32), tag="order")
    # Behind the last box `selected` is 0, a real box; its score must be 0 there.
    real = node.emit("Less", [order, count], tag="real")
    return [
        selected,
        node.emit("Where", [real, scores, node.add_constant(np.float32(0))], tag="scores"),
        count,
    ]


@dataclass(frozen=True)
class _Detection:
    """The options of TFLite_Detection_PostProcess (tensorflow/lite/kernels/detection_postprocess.cc).

    limit: of detections.  per_class: limit for each class.  classes: their number, without the background.
    scales: divisors of the codes y, x, h, w.  regular: whether boxes are selected in each class by itself.
    """

    limit: int
    per_class: int
    classes: int
    score: float
    overlap: float
    scales: tuple[float, float, float, float]
    regular: bool

    @classmethod
    def of(cls, data: bytes) -> _Detection:
        """Read the options from a map of flexbuffers; ValueError if there is none."""
        try:
            options: dict[str, Any] = flexbuffers.Loads(bytearray(data))
            y, x, h, w = (float(options[f"{axis}_scale"]) for axis in "yxhw")
            limit, classes = int(options["max_detections"]), int(options["num_classes"])
            # The defaults of the kernel, for options that older files lack.
            regular = bool(options.get("use_regular_nms", False))
            per_class = int(options.get("detections_per_class", 100)) if regular else limit
            several = not regular and int(options.get("max_classes_per_detection", 1)) != 1
            score, overlap = float(options["nms_score_threshold"]), float(options["nms_iou_threshold"])
        except Exception as error:  # the library documents no exceptions and raises many kinds
            raise ValueError(f"options that cannot be read: {error}") from error
        if several:
            raise ValueError("several classes of one box")
        return cls(limit, per_class, classes, score, overlap, (y, x, h, w), regular)


def _detection(node: TfliteNode) -> Sequence[str]:
    """Add TFLite_Detection_PostProcess(box codes, class scores, anchors).

    Its outputs are boxes, classes, scores, and their number.
    """
    options = _Detection.of(node.operator.custom)
    images, count, width = node.shape(1)
    # A first column of scores may be the background's, which is never a result.
    known = width - options.classes in (0, 1) and options.classes > 0
    node.require_consistent(
        known and 0 < options.limit <= MAX_BOXES,
        f"it has {width} scores for {options.classes} classes",
    )
    scores = node.input(1)
    if node.tensor(scores).quant:
        scores = node.emit("Dequantize", [scores], tag="floats")
    cut = {
        "starts": (0, 0, width - options.classes),
        "sizes": (images, count, options.classes),
        "steps": (1, 1, 1),
    }
    scores = node.emit("Slice", [scores], cut, tag="scores")
    # The fast form selects boxes by the score of their best class alone, the IR's op in each class by itself:
    # so it gets one class of the best scores. With one class both forms are the same.
    if not options.regular and options.classes > 1:
        best = node.emit("ReduceMax", [scores], {"axes": (2,), "keepdims": True}, tag="best")
        first = node.emit("ArgMax", [scores], {"axis": 2, "keepdims": False}, tag="first")
        return _results(node, options, best, first)
    return _results(node, options, scores, None)


def _results(node: TfliteNode, options: _Detection, scores: str, classes: str | None) -> Sequence[str]:
    images, count, _ = node.tensor(scores).shape
    boxes = node.emit("Reshape", [_decode_boxes(node, options)], {"shape": (images, count, 1, 4)}, tag="each")
    # The kernel keeps a score that equals the threshold, the IR's op one above it.
    below = float(np.nextafter(np.float32(options.score), np.float32(-np.inf)))
    attrs = {
        "per_class": options.per_class,
        "total": options.limit,
        "iou_threshold": options.overlap,
        "score_threshold": below,
    }
    tags = ("boxes", "scores", "classes", "places", "count")
    selected, best, which, places, number = node.emit_tagged(
        "CombinedNonMaxSuppression", [boxes, scores], attrs, tags
    )
    if classes is not None:
        rows = node.emit("Reshape", [places], {"shape": (images, options.limit, 1)}, tag="rows")
        each = node.emit("GatherND", [classes, rows], {"batch_dims": 1}, tag="each")
        limit = node.emit("Reshape", [number], {"shape": (images, 1)}, tag="limit")
        real = node.emit(
            "Less", [node.add_constant(np.arange(options.limit), tag="order"), limit], tag="real"
        )
        which = node.emit("Where", [real, each, node.add_constant(np.int64(0))], tag="which")
    # The format's classes and number are floats.
    floats = [node.emit("Cast", [x], {"to": "f32"}, tag="floats") for x in (which, number)]
    return [selected, floats[0], best, floats[1]]


def _decode_boxes(node: TfliteNode, options: _Detection) -> str:
    """Return corners [y, x, y, x] of boxes, whose centers and sizes are coded relative to their anchors."""
    parts = []
    for index in (0, 2):
        tensor = node.stored_input(index)
        if node.tensor(tensor).quant:
            tensor = node.emit("Dequantize", [tensor], tag="floats")
        halves = {"axis": len(node.tensor(tensor).shape) - 1, "sizes": (2, 2)}
        parts.append(node.emit_tagged("Split", [tensor], halves, ("center", "size")))
    (center, size), (anchor_center, anchor_size) = parts
    center_scale = node.add_constant(np.array(options.scales[:2], np.float32), tag="scales")
    size_scale = node.add_constant(np.array(options.scales[2:], np.float32), tag="scales")
    # A center is stored in units of its anchor, a size as the logarithm of its ratio to the anchor's (SSD,
    # Liu et al. 2016).
    offset = node.emit("Div", [center, center_scale], tag="offset")
    moved = node.emit("Mul", [offset, anchor_size], tag="moved")
    middle = node.emit("Add", [moved, anchor_center], tag="middle")
    ratio = node.emit("Exp", [node.emit("Div", [size, size_scale], tag="growth")], tag="grown")
    scaled = node.emit("Mul", [ratio, anchor_size], tag="size")
    half = node.emit("Mul", [scaled, node.add_constant(np.float32(0.5))], tag="half")
    corners = [node.emit(op, [middle, half], tag="corner") for op in ("Sub", "Add")]
    return node.emit("Concat", corners, {"axis": len(node.tensor(corners[0]).shape) - 1}, tag="corners")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "NON_MAX_SUPPRESSION_V4": _nms,
        "NON_MAX_SUPPRESSION_V5": _nms_scores,
        "custom TFLite_Detection_PostProcess": _detection,
    }
)
