"""Windows over each channel: pools, and depthwise convolutions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from mace_core.emit.text import Code
from mace_core.ir import Node, Tensor
from mace_core.lowering import Lower, Lowering
from mace_core.ops.pool import AveragePoolAttributes, LpPoolAttributes, PoolAttributes
from mace_core.ops.windows import Windows
from mace_target_opencl.enqueue import Launch, enqueue
from mace_target_opencl.exact import mark_exact
from mace_target_opencl.images import IMAGES
from mace_target_opencl.kernel_operand import ImageForm
from mace_target_opencl.lower.sizes import choose_group
from mace_target_opencl.steps import ElementStep
from mace_target_opencl.types import c_type, integer_literal, literal, need_floats
from mace_target_opencl.views import dense


@dataclass(frozen=True)
class WindowKernel:
    """What is computed of each window; see windows.cl.in.

    weights: the packed filters, [taps, channels]; "" for none.  others: more operands of the steps.
    types: C types of constants, if not float.  sums: type of `a`, if not that of x: exact integers.
    result: type of `finish`, if not that of `a`.  width: channels of a work-item, None for the best number.
    filters: the form of the weights where they lie in an image: [channels / 4, taps, 4].
    zero: zero point of x, which is subtracted from each element.
    """

    first: str
    accumulate: str
    finish: str = "a"
    counts: bool = False
    counts_pads: bool = False
    weights: str = ""
    steps: tuple[ElementStep, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, Code] = field(default_factory=dict)
    sums: Code | None = None
    result: Code | None = None
    width: int | None = None
    filters: ImageForm | None = None
    zero: int = 0


def enqueue_windows(lowering: Lowering, node: Node, windows: Windows, kernel: WindowKernel) -> None:
    """Append the call that computes windows of the node's first input."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    channels, count = x.shape[-1], prod(y.shape[:-1])
    width = kernel.width or width_of(x)
    constants = {
        **_describe_sums(kernel),
        "type": kernel.sums or c_type(x),
        "count": count,
        "channels": channels,
        "width": width,
        "image": prod(x.shape[1:]),
        "axes": list_axes(x, y, windows),
        "first": Code(kernel.first),
        "accumulate": Code(kernel.accumulate),
        "finish": Code(kernel.finish),
        "counts": kernel.counts,
        "counts_pads": kernel.counts_pads,
        "weighted": bool(kernel.weights),
        "zero": kernel.zero,
        "w_channel": kernel.filters.columns if kernel.filters else 1,
        "w_step": 4 if kernel.filters else channels,
        **({IMAGES: True} if kernel.filters else {}),
    }
    weights = {"w": kernel.weights} if kernel.weights else {}
    reads = {"x": x.name, **weights, **kernel.others}
    across = channels // width
    launch = Launch(
        "windows",
        reads,
        {"y": y.name},
        (across, count, 1),
        constants,
        choose_group(lowering, across),
        kernel.steps,
        kernel.types,
        images={"w": kernel.filters} if kernel.filters else {},
    )
    enqueue(lowering, node, launch)


def _describe_sums(kernel: WindowKernel) -> Mapping[str, object]:
    """Return the parameters of a kernel whose sums are integers of other types than x and y."""
    if kernel.sums is None:
        return {}
    return {**mark_exact(True), "value_type": kernel.result or kernel.sums}


def width_of(x: Tensor) -> int:
    """Return the channels of a work-item."""
    return 4 if x.shape[-1] % 4 == 0 else 1


def vector_type(x: Tensor) -> str:
    """Return the type of the elements of a work-item."""
    width = width_of(x)
    return f"{c_type(x)}{width}" if width > 1 else str(c_type(x))


def list_axes(x: Tensor, y: Tensor, windows: Windows) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of each spatial axis, in the order of windows.cl.in."""
    sizes = x.shape[1:-1]
    padded = (b + n + a for b, n, a in zip(windows.before, sizes, windows.after, strict=True))
    columns = (
        y.shape[1:-1],
        sizes,
        windows.kernel,
        windows.strides,
        windows.before,
        windows.dilations,
        padded,
    )
    return tuple(zip(*columns, dense(x.shape)[1:-1], strict=True))


def drop_padded(axes: Iterable[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Return axes without the size with padding, for which only means of pools ask, as in product.cl.in."""
    return tuple((*axis[:6], axis[7]) for axis in axes)


def reaches_over(axis: tuple[int, ...]) -> bool:
    """Tell whether a window begins before the input or ends behind it.  axis: see `drop_padded`."""
    out, size, kernel, stride, pad, dilation, _ = axis
    return pad > 0 or (out - 1) * stride + (kernel - 1) * dilation >= size


def max_pool(node: Node, lowering: Lowering) -> None:
    """The maximum of each window, NaN if one is."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attributes(PoolAttributes)
    kind = vector_type(x)
    if x.dtype.is_float:
        need_floats(x)
        kernel = WindowKernel(f"({kind})(-INFINITY)", "select(a, v, v > a || v != v)")
    else:
        lowest = int(np.iinfo(x.dtype.numpy).min)
        kernel = WindowKernel(f"({kind})({integer_literal(lowest, x.dtype)})", "max(a, v)")
    enqueue_windows(lowering, node, Windows.of(attrs.kernel, attrs), kernel)


def average_pool(node: Node, lowering: Lowering) -> None:
    """The mean of each window."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attributes(AveragePoolAttributes)
    need_floats(x)
    # max(n, 1), because a window that lies in the padding has no elements.
    kernel = WindowKernel(
        f"({vector_type(x)})(0)", "a + v", "a / (float)max(n, 1)", counts=True, counts_pads=attrs.count_pad
    )
    enqueue_windows(lowering, node, Windows.of(attrs.kernel, attrs), kernel)


def lp_pool(node: Node, lowering: Lowering) -> None:
    """(sum |x| ** p) ** (1 / p) of each window."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attributes(LpPoolAttributes)
    need_floats(x)
    kind = vector_type(x)
    # Without pow where that goes: OpenCL lets it be off by 16 units in the last place, and sqrt by 3.
    forms = {1: ("fabs(v)", "a"), 2: ("v * v", "sqrt(a)")}
    general = (
        f"pow(fabs(v), ({kind})({literal(float(attrs.p))}))",
        f"pow(a, ({kind})({literal(1 / attrs.p)}))",
    )
    term, finish = forms.get(attrs.p, general)
    kernel = WindowKernel(f"({kind})(0)", f"a + {term}", finish)
    enqueue_windows(lowering, node, Windows.of(attrs.kernel, attrs), kernel)


LOWERINGS: Mapping[str, Lower] = {"MaxPool": max_pool, "AveragePool": average_pool, "LpPool": lp_pool}
