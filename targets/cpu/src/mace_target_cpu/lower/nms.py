"""NonMaxSuppression and its like: a heap of scores for every class, then what was kept put together.

DecodeBoxes.
"""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Lower, Lowering
from mace_core.ops.nms import (
    CombinedSuppressionAttributes,
    DecodeBoxesAttributes,
    NonMaxSuppressionAttributes,
    SuppressionAttributes,
)
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.gather import ROWS
from mace_target_cpu.lower.softmax import MATH
from mace_target_cpu.lower.strided import MOVE, chunks

STRIDES = ("box_image", "box_class", "box_step", "score_image", "score_class", "score_step")
FIELDS = (
    *((name, "i32") for name in ("images", "classes", "center")),
    *((name, "i64") for name in ("count", "limit", "candidates", *STRIDES)),
    ("iou", "f64"),
    ("threshold", "f32"),
)
SELECT = ("images", "classes", "limit")
MERGE = ("count", "classes", "kinds", "limit", "total")

BOX_BYTES = 40
"""Of a box as the kernel keeps it: two corners and its area in double precision."""


def _select_boxes(
    node: Node, lowering: Lowering, sizes: tuple[int, int, int], strides: tuple[int, ...]
) -> Tensor:
    """The boxes that each class of each image keeps, [images * classes, limit].

    sizes: images, classes and boxes.
    """
    images, classes, count = sizes
    attrs = node.attributes(SuppressionAttributes)
    limit = min(attrs.per_class, count)
    selected = lowering.tensors[
        lowering.temporary(Tensor(f"{node.outputs[0]}.kept", DType.I32, (images * classes, limit)))
    ]
    args: dict[str, Arg] = {
        "images": images,
        "classes": classes,
        "center": int(isinstance(attrs, NonMaxSuppressionAttributes) and attrs.center),
        "count": count,
        "limit": limit,
        "candidates": attrs.candidates if isinstance(attrs, CombinedSuppressionAttributes) else 0,
        **dict(zip(STRIDES, strides, strict=True)),
        "iou": attrs.iou_threshold,
        "threshold": attrs.score_threshold,
    }
    kernel = Kernel("nms_f32", KERNELS / "nms.c.in", FIELDS)
    lowering.call(
        node, Call(kernel, args, node.inputs, [selected.name], scratch=limit * BOX_BYTES + 4 * count)
    )
    return selected


def nms(node: Node, lowering: Lowering) -> None:
    """Scores [images, classes, boxes]."""
    images, classes, count = lowering.shape(node.inputs[1])
    selected = _select_boxes(
        node, lowering, (images, classes, count), (4 * count, 0, 4, classes * count, count, 1)
    )
    args = {"images": images, "classes": classes, "limit": selected.shape[1]}
    kernel = Kernel("nms_select", KERNELS / "nms_select.c.in", tuple((n, "i64") for n in SELECT))
    lowering.call(node, Call(kernel, args, [selected.name], node.outputs))


def combined_nms(node: Node, lowering: Lowering) -> None:
    """Scores [images, boxes, classes]."""
    images, count, classes = lowering.shape(node.inputs[1])
    kinds = lowering.shape(node.inputs[0])[2]
    strides = (4 * count * kinds, 4 if kinds > 1 else 0, 4 * kinds, count * classes, 1, classes)
    selected = _select_boxes(node, lowering, (images, classes, count), strides)
    total = node.attributes(CombinedSuppressionAttributes).total
    args = {
        "images": images,
        "count": count,
        "classes": classes,
        "kinds": kinds,
        "limit": selected.shape[1],
        "total": total,
    }
    fields = (("images", "i32"), *((n, "i64") for n in MERGE))
    kernel = Kernel("nms_merge_f32", KERNELS / "nms_merge.c.in", fields)
    lowering.call(node, Call(kernel, args, [*node.inputs, selected.name], node.outputs, scratch=4 * classes))


def decode_boxes(node: Node, lowering: Lowering) -> None:
    """Box by box."""
    images, count, _ = lowering.shape(node.inputs[0])
    args: dict[str, Arg] = {
        "count": count,
        "variance": node.attributes(DecodeBoxesAttributes).variances,
        **chunks(images * count, 64),
    }
    kernel = Kernel(
        "decode_boxes_f32",
        KERNELS / "decode_boxes.c.in",
        (("count", "i64"), ("variance", "f32[4]"), *ROWS),
        {},
        (MOVE, MATH),
    )
    if images * count:
        lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


LOWERINGS: Mapping[str, Lower] = {
    "DecodeBoxes": decode_boxes,
    "NonMaxSuppression": nms,
    "CombinedNonMaxSuppression": combined_nms,
}
