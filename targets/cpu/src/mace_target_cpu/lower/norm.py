"""Normalization by moments of the tensor itself: LayerNorm, GroupNorm, InstanceNorm, MeanVarianceNorm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.norm import (
    MVN_EPSILON,
    EpsilonAttributes,
    GroupNormAttributes,
    LayerNormAttributes,
    MeanVarianceNormAttributes,
)
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS, MAX_LANES
from mace_target_cpu.lower.batch_norm import FEW, period
from mace_target_cpu.lower.plain import compose
from mace_target_cpu.lower.reduce import runs
from mace_target_cpu.lower.softmax import MATH, ROW, chunk
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.types import FREEZE, MERGE_AXES, need_type

LOOPS = 3
"""Axes of each kind that the general kernel loops over."""
BLOCK = 64
"""Columns that a task takes if whole groups of channels allow it."""
TASKS = (("rows", "i64"), ("grain", "i64"))
ROW_FIELDS = (("rows", "i64"), ("n", "i32"), ("epsilon", "f32"), ("chunk", "i32"), ("tasks", "i32"))
COLUMN_FIELDS = (
    *((n, "i32") for n in ("images", "rows", "channels", "group", "period", "width")),
    ("epsilon", "f32"),
)
GENERAL = Kernel(
    "mvn_f32",
    KERNELS / "norm_general.c.in",
    (
        ("count", "f64"),
        ("over", "i32[3]"),
        ("over_stride", "i64[3]"),
        ("kept", "i32[3]"),
        ("kept_stride", "i64[3]"),
        ("epsilon", "f32"),
    ),
)


def layer_norm(node: Node, lowering: Lowering) -> None:
    """Normalize row by row; a scale or bias that broadcasts along a row must be a constant."""
    if lowering.tensors[node.inputs[0]].dtype is DType.F64:
        compose(node, lowering)
        return
    x = lowering.tensors[node.inputs[0]]
    need_type(node, x)
    attrs = node.attributes(LayerNormAttributes)
    inner = x.shape[attrs.axis % len(x.shape) :]
    vectors = [_stretch(name, lowering, inner) for name in (*node.inputs[1:], "")[:2]]
    kernel = Kernel("layer_norm_f32", KERNELS / "norm_rows.c.in", ROW_FIELDS, {"affine": True}, (ROW,))
    args = _row_args(x.elements, prod(inner)) | {"epsilon": attrs.epsilon}
    lowering.call(node, Call(kernel, args, [node.inputs[0], *vectors], node.outputs, inplace=True))


def rms_norm(node: Node, lowering: Lowering) -> None:
    """Normalize row by row; a scale that broadcasts along a row must be a constant."""
    x = lowering.tensors[node.inputs[0]]
    need_type(node, x)
    attrs = node.attributes(LayerNormAttributes)
    inner = x.shape[attrs.axis % len(x.shape) :]
    if not x.elements:
        return
    args = {"n": prod(inner), "epsilon": attrs.epsilon, **chunks(x.elements // prod(inner), 4 * prod(inner))}
    kernel = Kernel(
        "rms_norm_f32", KERNELS / "rms_norm.c.in", (("n", "i32"), ("epsilon", "f32"), *TASKS), {}, (MOVE, ROW)
    )
    lowering.call(
        node,
        Call(kernel, args, [x.name, _stretch(node.inputs[1], lowering, inner)], node.outputs, inplace=True),
    )


def _row_args(elements: int, n: int) -> dict[str, int | float]:
    rows = elements // n if n else 0
    return {"rows": rows, "n": n, **chunk(rows, n)}


def _stretch(name: str, lowering: Lowering, shape: Sequence[int]) -> str:
    """Name the tensor, or where it has fewer elements than a row, the constant made of it at full size."""
    if not name or lowering.tensors[name].elements == prod(shape):
        return name
    array = lowering.constant(name)
    if array is None:
        raise Refused(
            f"{name} broadcasts along the normalized axes and is not a constant", code="shape", remedy=FREEZE
        )
    # The kernel reads scale and bias as rows; stretching them costs memory, and no time at each run.
    constant: Array = array

    def make() -> Array:
        return np.broadcast_to(constant, tuple(shape)).astype(np.float32)

    return lowering.weight(f"{name}_whole", tuple(shape), "float32", make)


@dataclass(frozen=True)
class ChannelColumns:
    """Describes images of rows x channels, of which so many neighbors form a group."""

    images: int
    rows: int
    channels: int
    group: int

    def args(self) -> dict[str, int]:
        """Give the kernel's arguments.

        Rows of whole vectors where channels are few, blocks of whole groups where they are many.
        """
        # A task takes whole groups, because a group's mean needs all of its channels.
        few = self.channels < FEW
        row = period(self.channels)
        width = row if few else min(self.channels, max(self.group, BLOCK // self.group * self.group))
        images = self.images if self.rows * self.channels else 0
        sizes = {"images": images, "rows": self.rows, "channels": self.channels, "group": self.group}
        return {**sizes, "period": row, "width": width}


def _lower_columns(node: Node, lowering: Lowering, columns: ChannelColumns, epsilon: float) -> None:
    affine = node.op.name != "MeanVarianceNorm"
    stem = "group_norm_f32" if affine else "mvn_columns_f32"
    kernel = Kernel(stem, KERNELS / "norm_columns.c.in", COLUMN_FIELDS, {"affine": affine}, (MATH, ROW))
    args = columns.args()
    # Two doubles and four floats a column, and the end of a vector behind each.
    scratch = (args["width"] + MAX_LANES) * (2 * 8 + 4 * 4)
    lowering.call(
        node,
        Call(kernel, {**args, "epsilon": epsilon}, node.inputs, node.outputs, scratch=scratch, inplace=True),
    )


def group_norm(node: Node, lowering: Lowering) -> None:
    """Lower GroupNorm, and InstanceNorm as one of single channels."""
    x = lowering.tensors[node.inputs[0]]
    need_type(node, x)
    channels = x.shape[-1]
    attrs = node.attrs
    if isinstance(attrs, GroupNormAttributes):
        groups, epsilon = attrs.groups, attrs.epsilon
    else:
        groups, epsilon = channels, node.attributes(EpsilonAttributes).epsilon
    columns = ChannelColumns(x.shape[0], prod(x.shape[1:-1]), channels, max(1, channels // max(groups, 1)))
    _lower_columns(node, lowering, columns, epsilon)


def mean_variance_norm(node: Node, lowering: Lowering) -> None:
    """Lower it by rows or columns where the axes lie together, else by the general loop nest."""
    x = lowering.tensors[node.inputs[0]]
    need_type(node, x)
    axes = node.attributes(MeanVarianceNormAttributes).axes
    merged = runs(x.shape, [a % len(x.shape) for a in axes]) if x.elements else []
    kinds = [averaged for averaged, _, _ in merged]
    sizes = [size for _, size, _ in merged]
    # Averaged axes last: rows. Averaged axes before the last: columns. Anything else walks by strides.
    if kinds in ([True], [False, True]):
        kernel = Kernel("mvn_rows_f32", KERNELS / "norm_rows.c.in", ROW_FIELDS, {"affine": False}, (ROW,))
        args = _row_args(x.elements, sizes[-1]) | {"epsilon": MVN_EPSILON}
        lowering.call(node, Call(kernel, args, node.inputs, node.outputs, inplace=True))
    elif kinds in ([True, False], [False, True, False]):
        images, rows, channels = (1, *sizes)[-LOOPS:]
        _lower_columns(node, lowering, ChannelColumns(images, rows, channels, 1), MVN_EPSILON)
    else:
        _lower_general(node, lowering, merged, x)


def _lower_general(
    node: Node, lowering: Lowering, merged: Sequence[tuple[bool, int, int]], x: Tensor
) -> None:
    averaged, remaining = (
        [(size, step) for is_averaged, size, step in merged if is_averaged is kind] for kind in (True, False)
    )
    if max(len(averaged), len(remaining)) > LOOPS:
        reason = (
            f"its axes lie in {len(averaged)} places, between {len(remaining)} others; "
            f"the kernel loops over {LOOPS} of each"
        )
        raise Refused(reason, code="shape", remedy=MERGE_AXES)
    count = prod(size for size, _ in averaged)
    args: dict[str, float | tuple[int, ...]] = {"count": float(count), "epsilon": MVN_EPSILON}
    for name, loops in (("over", averaged), ("kept", remaining)):
        args[name] = (1,) * (LOOPS - len(loops)) + tuple(size for size, _ in loops)
        args[f"{name}_stride"] = (0,) * (LOOPS - len(loops)) + tuple(step for _, step in loops)
    if not x.elements:
        args["kept"] = (0, 0, 0)
    lowering.call(node, Call(GENERAL, args, node.inputs, node.outputs, inplace=True))


LOWERINGS: Mapping[str, Lower] = {
    "LayerNorm": layer_norm,
    "RMSNorm": rms_norm,
    "GroupNorm": group_norm,
    "InstanceNorm": group_norm,
    "MeanVarianceNorm": mean_variance_norm,
}
