"""Choosing among boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

MOST_BOXES = 1 << 20


def _scalar(node: TfliteNode, index: int, what: str) -> float:
    return float(node.constant(index, what).reshape(()))


def _selected(node: TfliteNode) -> tuple[str, str]:
    """Places of the boxes to keep, 0 behind the last, and how many they are."""
    boxes, most = node.shape(0), node.ints(2, "number of boxes")[0]
    node.refuse_unless(len(boxes) == 2 and 0 < most <= MOST_BOXES, f"{most} of boxes of shape {list(boxes)}")
    attrs = {
        "per_class": most,
        "iou_threshold": _scalar(node, 3, "overlap"),
        "score_threshold": _scalar(node, 4, "score"),
    }
    shaped = node.emit("Reshape", [node.input(0)], {"shape": (1, *boxes)}, tag="boxes")
    scores = node.emit("Reshape", [node.input(1)], {"shape": (1, 1, boxes[0])}, tag="scores")
    rows, found = node.emit_tagged("NonMaxSuppression", [shaped, scores], attrs, ("rows", "found"))
    kept = node.tensor(rows).shape[0]
    column = node.emit("Slice", [rows], {"starts": (0, 2), "sizes": (kept, 1), "steps": (1, 1)}, tag="column")
    places = node.emit(
        "Maximum",
        [node.emit("Reshape", [column], {"shape": (kept,)}, tag="flat"), node.add_constant(np.int64(0))],
        tag="places",
    )
    padded = node.emit("Pad", [places], {"before": (0,), "after": (most - kept,)}, tag="padded")
    count = node.emit(
        "Cast", [node.emit("Reshape", [found], {"shape": ()}, tag="count")], {"to": "i32"}, tag="count"
    )
    return node.emit("Cast", [padded], {"to": "i32"}, tag="selected"), count


def _nms(node: TfliteNode) -> Sequence[str]:
    """NON_MAX_SUPPRESSION_V4(boxes, scores, most, overlap, score)."""
    return _selected(node)


def _nms_scores(node: TfliteNode) -> Sequence[str]:
    """NON_MAX_SUPPRESSION_V5(..., sigma), which tells the scores too."""
    node.refuse_unless(_scalar(node, 5, "sigma") == 0, "scores that fall with overlap (its soft form)")
    selected, count = _selected(node)
    size = node.tensor(selected).shape[0]
    scores = node.emit("Gather", [node.input(1), selected], {"axis": 0}, tag="scores")
    order = node.add_constant(np.arange(size, dtype=np.int32), tag="order")
    real = node.emit("Less", [order, count], tag="real")
    return [
        selected,
        node.emit("Where", [real, scores, node.add_constant(np.float32(0))], tag="scores"),
        count,
    ]


@dataclass(frozen=True)
class _Detection:
    """The options of TFLite_Detection_PostProcess (tensorflow/lite/kernels/detection_postprocess.cc)."""

    most: int
    per_class: int
    classes: int
    score: float
    overlap: float
    scales: tuple[float, float, float, float]
    regular: bool

    @classmethod
    def of(cls, data: bytes) -> _Detection:
        """From a map of flexbuffers; ValueError if it is none."""
        try:
            given: dict[str, Any] = flexbuffers.Loads(bytearray(data))
            y, x, h, w = (float(given[f"{axis}_scale"]) for axis in "yxhw")
            most, classes, regular = (
                int(given["max_detections"]),
                int(given["num_classes"]),
                bool(given.get("use_regular_nms", False)),
            )
            per_class = int(given.get("detections_per_class", 100)) if regular else most
            several = not regular and int(given.get("max_classes_per_detection", 1)) != 1
            score, overlap = float(given["nms_score_threshold"]), float(given["nms_iou_threshold"])
        except Exception as error:  # the library raises what it pleases
            raise ValueError(f"options that cannot be read: {error}") from error
        if several:
            raise ValueError("several classes of one box")
        return cls(most, per_class, classes, score, overlap, (y, x, h, w), regular)


def _detection(node: TfliteNode) -> Sequence[str]:
    """TFLite_Detection_PostProcess(box codes, class scores, anchors), by class: boxes, classes, scores and their number.

    The fast form keeps of each box its best class only, which the IR's op does not; with one class they are
    the same.
    """
    how = _Detection.of(node.operator.custom)
    images, count, width = node.shape(1)
    node.refuse_unless(
        width - how.classes in (0, 1) and 0 < how.most <= MOST_BOXES and how.classes > 0,
        f"{width} scores for {how.classes} classes",
    )
    scores = (
        node.emit("Dequantize", [node.input(1)], tag="floats")
        if node.tensor(node.input(1)).quant
        else node.input(1)
    )
    cut = {"starts": (0, 0, width - how.classes), "sizes": (images, count, how.classes), "steps": (1, 1, 1)}
    scores = node.emit("Slice", [scores], cut, tag="scores")
    if not how.regular and how.classes > 1:
        best = node.emit("ReduceMax", [scores], {"axes": (2,), "keepdims": True}, tag="best")
        first = node.emit("ArgMax", [scores], {"axis": 2, "keepdims": False}, tag="first")
        return _results(node, how, best, first)
    return _results(node, how, scores, None)


def _results(node: TfliteNode, how: _Detection, scores: str, classes: str | None) -> Sequence[str]:
    images, count, _ = node.tensor(scores).shape
    boxes = node.emit("Reshape", [_decoded(node, how)], {"shape": (images, count, 1, 4)}, tag="each")
    # A score at the threshold counts.
    below = float(np.nextafter(np.float32(how.score), np.float32(-np.inf)))
    attrs = {
        "per_class": how.per_class,
        "total": how.most,
        "iou_threshold": how.overlap,
        "score_threshold": below,
    }
    tags = ("boxes", "scores", "classes", "places", "count")
    found, best, which, places, number = node.emit_tagged(
        "CombinedNonMaxSuppression", [boxes, scores], attrs, tags
    )
    if classes is not None:
        rows = node.emit("Reshape", [places], {"shape": (images, how.most, 1)}, tag="rows")
        each = node.emit("GatherND", [classes, rows], {"batch_dims": 1}, tag="each")
        limit = node.emit("Reshape", [number], {"shape": (images, 1)}, tag="limit")
        real = node.emit("Less", [node.add_constant(np.arange(how.most), tag="order"), limit], tag="real")
        which = node.emit("Where", [real, each, node.add_constant(np.int64(0))], tag="which")
    floats = [node.emit("Cast", [x], {"to": "f32"}, tag="floats") for x in (which, number)]
    return [found, floats[0], best, floats[1]]


def _decoded(node: TfliteNode, how: _Detection) -> str:
    """Corners [y, x, y, x] from the centers and sizes of boxes relative to their anchors."""
    parts = []
    for index in (0, 2):
        tensor = node.stored(index)
        real = node.emit("Dequantize", [tensor], tag="floats") if node.tensor(tensor).quant else tensor
        rank = len(node.tensor(real).shape)
        parts.append(
            node.emit_tagged("Split", [real], {"axis": rank - 1, "sizes": (2, 2)}, ("center", "size"))
        )
    (center, size), (anchor_center, anchor_size) = parts
    near, far = (
        node.add_constant(np.array(v, np.float32), tag="scales") for v in (how.scales[:2], how.scales[2:])
    )
    moved = node.emit("Mul", [node.emit("Div", [center, near], tag="offset"), anchor_size], tag="moved")
    middle = node.emit("Add", [moved, anchor_center], tag="middle")
    grown = node.emit("Exp", [node.emit("Div", [size, far], tag="growth")], tag="grown")
    half = node.emit(
        "Mul",
        [node.emit("Mul", [grown, anchor_size], tag="size"), node.add_constant(np.float32(0.5))],
        tag="half",
    )
    corners = [node.emit(op, [middle, half], tag="corner") for op in ("Sub", "Add")]
    return node.emit("Concat", corners, {"axis": len(node.tensor(corners[0]).shape) - 1}, tag="corners")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "NON_MAX_SUPPRESSION_V4": _nms,
        "NON_MAX_SUPPRESSION_V5": _nms_scores,
        "custom TFLite_Detection_PostProcess": _detection,
    }
)
