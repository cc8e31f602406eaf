"""Resize: to the nearest by looking up, else by weighted sums along one or two neighboring axes at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod

import numpy as np

from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.resize import ResizeAttributes, Taps, axis_taps
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.lookup import LookupAxis, lookup
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.types import CAST

FIELDS = (
    ("in_height", "i64"),
    ("out_height", "i64"),
    ("in_width", "i64"),
    ("out_width", "i64"),
    ("channels", "i64"),
    ("value", "f32"),
    ("rows", "i64"),
    ("grain", "i64"),
)


MAX_TABLE = 1 << 22
"""Elements of a resized axis.

Each has its positions and weights in a table: 96 bytes for cubic taps while the library is built, so that a
damaged size of 2^28 would take more memory than a machine has.
"""


@dataclass(frozen=True)
class ResizePass:
    """Describes one call: the axes that it resamples, one or two neighboring ones."""

    axes: tuple[int, ...]
    growth: float


def resize(node: Node, lowering: Lowering) -> None:
    """Look up positions if only the nearest element counts, else blend."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if y.elements == 0:
        return
    longest = max(y.shape, default=0)
    if longest > MAX_TABLE:
        reason = f"resizes an axis to {longest}; its table of positions holds at most {MAX_TABLE} elements"
        raise Refused(reason, code="too-large", remedy="state a smaller shape under input_shapes")
    attrs = node.attributes(ResizeAttributes)
    taps = [axis_taps(attrs, axis, size) for axis, size in enumerate(x.shape)]
    changed = [axis for axis, size in enumerate(x.shape) if not taps[axis].is_identity(size)]
    if attrs.mode == "nearest" or not changed:
        _look_up(node, lowering, taps, changed)
    else:
        _interpolate(node, lowering, taps, changed)


def _look_up(node: Node, lowering: Lowering, taps: Sequence[Taps], changed: Sequence[int]) -> None:
    """Take the first tap of each axis, and the extrapolation value outside."""
    axes = [LookupAxis(size, size) for size in lowering.shape(node.inputs[0])]
    for axis in changed:
        positions = np.where(taps[axis].outside, -1, taps[axis].indices[:, 0])
        axes[axis] = LookupAxis.from_table(axes[axis].size, positions)
    has_outside = any(t.outside.any() for t in taps)
    extrapolation = node.attributes(ResizeAttributes).extrapolation
    lookup(node, lowering, axes, float(extrapolation) if has_outside else 0.0)


def _interpolate(node: Node, lowering: Lowering, taps: Sequence[Taps], changed: Sequence[int]) -> None:
    """Blend the taps of one or two axes at a time."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if x.dtype is not DType.F32:
        raise Refused(f"no kernel interpolates {x.dtype.value}", code="dtype", remedy=CAST)
    resize_passes = plan_passes(changed, x.shape, y.shape)
    # A later pass would blend the infinity of an earlier one with weights of 0 to NaN.
    if len(resize_passes) > 1 and not isfinite(node.attributes(ResizeAttributes).extrapolation):
        reason = "resizes more than two axes with an infinite extrapolation value"
        raise Refused(
            reason, code="attribute", remedy="use a finite extrapolation value, or resize two axes at a time"
        )
    current = x
    for i, step in enumerate(resize_passes):
        shape = tuple(y.shape[a] if a in step.axes else n for a, n in enumerate(current.shape))
        last = i == len(resize_passes) - 1
        result = y if last else lowering.tensors[lowering.temporary(Tensor(f"{y.name}.pass", x.dtype, shape))]
        _blend(node, lowering, (current, result), [(a, taps[a]) for a in step.axes])
        current = result


def plan_passes(changed: Sequence[int], before: Sequence[int], after: Sequence[int]) -> list[ResizePass]:
    """Return the axes in pairs of neighbors, from the last on; what shrinks the tensor most comes first."""
    left = list(changed)
    resize_passes = []
    while left:
        axes: tuple[int, ...] = (left.pop(),)
        if left and left[-1] == axes[0] - 1:
            axes = (left.pop(), *axes)
        resize_passes.append(ResizePass(axes, prod(after[a] / before[a] for a in axes)))
    # Later passes then work on fewer elements.
    return sorted(resize_passes, key=lambda p: p.growth)


def _blend(
    node: Node, lowering: Lowering, through: tuple[Tensor, Tensor], axes: Sequence[tuple[int, Taps]]
) -> None:
    x, y = through
    (down, lines), across = axes[0], axes[1:]
    value = float(node.attributes(ResizeAttributes).extrapolation)
    args = {**plane_args(x, y, down, bool(across)), "value": value}
    table_names: list[str] = []
    for axis, taps in axes:
        table_names += make_tables(lowering, f"{y.name}.{axis}", taps)
    count = lines.indices.shape[1]
    name = f"resize_{'linear' if count == 2 else 'cubic'}{'_2d' if across else ''}_f32"
    kernel = Kernel(name, KERNELS / "resize.c.in", FIELDS, {"taps": count, "across": bool(across)}, (MOVE,))
    scratch = 4 * prod(x.shape[down + 1 :]) if across else 0
    lowering.call(node, Call(kernel, args, [x.name, *table_names], [y.name], scratch=scratch))


def plane_args(x: Tensor, y: Tensor, down: int, across: bool) -> dict[str, Arg]:
    """Return all arguments of FIELDS but the value: an axis, and the one behind it too if `across`."""
    width = prod(x.shape[down + 1 :])
    return {
        "in_height": x.shape[down],
        "out_height": y.shape[down],
        "in_width": x.shape[down + 1] if across else width,
        "out_width": y.shape[down + 1] if across else width,
        "channels": prod(x.shape[down + 2 :]) if across else 1,
        **chunks(prod(y.shape[: down + 1]), 4 * prod(y.shape[down + 1 :])),
    }


def make_tables(lowering: Lowering, stem: str, taps: Taps) -> tuple[str, str]:
    """Return the positions and weights of one axis as constants."""
    # -1 tells the kernel to take the extrapolation value.
    positions = np.where(taps.outside[:, None], -1, taps.indices).astype(np.int32)
    weights = taps.weights.astype(np.float32)
    positions_name = lowering.weight(f"{stem}.taps", positions.shape, "i4", lambda: positions)
    return positions_name, lowering.weight(f"{stem}.weights", weights.shape, "f4", lambda: weights)


LOWERINGS: Mapping[str, Lower] = {"Resize": resize}
