"""Choosing among boxes. How many are found is known at run time only: outputs are as long as they can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler

MOST_BOXES = 1 << 20


def _number(node: TensorFlowNode, index: int, what: str) -> float:
    value = node.constant(index, what)
    node.refuse_unless(value.size == 1, f"its {what} has {value.size} elements, expected one")
    return float(value.reshape(()))


def _places(node: TensorFlowNode) -> tuple[str, str, int]:
    """Places of the boxes to keep, -1 behind the last; how many they are; the most there can be."""
    boxes, most = node.shape(0), node.integer(2, "number of boxes")
    node.refuse_unless(len(boxes) == 2 and 0 < most <= MOST_BOXES, f"{most} of boxes {list(boxes)}")
    overlap = _number(node, 3, "overlap") if node.count > 3 else node.attr("iou_threshold", 0.5)
    score = _number(node, 4, "score") if node.count > 4 else -np.inf
    node.refuse_unless(
        node.count < 6 or _number(node, 5, "sigma") == 0, "scores that fall with overlap (its soft form)"
    )
    attrs = {"per_class": most, "iou_threshold": overlap, "score_threshold": score}
    images = (
        node.reshape(node.input(0), (1, *boxes), "boxes"),
        node.reshape(node.input(1), (1, 1, boxes[0]), "scores"),
    )
    rows, found = node.emit_all("NonMaxSuppression", images, attrs, tag="rows", count=2)
    kept = node.builder.shape(rows)[0]
    column = node.emit("Slice", [rows], {"starts": (0, 2), "sizes": (kept, 1), "steps": (1, 1)}, tag="column")
    places, count = node.reshape(column, (kept,)), node.cast(node.reshape(found, (), "count"), DType.I32)
    return node.cast(places, DType.I32), count, most


def _nms(node: TensorFlowNode) -> Sequence[Held]:
    """NonMaxSuppression(boxes, scores, most, overlap, score): -1 behind the last."""
    return [_places(node)[0]]


def _nms_counted(node: TensorFlowNode) -> Sequence[Held]:
    """Its fourth form, which tells how many they are as well: 0 behind the last."""
    places, count, most = _places(node)
    return [_padded(node, places, most), count]


def _nms_scores(node: TensorFlowNode) -> Sequence[Held]:
    """Its fifth form, which tells their scores as well."""
    places, count, most = _places(node)
    selected = _padded(node, places, most)
    size = node.builder.shape(selected)[0]
    scores = node.emit("Gather", [node.input(1), selected], {"axis": 0}, tag="scores")
    real = node.emit("Less", [node.add_constant(node.counted(size), DType.I32, "order"), count], tag="real")
    return [
        selected,
        node.emit("Where", [real, scores, node.add_constant(0, DType.F32, "none")], tag="scores"),
        count,
    ]


def _padded(node: TensorFlowNode, places: str, most: int) -> str:
    """0 where there is none, as many as can be asked for if the node says so."""
    above = node.emit("Maximum", [places, node.add_constant(0, DType.I32, "0")], tag="places")
    missing = most - node.builder.shape(places)[0]
    if not node.attr("pad_to_max_output_size", False) or missing == 0:
        return above
    return node.emit("Pad", [above], {"before": (0,), "after": (missing,)}, tag="padded")


def _combined(node: TensorFlowNode) -> Sequence[Held]:
    """CombinedNonMaxSuppression(boxes, scores, most of a class, most, overlap, score): boxes, scores, classes and their number."""
    per_class, total = node.integer(2, "boxes of a class"), node.integer(3, "number of boxes")
    _, boxes, classes = node.shape(1)
    node.refuse_unless(
        0 < per_class <= MOST_BOXES and 0 < total <= MOST_BOXES,
        f"{per_class} boxes of a class, {total} in all",
    )
    if node.attr("pad_per_class", False):
        total = min(total, per_class * classes)
    attrs = {"per_class": min(per_class, boxes), "total": total, "iou_threshold": _number(node, 4, "overlap")}
    attrs["score_threshold"] = _number(node, 5, "score")
    found, scores, names, _, count = node.emit_all(
        "CombinedNonMaxSuppression", [node.input(0), node.input(1)], attrs, tag="found", count=5
    )
    if node.attr("clip_boxes", True):
        found = node.emit("Clip", [found], {"min": 0.0, "max": 1.0}, tag="clipped")
    return [found, scores, node.cast(names, DType.F32), node.cast(count, DType.I32)]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3"), _nms),
        "CombinedNonMaxSuppression": _combined,
        "NonMaxSuppressionV4": _nms_counted,
        "NonMaxSuppressionV5": _nms_scores,
    }
)
