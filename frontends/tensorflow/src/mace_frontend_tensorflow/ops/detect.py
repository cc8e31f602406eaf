"""Non-maximum suppression: the choice among boxes that overlap.

How many are chosen is known at run time alone, but tensors of the IR have fixed shapes: outputs have the
length that they can have at most, and a count where TensorFlow has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType
from mace_frontend_tensorflow.node import CUT_BEFORE, TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.values import OptionalValue

MAX_BOXES = 1 << 20
"""Boxes that may be chosen: outputs have a row for each."""


def _number(node: TensorFlowNode, index: int, role: str) -> float:
    value = node.constant(index, role)
    node.refuse_unless(value.size == 1, f"its {role} has {value.size} elements, expected one")
    return float(value.reshape(()))


def _suppress(node: TensorFlowNode) -> tuple[str, str, int]:
    """Return the indices of the chosen boxes, -1 behind the last; their number; and its maximum."""
    boxes, max_count = node.shape(0), node.integer(2, "number of boxes")
    node.refuse_unless(
        len(boxes) == 2 and 0 < max_count <= MAX_BOXES,
        f"it chooses {max_count} of boxes of shape {list(boxes)}; the maximum is {MAX_BOXES}",
    )
    # The first form has the threshold as an attribute, the later ones as an operand, and a threshold of
    # scores too.
    overlap = _number(node, 3, "overlap") if node.operand_count > 3 else node.attr("iou_threshold", 0.5)
    score = _number(node, 4, "score") if node.operand_count > 4 else -np.inf
    node.refuse_unless(
        node.operand_count < 6 or _number(node, 5, "sigma") == 0,
        "its scores fall with overlap (Soft-NMS)",
        CUT_BEFORE,
    )
    attrs = {"per_class": max_count, "iou_threshold": overlap, "score_threshold": score}
    images = (
        node.reshape(node.input(0), (1, *boxes), "boxes"),
        node.reshape(node.input(1), (1, 1, boxes[0]), "scores"),
    )
    rows, number = node.emit_all("NonMaxSuppression", images, attrs, tag="rows", count=2)
    # The IR's op has rows [image, class, box], of which a single image and class leave the last column.
    length = node.builder.shape(rows)[0]
    last_column = {"starts": (0, 2), "sizes": (length, 1), "steps": (1, 1)}
    column = node.emit("Slice", [rows], last_column, tag="column")
    indices = node.reshape(column, (length,))
    count = node.cast(node.reshape(number, (), "count"), DType.I32)
    return node.cast(indices, DType.I32), count, max_count


def _nms(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a NonMaxSuppression(boxes, scores, number, overlap, score): -1 behind the last index."""
    indices = _suppress(node)[0]
    node.importer.padded.add(indices)
    return [indices]


def _nms_counted(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the fourth form, which has the number of boxes as well: 0 behind the last index."""
    indices, count, max_count = _suppress(node)
    selected = _pad_indices(node, indices, max_count)
    _note_padding(node, [selected])
    return [selected, count]


def _nms_scores(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the fifth form, which has the scores of the boxes as well."""
    indices, count, max_count = _suppress(node)
    selected = _pad_indices(node, indices, max_count)
    size = node.builder.shape(selected)[0]
    scores = node.emit("Gather", [node.input(1), selected], {"axis": 0}, tag="scores")
    # Index 0 behind the last one would repeat the score of the first box.
    rows = node.add_constant(node.indices_to(size), DType.I32, "order")
    is_box = node.emit("Less", [rows, count], tag="real")
    none = node.add_constant(0, DType.F32, "none")
    visible = node.emit("Where", [is_box, scores, none], tag="scores")
    _note_padding(node, [selected, visible])
    return [selected, visible, count]


def _note_padding(node: TensorFlowNode, tensors: Sequence[str]) -> None:
    """Tell the importer of rows that TensorFlow has not: it pads only if the node says so."""
    if not node.attr("pad_to_max_output_size", False):
        node.importer.padded.update(tensors)


def _pad_indices(node: TensorFlowNode, indices: str, max_count: int) -> str:
    """Return indices with 0 instead of -1, and as many as were asked for if the node says so.

    There may be fewer boxes than were asked for.
    """
    above = node.emit("Maximum", [indices, node.add_constant(0, DType.I32, "0")], tag="places")
    missing = max_count - node.builder.shape(indices)[0]
    if not node.attr("pad_to_max_output_size", False) or missing == 0:
        return above
    return node.emit("Pad", [above], {"before": (0,), "after": (missing,)}, tag="padded")


def _combined_nms(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a CombinedNonMaxSuppression(boxes, scores, number of a class, number, overlap, score).

    Outputs are boxes, scores, classes and their number in each image.
    """
    per_class, total = node.integer(2, "boxes of a class"), node.integer(3, "number of boxes")
    _, boxes, classes = node.shape(1)
    node.refuse_unless(
        0 < per_class <= MAX_BOXES and 0 < total <= MAX_BOXES,
        f"it chooses {per_class} boxes of a class and {total} in all; the maximum is {MAX_BOXES}",
    )
    # The attribute pads to the smaller of the two numbers (non_max_suppression_op.cc).
    if node.attr("pad_per_class", False):
        total = min(total, per_class * classes)
    attrs = {"per_class": min(per_class, boxes), "total": total, "iou_threshold": _number(node, 4, "overlap")}
    attrs["score_threshold"] = _number(node, 5, "score")
    chosen, scores, labels, _, count = node.emit_all(
        "CombinedNonMaxSuppression", [node.input(0), node.input(1)], attrs, tag="found", count=5
    )
    if node.attr("clip_boxes", True):
        # Boxes are fractions of the image.
        chosen = node.emit("Clip", [chosen], {"min": 0.0, "max": 1.0}, tag="clipped")
    return [chosen, scores, node.cast(labels, DType.F32), node.cast(count, DType.I32)]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3"), _nms),
        "CombinedNonMaxSuppression": _combined_nms,
        "NonMaxSuppressionV4": _nms_counted,
        "NonMaxSuppressionV5": _nms_scores,
    }
)
