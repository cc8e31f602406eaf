"""Boxes and regions: DecodeBoxes, RoiAlign and RoiMaxPool."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.grid_sample import FAR
from mace_core.ops.nms import DecodeBoxesAttributes
from mace_core.ops.roi import RoiAlignAttributes, RoiAttributes
from mace_target_opencl.enqueue import GROUP, Launch, enqueue
from mace_target_opencl.exact import ROUNDS
from mace_target_opencl.types import c_type, literal, need_floats


def decode_boxes(node: Node, lowering: Lowering) -> None:
    """Append the call that computes corners of boxes from offsets to priors."""
    deltas, priors = (lowering.tensors[name] for name in node.inputs)
    constants = {
        "count": prod(deltas.shape[:-1]),
        "priors_count": priors.shape[0],
        "variances": tuple(map(literal, node.attributes(DecodeBoxesAttributes).variances)),
    }
    launch = Launch(
        "decode_boxes",
        {"deltas": deltas.name, "priors": priors.name},
        {"y": node.outputs[0]},
        (2 * prod(deltas.shape[:-1]),),
        constants,
        (GROUP,),
    )
    enqueue(lowering, node, launch)


def roi_align(node: Node, lowering: Lowering) -> None:
    """Append the call that computes means or maxima of samples of each bin."""
    attrs = node.attributes(RoiAlignAttributes)
    mode = {"samples": attrs.samples, "mode": Code(attrs.mode), "half_pixel": attrs.half_pixel}
    _enqueue(node, lowering, "roi_align", attrs, mode)


def roi_max_pool(node: Node, lowering: Lowering) -> None:
    """Append the call that computes the largest element of each bin."""
    _enqueue(node, lowering, "roi_max_pool", node.attributes(RoiAttributes), {})


def _enqueue(
    node: Node, lowering: Lowering, template: str, attrs: RoiAttributes, mode: Mapping[str, object]
) -> None:
    x, rois, images = (lowering.tensors[name] for name in node.inputs)
    y = lowering.tensors[node.outputs[0]]
    need_floats(x, rois)
    c_type(images)  # refuses what no kernel computes with
    constants = {
        **mode,
        # The number of samples is a quotient rounded up, and which pixels they touch depends on coordinates.
        ROUNDS: True,
        "count": y.elements,
        "images_count": x.shape[0],
        "height": x.shape[1],
        "image_width": x.shape[2],
        "channels": x.shape[3],
        "bins": tuple(attrs.size),
        "scale": literal(attrs.scale),
        "far": literal(float(FAR)),
        "unsigned": images.dtype is DType.U64,
    }
    reads = {"x": x.name, "rois": rois.name, "images": images.name}
    launch = Launch(template, reads, {"y": y.name}, (y.elements,), constants, (GROUP,), ())
    enqueue(lowering, node, launch)


LOWERINGS: Mapping[str, Lower] = {
    "DecodeBoxes": decode_boxes,
    "RoiAlign": roi_align,
    "RoiMaxPool": roi_max_pool,
}
