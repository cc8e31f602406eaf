"""Resize over quantized tensors."""

from __future__ import annotations

from math import prod

import numpy as np

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.resize import ResizeAttributes, axis_taps
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS, MAX_LANES
from mace_target_cpu.lower import resize as plain
from mace_target_cpu.lower.igemm import INTEGER, REQUANTIZE
from mace_target_cpu.lower.strided import MOVE
from mace_target_cpu.quantized.storage import C_TYPES, RESULT, Scale, need_stored, result

FIELDS = (
    *(f for f in plain.FIELDS if f[0] != "value"),
    ("x_zero", "i32"),
    ("factor", "f32"),
    ("value", "i32"),
    *RESULT,
)


def resize(node: Node, lowering: Lowering) -> None:
    """To the nearest as it is stored; weighted sums along one axis or two neighboring ones, rounded once."""
    x, y = (
        need_stored(lowering, node.inputs[0], tuple(C_TYPES)),
        need_stored(lowering, node.outputs[0], tuple(C_TYPES)),
    )
    attrs = node.attributes(ResizeAttributes)
    taps = [axis_taps(attrs, axis, size) for axis, size in enumerate(x.shape)]
    changed = [axis for axis, size in enumerate(x.shape) if not taps[axis].is_identity(size)]
    outside = any(t.outside.any() for t in taps)
    if x.storage == y.storage and (attrs.mode == "nearest" or not changed) and not outside:
        plain.resize(node, lowering)
        return
    resize_passes = plain.plan_passes(changed, x.shape, y.shape)
    if attrs.mode == "nearest" or len(resize_passes) != 1 or not y.elements:
        raise Refused("interpolates along other axes than one or two neighboring ones", code="shape")
    down, across = resize_passes[0].axes[0], len(resize_passes[0].axes) > 1
    source, target, limits = Scale.from_tensor(x), Scale.from_tensor(y), np.iinfo(y.dtype.numpy)
    value = attrs.extrapolation / target.step + target.zero
    args = {
        **plain.plane_args(x, y, down, across),
        "x_zero": source.zero,
        "factor": source.step / target.step,
        "value": int(np.clip(np.rint(value), limits.min, limits.max)),
        **result(y),
    }
    names: list[str] = []
    for axis in resize_passes[0].axes:
        names += plain.make_tables(lowering, f"{y.name}.{axis}", taps[axis])
    count = taps[down].indices.shape[1]
    kind = f"{'linear' if count == 2 else 'cubic'}{'_2d' if across else ''}"
    name = f"resize_{kind}_{x.dtype.value}_{y.dtype.value}"
    params = {"taps": count, "across": across, "xtype": C_TYPES[x.dtype], "ytype": C_TYPES[y.dtype]}
    kernel = Kernel(name, KERNELS / "resize_quantized.c.in", FIELDS, params, (MOVE, INTEGER, REQUANTIZE))
    scratch = 4 * (prod(x.shape[down + 1 :]) + MAX_LANES) if across else 0
    lowering.call(node, Call(kernel, args, [x.name, *names], [y.name], scratch=scratch))


LOWERINGS: dict[str, Lower] = {"Resize": resize}
