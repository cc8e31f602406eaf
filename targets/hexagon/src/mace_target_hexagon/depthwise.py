"""Depthwise convolutions of bytes by HVX: the order of their weights, and the lines that they copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mace_core.ir import Array, Node
from mace_core.lowering import Lowering, Refused
from mace_core.program import Arg
from mace_target_cpu.quantized.depthwise import QUAD, ChannelOrder, lower_depthwise

REGISTER = 128
"""Bytes of a register of HVX."""

MAX_ROWS = 6
"""Rows of results whose sums are rounded together: HVX_MAX_SUMS of hvx.h.in, four registers each."""

MAX_LINE_BYTES = 128 * 1024
"""Of lines for which several rows are computed together: a part of the smallest second-level cache of v66."""

MAX_SCRATCH = 1 << 24
"""Bytes of lines at most; only images with very long lines, or much padding, need so many."""

FIELDS = (("is_flat", "i32"), ("together", "i32"), ("lines", "i32"), ("line_bytes", "i32"))


class RepeatedOrder(ChannelOrder):
    """Channels in their order, the first ones again behind the last: 128 can be loaded from any one on."""

    def arrange(self, values: Array) -> Array:
        """Arrange [channels, ...] as [channels + block, ...]."""
        channels = len(values)
        repeated: Array = values[np.arange(channels + self.block) % channels]
        return repeated

    def pack(self, summands: Array) -> Array:
        """Arrange int8 [channels, slots] as quads, channels and those behind them, QUAD of each."""
        channels, slots = summands.shape
        quads = self.arrange(summands.reshape(channels, slots // QUAD, QUAD))
        return np.ascontiguousarray(quads.swapaxes(0, 1))


@dataclass(frozen=True)
class Lines:
    """The lines of an image that a worker copies, with their padding, and how it computes on them.

    is_flat: whether a row of results is one run of channels, else pixels are computed one by one.
    together: rows of results that are computed together.  lines: of each depth of a window that are held.
    line_bytes: of one line, those included that the last register reads behind it.
    """

    is_flat: bool
    together: int
    lines: int
    line_bytes: int

    @classmethod
    def of(cls, args: Mapping[str, Arg]) -> Lines:
        """Return the lines for the geometry of a convolution."""
        sizes = {name: value for name, value in args.items() if isinstance(value, tuple)}
        kernel, stride, dilation, out = (sizes[name] for name in ("kernel", "stride", "dilation", "out"))
        channels = args["channels"]
        assert isinstance(channels, int)
        columns = (out[2] - 1) * stride[2] + (kernel[2] - 1) * dilation[2] + 1
        line_bytes = -(-(int(columns) * channels + REGISTER) // REGISTER) * REGISTER
        # Dilated windows of neighboring rows share no lines.
        max_together = min(MAX_ROWS, int(out[1])) if dilation[1] == 1 and stride[2] == 1 else 1
        for together in range(max_together, 0, -1):
            lines = int((together - 1) * stride[1] + kernel[1])
            if kernel[0] * lines * line_bytes <= MAX_LINE_BYTES:
                break
        # A row alone is rounded alone; pixels that nearly fill their registers are rounded by six.
        padded = -(-channels // REGISTER) * REGISTER
        is_flat = stride[2] == 1 and (together > 1 or 2 * padded > 3 * channels)
        return cls(is_flat, together, lines, line_bytes)


def lower_depthwise_for_hvx(node: Node, lowering: Lowering) -> None:
    """Lower a depthwise convolution of bytes, whose windows lie in lines that the kernel copies."""
    lower_depthwise(node, lowering, RepeatedOrder(REGISTER, 1))
    call = lowering.calls.pop()
    lines = Lines.of(call.args)
    kernel_size = call.args["kernel"]
    assert isinstance(kernel_size, tuple)
    # A line, and the number of it that the kernel writes behind all lines.
    scratch = int(kernel_size[0]) * lines.lines * (lines.line_bytes + 8)
    if scratch > MAX_SCRATCH:
        raise Refused(f"its lines would take {scratch} bytes of working memory", code="too-large")
    args = {**call.args, **{name: int(getattr(lines, name)) for name, _ in FIELDS}}
    kernel = replace(call.kernel, fields=(*call.kernel.fields, *FIELDS))
    lowering.calls.append(replace(call, kernel=kernel, args=args, scratch=scratch))
