"""Selects the best of overlapping boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler


def _nms(node: OnnxNode) -> Sequence[Result]:
    """Express NonMaxSuppression by an op with as many rows as there can be, unused ones filled with -1."""
    # NonMaxSuppression: without a maximum, or with 0, it selects nothing.
    limit = int(node.constant(2, "number of boxes").reshape(-1)[0]) if node.has(2) else 0
    node.refuse_unless(limit > 0, "it asks for no boxes at all; set max_output_boxes_per_class")
    attrs = {
        "per_class": limit,
        "iou_threshold": _threshold(node, 3, 0.0),
        # An absent score threshold keeps boxes of any score, also of a negative one.
        "score_threshold": _threshold(node, 4, -np.inf),
        "center": bool(node.attr("center_point_box")),
    }
    inputs = [node.input(0), node.input(1)]
    if not (node.is_constant(0) and node.is_constant(1)):
        # ONNX has a row for each box that is selected, a number that is known at run time only; shapes of the
        # IR are fixed.
        rows = node.done("NonMaxSuppression", inputs, attrs)[0]
        node.importer.padded.add(rows)
        return [rows]
    # Constant boxes and scores are searched here, so that the number is known.
    outputs = node.emit_all("NonMaxSuppression", inputs, attrs, count=2, tag="all")
    selected, count = (node.builder.weights[tensor] for tensor in outputs)
    return [node.builder.weight(node.output_name(), selected[: int(count[0])])]


def _threshold(node: OnnxNode, index: int, default: float) -> float:
    return float(node.real_constant(index, "threshold").reshape(-1)[0]) if node.has(index) else default


HANDLERS: Mapping[str, Handler] = MappingProxyType({"NonMaxSuppression": _nms})
