"""NonMaxSuppression and CombinedNonMaxSuppression: of boxes that overlap only the best.

DecodeBoxes: what a network says of priors.

The number of boxes found is known at run time only: outputs are as long as they can be, and `count` says how
much of them counts. A box that is empty or has a NaN overlaps with none. Scores at or below the threshold,
and NaN, are none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType, Tensor
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, present


@dataclass(frozen=True)
class DecodeBoxesAttributes(Attributes):
    """variances: factors of the two moves and the two logarithms of a box."""

    variances: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True)
class SuppressionAttributes(Attributes):
    """per_class: boxes to keep of each class of an image, at most."""

    per_class: int
    iou_threshold: float = 0.0
    score_threshold: float = -math.inf


@dataclass(frozen=True)
class NonMaxSuppressionAttributes(SuppressionAttributes):
    """center: whether a box is given by its center and size; otherwise by two corners."""

    center: bool = False


@dataclass(frozen=True, kw_only=True)
class CombinedSuppressionAttributes(SuppressionAttributes):
    """total: boxes to keep of an image.  candidates: boxes of a class to look at, 0 for all."""

    total: int
    iou_threshold: float = 0.5
    candidates: int = 0


def _operands(inputs: Inputs, attrs: SuppressionAttributes) -> tuple[Tensor, Tensor]:
    boxes, scores = present(inputs)
    for t in (boxes, scores):
        need(t.dtype is DType.F32, f"{t.name} is of type {t.dtype.value}; it must be f32")
    need(len(scores.shape) == 3, f"scores have shape {list(scores.shape)}; their rank must be 3")
    need(attrs.per_class >= 1, f"per_class is {attrs.per_class}; it must be positive")
    need(0 <= attrs.iou_threshold <= 1, f"iou_threshold is {attrs.iou_threshold}; it must be 0 to 1")
    return boxes, scores


def _infer(inputs: Inputs, attrs: NonMaxSuppressionAttributes) -> list[Spec]:
    boxes, scores = _operands(inputs, attrs)
    images, classes, count = scores.shape
    need(
        boxes.shape == (images, count, 4),
        f"boxes have shape {list(boxes.shape)}; it must be [{images}, {count}, 4]",
    )
    return [(DType.I64, (images * classes * min(attrs.per_class, count), 3)), (DType.I64, (1,))]


def _infer_combined(inputs: Inputs, attrs: CombinedSuppressionAttributes) -> list[Spec]:
    boxes, scores = _operands(inputs, attrs)
    images, count, classes = scores.shape
    fits = (
        len(boxes.shape) == 4
        and (*boxes.shape[:2], boxes.shape[3]) == (images, count, 4)
        and boxes.shape[2] in (1, classes)
    )
    need(fits, f"boxes have shape {list(boxes.shape)}; it must be [{images}, {count}, 1 or {classes}, 4]")
    need(attrs.total >= 1, f"total is {attrs.total}; it must be positive")
    need(attrs.candidates >= 0, f"candidates is {attrs.candidates}; it must not be negative")
    rows = (images, attrs.total)
    return [
        (DType.F32, (*rows, 4)),
        (DType.F32, rows),
        (DType.I64, rows),
        (DType.I64, rows),
        (DType.I64, (images,)),
    ]


def _infer_decode(inputs: Inputs, attrs: DecodeBoxesAttributes) -> list[Spec]:
    deltas, priors = present(inputs)
    for t in (deltas, priors):
        need(t.dtype is DType.F32, f"{t.name} is of type {t.dtype.value}; it must be f32")
    need(
        len(deltas.shape) == 3 and deltas.shape[2] == 4,
        f"deltas have shape {list(deltas.shape)}; it must be [N, boxes, 4]",
    )
    need(
        priors.shape == deltas.shape[1:],
        f"priors have shape {list(priors.shape)}; it must be {list(deltas.shape[1:])}",
    )
    return [(DType.F32, deltas.shape)]


def _decode(deltas: Array, priors: Array, attrs: DecodeBoxesAttributes) -> Array:
    """Low and high corners of boxes that are told as moves of priors' centers and logarithms of factors of their sizes.

    priors: two coordinates of the center, then the sizes along them (W. Liu et al., "SSD: Single Shot
    MultiBox Detector", 2016).
    """
    wide, center, size = (
        deltas.astype(np.float64) * attrs.variances,
        priors[:, :2].astype(np.float64),
        priors[:, 2:].astype(np.float64),
    )
    middle, half = center + wide[..., :2] * size, np.exp(wide[..., 2:]) * size / 2
    return np.concatenate([middle - half, middle + half], -1).astype(np.float32)


def _corners(boxes: Array, center: bool) -> Array:
    """Low and high corner of every box, and its area; in double precision."""
    wide = boxes.astype(np.float64)
    if center:
        low, high = wide[:, :2] - wide[:, 2:] / 2, wide[:, :2] + wide[:, 2:] / 2
    else:
        low, high = np.minimum(wide[:, :2], wide[:, 2:]), np.maximum(wide[:, :2], wide[:, 2:])
    area = (high[:, 0] - low[:, 0]) * (high[:, 1] - low[:, 1])
    return np.column_stack([low, high, np.where(np.isnan(wide).any(1), 0, area)])


def _overlap(box: Array, others: Array, threshold: float) -> bool:
    """Whether intersection over union with any of the others is above the threshold."""
    sides = np.minimum(box[2:4], others[:, 2:4]) - np.maximum(box[:2], others[:, :2])
    common = np.maximum(sides[:, 0], 0) * np.maximum(sides[:, 1], 0)
    real_boxes = (box[4] > 0) & (others[:, 4] > 0)
    return bool((real_boxes & (common / (box[4] + others[:, 4] - common) > threshold)).any())


def _of_class(
    boxes: Array, scores: Array, attrs: SuppressionAttributes, *, center: bool = False, candidates: int = 0
) -> list[int]:
    """The boxes to keep, the best first; of equal scores the first."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > np.float32(attrs.score_threshold)]
    corners = _corners(boxes, center)
    kept: list[int] = []
    for i in order[: candidates or None]:
        if len(kept) == attrs.per_class:
            break
        if not _overlap(corners[i], corners[kept], attrs.iou_threshold):
            kept.append(int(i))
    return kept


def _nms(boxes: Array, scores: Array, attrs: NonMaxSuppressionAttributes) -> tuple[Array, Array]:
    """Image, class and box of each: by image, then by class, then the best first; -1 behind the last."""
    images, classes, count = scores.shape
    rows = [
        (n, c, i)
        for n in range(images)
        for c in range(classes)
        for i in _of_class(boxes[n], scores[n, c], attrs, center=attrs.center)
    ]
    selected = np.full((images * classes * min(attrs.per_class, count), 3), -1, np.int64)
    selected[: len(rows)] = np.reshape(rows, (-1, 3))
    return selected, np.array([len(rows)], np.int64)


def _combined(boxes: Array, scores: Array, attrs: CombinedSuppressionAttributes) -> tuple[Array, ...]:
    """Of all classes of an image together the best; of equal scores the first class; 0 behind the last."""
    images, _, classes = scores.shape
    total = attrs.total
    found = np.zeros((images, total, 4), np.float32), np.zeros((images, total), np.float32)
    names = np.zeros((3, images, total), np.int64)
    counts = np.zeros(images, np.int64)
    for n in range(images):
        kept = []
        for c in range(classes):
            own = boxes[n, :, c % boxes.shape[2]]
            kept += [(c, i) for i in _of_class(own, scores[n, :, c], attrs, candidates=attrs.candidates)]
        best = sorted(kept, key=lambda ci: -scores[n, ci[1], ci[0]])[:total]
        counts[n] = len(best)
        for k, (c, i) in enumerate(best):
            found[0][n, k], found[1][n, k] = boxes[n, i, c % boxes.shape[2]], scores[n, i, c]
            names[0, n, k], names[1, n, k] = c, i
    return *found, names[0], names[1], counts


OPS = (
    Op(
        "DecodeBoxes",
        ("deltas", "priors"),
        ("boxes",),
        _infer_decode,
        _decode,
        DecodeBoxesAttributes,
    ),
    Op(
        "NonMaxSuppression",
        ("boxes", "scores"),
        ("selected", "count"),
        _infer,
        _nms,
        NonMaxSuppressionAttributes,
    ),
    Op(
        "CombinedNonMaxSuppression",
        ("boxes", "scores"),
        ("detections", "confidences", "classes", "indices", "count"),
        _infer_combined,
        _combined,
        CombinedSuppressionAttributes,
    ),
)
