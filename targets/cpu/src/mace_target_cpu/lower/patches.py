"""Im2Col, Col2Im, DeformIm2Col, MaxPoolIndices: windows pixel by pixel."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Shape
from mace_core.lowering import Lower, Lowering
from mace_core.ops.patches import DeformIm2ColAttributes
from mace_core.ops.windows import KernelAttributes
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.gather import ROWS
from mace_target_cpu.lower.geometry import three
from mace_target_cpu.lower.sampling import SAMPLE
from mace_target_cpu.lower.softmax import ROW
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.types import c_type, need_type, refuse_type

WINDOWS = (
    ("in", "i64[3]"),
    ("out", "i64[3]"),
    *((n, "i32[3]") for n in ("kernel", "stride", "pad", "dilation")),
    ("cell", "i64"),
    *ROWS,
)
DEFORMED = (
    *(("in", "i64[2]"), ("out", "i64[2]")),
    *((n, "i64[2]") for n in ("kernel", "stride", "pad", "dilation")),
    *(("channels", "i64"), ("groups", "i64"), *ROWS),
)


def _window_args(node: Node, image: Shape, count: Shape) -> dict[str, Arg]:
    """Return the arguments of WINDOWS for an image [*spatial] and so many windows; none of cell and tasks."""
    attrs = node.attributes(KernelAttributes)
    return {
        "in": three(image, 1),
        "out": three(count, 1),
        "kernel": three(attrs.kernel, 1),
        "stride": three(attrs.strides, 1),
        "pad": three(attrs.pads_before, 0),
        "dilation": three(attrs.dilations, 1),
    }


def im2col(node: Node, lowering: Lowering) -> None:
    """Lower Im2Col, which moves bytes."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if y.elements == 0:
        return
    # A task takes windows: each writes a run of its own.
    rows = prod(y.shape[:-1])
    args = {"cell": x.shape[-1] * x.dtype.size, **chunks(rows, y.shape[-1] * x.dtype.size)}
    kernel = Kernel("im2col", KERNELS / "im2col.c.in", WINDOWS, helpers=(MOVE,))
    lowering.call(
        node,
        Call(kernel, {**_window_args(node, x.shape[1:-1], y.shape[1:-1]), **args}, node.inputs, node.outputs),
    )


def col2im(node: Node, lowering: Lowering) -> None:
    """Lower Col2Im: every element of the image finds the windows that hold it."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if y.elements == 0:
        return
    # Each pixel looks at every tap, so that is what it costs to share out.
    taps = prod(node.attributes(KernelAttributes).kernel)
    args = {"cell": y.shape[-1], **chunks(prod(y.shape[:-1]), taps * y.shape[-1] * x.dtype.size)}
    params = {"ctype": c_type(x), "floating": x.dtype.is_float}
    kernel = Kernel(f"col2im_{x.dtype.value}", KERNELS / "col2im.c.in", WINDOWS, params, (MOVE,))
    lowering.call(
        node,
        Call(kernel, {**_window_args(node, y.shape[1:-1], x.shape[1:-1]), **args}, node.inputs, node.outputs),
    )


def deform_im2col(node: Node, lowering: Lowering) -> None:
    """Lower DeformIm2Col, which mixes four neighbors for every sample."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    need_type(node, x)
    if y.elements == 0:
        return
    attrs = node.attributes(DeformIm2ColAttributes)
    args: dict[str, Arg] = {
        "kernel": attrs.kernel,
        "stride": attrs.strides,
        "pad": attrs.pads_before,
        "dilation": attrs.dilations,
        "in": x.shape[1:3],
        "out": y.shape[1:3],
        "channels": x.shape[-1],
        "groups": attrs.groups,
    }
    args |= chunks(prod(y.shape[:-1]), 16 * y.shape[-1])
    kernel = Kernel("deform_im2col_f32", KERNELS / "deform_im2col.c.in", DEFORMED, {}, (MOVE, ROW, SAMPLE))
    lowering.call(node, Call(kernel, args, [*node.inputs, ""][:3], node.outputs))


def max_pool_indices(node: Node, lowering: Lowering) -> None:
    """Lower MaxPoolIndices channel by channel."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if x.dtype is DType.F16:
        raise refuse_type(node.op.name, DType.F16)
    if y.elements == 0:
        return
    ctype = c_type(x)
    lowest = _lowest_value(x.dtype, ctype)
    params = {"ctype": ctype, "least": Code(lowest), "floating": x.dtype.is_float}
    args = {
        "cell": y.shape[-1],
        **chunks(prod(y.shape[:-1]), prod(node.attributes(KernelAttributes).kernel) * y.shape[-1] * 8),
    }
    kernel = Kernel(
        f"max_pool_indices_{x.dtype.value}", KERNELS / "max_pool_indices.c.in", WINDOWS, params, (MOVE,)
    )
    lowering.call(
        node,
        Call(kernel, {**_window_args(node, x.shape[1:-1], y.shape[1:-1]), **args}, node.inputs, node.outputs),
    )


def _lowest_value(dtype: DType, ctype: str) -> str:
    """Return the C expression that no element of a type is below."""
    if dtype.is_float:
        return "-INFINITY"
    if dtype.value[0] == "u":
        return "0"
    return f"{ctype.removesuffix('_t').upper()}_MIN"


LOWERINGS: Mapping[str, Lower] = {
    "Im2Col": im2col,
    "Col2Im": col2im,
    "DeformIm2Col": deform_im2col,
    "MaxPoolIndices": max_pool_indices,
}
