"""Boxes of which only the best are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler


def _nms(node: OnnxNode) -> Sequence[Held]:
    """ONNX's result has a row for each box found.

    Ours as many as there can be, those behind the last one filled with -1.

    Boxes and scores that are constants are searched at once: then the number is known.
    """
    limit = int(node.constant(2, "number of boxes").reshape(-1)[0]) if node.has(2) else 0
    node.refuse_unless(limit > 0, "it asks for no boxes at all; set max_output_boxes_per_class")
    attrs = {
        "per_class": limit,
        "iou_threshold": _threshold(node, 3, 0.0),
        "score_threshold": _threshold(node, 4, -np.inf),
        "center": bool(node.attr("center_point_box")),
    }
    inputs = [node.input(0), node.input(1)]
    if not (node.array_is_constant(0) and node.array_is_constant(1)):
        return node.done("NonMaxSuppression", inputs, attrs)[:1]
    selected, count = (
        node.builder.weights[t] for t in node.emit_all("NonMaxSuppression", inputs, attrs, count=2, tag="all")
    )
    return [node.builder.weight(node.output_name(), selected[: int(count[0])])]


def _threshold(node: OnnxNode, index: int, default: float) -> float:
    return float(node.constant(index, "threshold").reshape(-1)[0]) if node.has(index) else default


HANDLERS: Mapping[str, Handler] = MappingProxyType({"NonMaxSuppression": _nms})
