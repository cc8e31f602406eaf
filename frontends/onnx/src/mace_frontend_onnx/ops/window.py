"""What convolutions and pools share: a window that slides over the spatial axes."""

from __future__ import annotations

from dataclasses import dataclass

from mace_core.ir import Shape
from mace_frontend_onnx.node import OnnxNode


@dataclass(frozen=True)
class Window:
    """A window over an input of spatial extent `size`, all per spatial axis."""

    size: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape

    @property
    def reach(self) -> Shape:
        """How far the dilated kernel extends."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def steps(self) -> dict[str, Shape]:
        """The attributes that ONNX and the IR have in common."""
        return {"strides": self.strides, "dilations": self.dilations}


def window(node: OnnxNode, kernel: Shape) -> Window:
    """The window of a node whose input 0 is [N, C, *spatial]."""
    ones = (1,) * len(kernel)
    made = Window(
        node.shape(0)[2:], kernel, tuple(node.attr("strides") or ones), tuple(node.attr("dilations") or ones)
    )
    ranks = {len(made.size), len(made.kernel), len(made.strides), len(made.dilations)}
    node.refuse_unless(len(ranks) == 1 and min(made.strides, default=0) > 0, f"a window of {made}")
    return made


def paddings(node: OnnxNode, view: Window) -> tuple[Shape, Shape]:
    """Padding before and after each spatial axis, from `pads` or `auto_pad`.

    SAME: as much as makes the output ceil(size / stride) long, the odd one at the end for SAME_UPPER.
    """
    auto, rank = node.attr("auto_pad") or "NOTSET", len(view.kernel)
    if auto == "NOTSET":
        pads = tuple(node.attr("pads") or (0,) * (2 * rank))
        node.refuse_unless(len(pads) == 2 * rank and min(pads) >= 0, f"pads {list(pads)}")
        return pads[:rank], pads[rank:]
    if auto == "VALID":
        return (0,) * rank, (0,) * rank
    before, after = [], []
    for size, stride, reach in zip(view.size, view.strides, view.reach, strict=True):
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        less, more = total // 2, total - total // 2
        before.append(less if auto == "SAME_UPPER" else more)
        after.append(more if auto == "SAME_UPPER" else less)
    return tuple(before), tuple(after)
