"""What convolutions and pools share: a window that slides over the spatial axes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mace_core.ir import Shape
from mace_frontend_onnx.node import OnnxNode


@dataclass(frozen=True)
class SlidingWindow:
    """A window over an input; each field has one number per spatial axis. size: the input's extent."""

    size: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape

    @property
    def reach(self) -> Shape:
        """The extent of the dilated kernel."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def steps(self) -> dict[str, Shape]:
        """Return the attributes that ONNX and the IR have in common."""
        return {"strides": self.strides, "dilations": self.dilations}

    def cut_to(self, padded: Shape) -> SlidingWindow:
        """Return the window without its taps behind the padded input.

        With ceil_mode a window that is larger than its input may be counted: it is the only one then, and
        what it has behind the padding is neither read nor counted. The pools of EfficientNet are of this
        kind, with as many taps a side as the network has channels.
        """
        kernel, strides = list(self.kernel), list(self.strides)
        for axis, (size, reach) in enumerate(zip(padded, self.reach, strict=True)):
            if size < reach < size + strides[axis]:
                kernel[axis] = (size - 1) // self.dilations[axis] + 1
                # One that leaves no room for a second window, which fewer taps could give it.
                strides[axis] = size
        return replace(self, kernel=tuple(kernel), strides=tuple(strides))


def find_window(node: OnnxNode, kernel: Shape, size: Shape | None = None) -> SlidingWindow:
    """Return the window of a node.

    size: the extent of its input; None where input 0 is [N, C, *spatial].
    """
    ones = (1,) * len(kernel)
    strides, dilations = node.attr("strides") or ones, node.attr("dilations") or ones
    size = node.shape(0)[2:] if size is None else size
    window = SlidingWindow(size, kernel, tuple(strides), tuple(dilations))
    ranks = {len(window.size), len(window.kernel), len(window.strides), len(window.dilations)}
    node.refuse_unless(len(ranks) == 1 and min(window.strides, default=0) > 0, f"a window of {window}")
    return window


def find_paddings(node: OnnxNode, window: SlidingWindow) -> tuple[Shape, Shape]:
    """Return the padding before and after each spatial axis, from `pads` or `auto_pad`."""
    auto, rank = node.attr("auto_pad") or "NOTSET", len(window.kernel)
    if auto == "NOTSET":
        pads = tuple(node.attr("pads") or (0,) * (2 * rank))
        # The pages of Conv and the pools allow values from 0 on; only Pad may cut by negative ones.
        node.refuse_unless(len(pads) == 2 * rank and min(pads) >= 0, f"pads {list(pads)}")
        return pads[:rank], pads[rank:]
    if auto == "VALID":
        return (0,) * rank, (0,) * rank
    before, after = [], []
    # SAME: as much padding as makes the output ceil(size / stride) long (operator page of Conv, auto_pad); an
    # odd one at the end for SAME_UPPER, at the start for SAME_LOWER.
    for size, stride, reach in zip(window.size, window.strides, window.reach, strict=True):
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        smaller, larger = total // 2, total - total // 2
        before.append(smaller if auto == "SAME_UPPER" else larger)
        after.append(larger if auto == "SAME_UPPER" else smaller)
    return tuple(before), tuple(after)
