"""GridSample, RoiAlign, RoiMaxPool: places in images that are known at run time."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import get_args

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.grid_sample import GridSampleAttributes, Padding
from mace_core.ops.roi import RoiAlignAttributes, RoiAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.gather import ROWS, index_type
from mace_target_cpu.lower.geometry import three
from mace_target_cpu.lower.softmax import ROW
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.types import need_type

SAMPLE = KERNELS / "sample.h.in"
PADDINGS = get_args(Padding)
TAPS: Mapping[str, int] = {"nearest": 1, "linear": 2, "cubic": 4}
GRID = (
    ("in", "i64[3]"),
    ("pixels", "i64"),
    ("cell", "i64"),
    *((n, "i32") for n in ("axes", "padding", "align")),
    *ROWS,
)
REGIONS: tuple[tuple[str, str], ...] = (
    ("images", "i64"),
    ("in", "i64[2]"),
    ("out", "i64[2]"),
    ("channels", "i64"),
    ("scale", "f64"),
    *ROWS,
)


def grid_sample(node: Node, lowering: Lowering) -> None:
    """Lower GridSample: the nearest element is moved, whatever its type; several are mixed as floats."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if y.elements == 0:
        return
    attrs = node.attributes(GridSampleAttributes)
    taps, channels = TAPS[attrs.mode], x.shape[-1]
    # One tap moves elements, of any type; more compute with them.
    if taps > 1:
        need_type(node, x)
    args = {
        "in": three(x.shape[1:-1], 1),
        "pixels": prod(y.shape[1:-1]),
        "cell": channels * (x.dtype.size if taps == 1 else 1),
        "axes": len(x.shape) - 2,
        "padding": PADDINGS.index(attrs.padding),
        "align": int(attrs.align_corners),
        **chunks(y.elements // channels, taps ** (len(x.shape) - 2) * channels * x.dtype.size),
    }
    name = f"grid_sample_{attrs.mode}" + ("_f32" if taps > 1 else "")
    kernel = Kernel(name, KERNELS / "grid_sample.c.in", GRID, {"taps": taps}, (MOVE, ROW, SAMPLE))
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


def roi(node: Node, lowering: Lowering) -> None:
    """Lower RoiAlign or RoiMaxPool; a task takes rows of bins of regions."""
    x, _, images = (lowering.tensors[t] for t in node.inputs)
    y = lowering.tensors[node.outputs[0]]
    need_type(node, x)
    if y.elements == 0:
        return
    attrs = node.attributes(RoiAttributes)
    size = attrs.size
    rows = chunks(y.shape[0] * size[0], size[1] * x.shape[-1] * 16)
    args = {
        "images": x.shape[0],
        "in": x.shape[1:3],
        "out": size,
        "channels": x.shape[-1],
        "scale": attrs.scale,
        **rows,
    }
    params: dict[str, object] = {"itype": index_type(images)}
    fields, name = REGIONS, "roi_max_pool"
    if node.op.name == "RoiAlign":
        align = node.attributes(RoiAlignAttributes)
        name = f"roi_align_{align.mode}"
        params["mode"] = align.mode
        fields = (*REGIONS, ("samples", "i64"), ("half_pixel", "i32"))
        args |= {"samples": align.samples, "half_pixel": int(align.half_pixel)}
    template = KERNELS / ("roi_align.c.in" if node.op.name == "RoiAlign" else "roi_max_pool.c.in")
    kernel = Kernel(f"{name}_f32_{images.dtype.value}", template, fields, params, (MOVE, ROW, SAMPLE))
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


LOWERINGS: Mapping[str, Lower] = {"GridSample": grid_sample, "RoiAlign": roi, "RoiMaxPool": roi}
