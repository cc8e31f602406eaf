"""Normalisation by moments of the tensor itself: LayerNorm, GroupNorm, InstanceNorm, MeanVarianceNorm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from mace_core.ir import Array, DType, Node, Tensor
from mace_core.kernel_target import Lower
from mace_core.lowering import Lowering, Refused
from mace_core.ops.norm import (
    MVN_EPSILON,
    EpsilonAttributes,
    GroupNormAttributes,
    LayerNormAttributes,
    MeanVarianceNormAttributes,
)
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.batch_norm import FEW, period
from mace_target_cpu.lower.plain import compose
from mace_target_cpu.lower.reduce import runs
from mace_target_cpu.lower.softmax import MATH, ROW, WIDEST, chunk
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.types import FREEZE, MERGE_AXES, refuse_type

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


def _float(node: Node, to: Lowering) -> Tensor:
    x = to.tensors[node.inputs[0]]
    if x.dtype is not DType.F32:
        raise refuse_type(node.op.name, x.dtype)
    return x


def layer_norm(node: Node, to: Lowering) -> None:
    """Row by row; a scale or bias that broadcasts along a row must be a constant."""
    if to.tensors[node.inputs[0]].dtype is DType.F64:
        compose(node, to)
        return
    x = _float(node, to)
    attrs = node.attributes(LayerNormAttributes)
    inner = x.shape[attrs.axis % len(x.shape) :]
    vectors = [_stretched(name, to, inner) for name in (*node.inputs[1:], "")[:2]]
    kernel = Kernel("layer_norm_f32", KERNELS / "norm_rows.c.in", ROW_FIELDS, {"affine": True}, (ROW,))
    args = _rows(x.elements, prod(inner)) | {"epsilon": attrs.epsilon}
    to.call(node, Call(kernel, args, [node.inputs[0], *vectors], node.outputs, inplace=True))


def rms_norm(node: Node, to: Lowering) -> None:
    """Row by row; a scale that broadcasts along a row must be a constant."""
    x = _float(node, to)
    attrs = node.attributes(LayerNormAttributes)
    inner = x.shape[attrs.axis % len(x.shape) :]
    if not x.elements:
        return
    args = {"n": prod(inner), "epsilon": attrs.epsilon, **chunks(x.elements // prod(inner), 4 * prod(inner))}
    kernel = Kernel(
        "rms_norm_f32", KERNELS / "rms_norm.c.in", (("n", "i32"), ("epsilon", "f32"), *TASKS), {}, (MOVE, ROW)
    )
    to.call(
        node, Call(kernel, args, [x.name, _stretched(node.inputs[1], to, inner)], node.outputs, inplace=True)
    )


def _rows(elements: int, n: int) -> dict[str, int | float]:
    rows = elements // n if n else 0
    return {"rows": rows, "n": n, **chunk(rows, n)}


def _stretched(name: str, to: Lowering, shape: Sequence[int]) -> str:
    """Name the tensor, or where it has fewer elements than the rows, the constant that it is made at full size."""
    if not name or to.tensors[name].elements == prod(shape):
        return name
    array = to.constant(name)
    if array is None:
        raise Refused(
            f"{name} broadcasts along the normalized axes and is not a constant", code="shape", remedy=FREEZE
        )
    whole: Array = array

    def make() -> Array:
        return np.broadcast_to(whole, tuple(shape)).astype(np.float32)

    return to.weight(f"{name}_whole", tuple(shape), "float32", make)


@dataclass(frozen=True)
class Columns:
    """Images of rows x channels, of which so many neighbours form a group."""

    images: int
    rows: int
    channels: int
    group: int

    def args(self) -> dict[str, int]:
        """Give the kernel's arguments: rows of whole vectors where channels are few, blocks of whole groups where they are many."""
        few = self.channels < FEW
        row = period(self.channels)
        width = row if few else min(self.channels, max(self.group, BLOCK // self.group * self.group))
        images = self.images if self.rows * self.channels else 0
        sizes = {"images": images, "rows": self.rows, "channels": self.channels, "group": self.group}
        return {**sizes, "period": row, "width": width}


def _by_columns(node: Node, to: Lowering, columns: Columns, epsilon: float) -> None:
    affine = node.op.name != "MeanVarianceNorm"
    stem = "group_norm_f32" if affine else "mvn_columns_f32"
    kernel = Kernel(stem, KERNELS / "norm_columns.c.in", COLUMN_FIELDS, {"affine": affine}, (MATH, ROW))
    args = columns.args()
    scratch = (args["width"] + WIDEST) * (2 * 8 + 4 * 4)
    to.call(
        node,
        Call(kernel, {**args, "epsilon": epsilon}, node.inputs, node.outputs, scratch=scratch, inplace=True),
    )


def group_norm(node: Node, to: Lowering) -> None:
    """GroupNorm, and InstanceNorm as one of single channels."""
    x = _float(node, to)
    channels = x.shape[-1]
    attrs = node.attrs
    if isinstance(attrs, GroupNormAttributes):
        groups, epsilon = attrs.groups, attrs.epsilon
    else:
        groups, epsilon = channels, node.attributes(EpsilonAttributes).epsilon
    columns = Columns(x.shape[0], prod(x.shape[1:-1]), channels, max(1, channels // max(groups, 1)))
    _by_columns(node, to, columns, epsilon)


def mean_variance_norm(node: Node, to: Lowering) -> None:
    """By rows or columns where the axes lie together, else by the general loop nest."""
    x = _float(node, to)
    axes = node.attributes(MeanVarianceNormAttributes).axes
    merged = runs(x.shape, [a % len(x.shape) for a in axes]) if x.elements else []
    kinds = [over for over, _, _ in merged]
    sizes = [size for _, size, _ in merged]
    if kinds in ([True], [False, True]):
        kernel = Kernel("mvn_rows_f32", KERNELS / "norm_rows.c.in", ROW_FIELDS, {"affine": False}, (ROW,))
        args = _rows(x.elements, sizes[-1]) | {"epsilon": MVN_EPSILON}
        to.call(node, Call(kernel, args, node.inputs, node.outputs, inplace=True))
    elif kinds in ([True, False], [False, True, False]):
        images, rows, channels = (1, *sizes)[-LOOPS:]
        _by_columns(node, to, Columns(images, rows, channels, 1), MVN_EPSILON)
    else:
        _general(node, to, merged, x)


def _general(node: Node, to: Lowering, merged: Sequence[tuple[bool, int, int]], x: Tensor) -> None:
    over, kept = ([(size, step) for joined, size, step in merged if joined is kind] for kind in (True, False))
    if max(len(over), len(kept)) > LOOPS:
        reason = f"its axes lie in {len(over)} places, between {len(kept)} others; the kernel loops over {LOOPS} of each"
        raise Refused(reason, code="shape", remedy=MERGE_AXES)
    count = prod(size for size, _ in over)
    args: dict[str, float | tuple[int, ...]] = {"count": float(count), "epsilon": MVN_EPSILON}
    for name, loops in (("over", over), ("kept", kept)):
        args[name] = (1,) * (LOOPS - len(loops)) + tuple(size for size, _ in loops)
        args[f"{name}_stride"] = (0,) * (LOOPS - len(loops)) + tuple(step for _, step in loops)
    if not x.elements:
        args["kept"] = (0, 0, 0)
    to.call(node, Call(GENERAL, args, node.inputs, node.outputs, inplace=True))


LOWERINGS: Mapping[str, Lower] = {
    "LayerNorm": layer_norm,
    "RMSNorm": rms_norm,
    "GroupNorm": group_norm,
    "InstanceNorm": group_norm,
    "MeanVarianceNorm": mean_variance_norm,
}
