"""Rewrites pools and reductions over rows and columns to pools of the hardware."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mace_core.ir import Node
from mace_core.ops.arguments import integers
from mace_core.ops.windows import Windows
from mace_core.rewrite import Match
from mace_target_max78000.legalize.copies import (
    plain_window,
    require_bytes,
)
from mace_target_max78000.legalize.refusals import RefusedError


def pool_rule(pipelined: bool) -> Callable[[Match], Sequence[str] | None]:
    """Pools with padding or other strides as those that the hardware has.

    pipelined: whether the part has dilated pools.
    """

    def rule(match: Match) -> Sequence[str] | None:
        node = match.node
        if node.op.name not in ("MaxPool", "AveragePool"):
            return None
        size, dilations = integers(node.attrs, "kernel"), integers(node.attrs, "dilations")
        if max(size) > MAX_POOL:
            raise RefusedError(
                f"its window is {list(size)}, the hardware's are at most {MAX_POOL}; use two smaller pools"
            )
        if max(dilations) > 1 and not pipelined:
            raise RefusedError(
                f"its dilation is {list(dilations)}, and the part has no dilated pools; use dilation 1"
            )
        before, after = _measure_reach(match)
        if any(before) or any(after):
            return _pad_pool(match, before, after)
        return _unify_strides(match)

    return rule


def _measure_reach(match: Match) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The elements before and after the data that windows need."""
    node, spatial = match.node, match.shape(0)[1:-1]
    windows = Windows.of(integers(node.attrs, "kernel"), node.attrs)
    count = windows.count(spatial, bool(node.attrs["ceil"]))
    ends = [
        (c - 1) * s + e - n - b
        for c, s, e, n, b in zip(count, windows.strides, windows.extent, spatial, windows.before, strict=True)
    ]
    return windows.before, tuple(max(end, 0) for end in ends)


def _pad_pool(match: Match, before: tuple[int, ...], after: tuple[int, ...]) -> Sequence[str]:
    node, new = match.node, match.new
    if node.op.name == "AveragePool" and not node.attrs["count_pad"]:
        raise RefusedError("its mean leaves out the padding; let it count the padding, or pad nothing")
    if node.op.name == "MaxPool" and not is_never_negative(match, node.inputs[0]):
        raise RefusedError(
            "it pads data that may be negative, and the hardware pads with zeros; put a ReLU before it, or pad nothing"
        )
    name = new.stored(
        f"{node.name}.padded", require_bytes(new.tensors[node.inputs[0]].storage, node.inputs[0])
    )
    wide = new.one(
        "Pad",
        [node.inputs[0]],
        {"before": (0, *before, 0), "after": (0, *after, 0)},
        outputs=[name],
        like=node,
    )
    zeros = (0,) * len(before)
    return match.emit(
        node.op, [wide], {**node.attrs, "pads_before": zeros, "pads_after": zeros, "ceil": False}
    )


def _unify_strides(match: Match) -> Sequence[str] | None:
    """Strides that do not matter, because there is one window along their axis, as those of the other axis."""
    node = match.node
    strides, size = integers(node.attrs, "strides"), integers(node.attrs, "kernel")
    shape = match.shape(0)[1:-1]
    count = Windows.of(size, node.attrs).count(shape)
    needed = {s for s, c in zip(strides, count, strict=True) if c > 1}
    if len(needed) > 1:
        raise RefusedError(f"its strides {list(strides)} differ; the hardware has one for rows and columns")
    stride = needed.pop() if needed else min(max(strides), MAX_POOL)
    if stride > MAX_POOL:
        raise RefusedError(f"its stride is {stride}, the hardware's are at most {MAX_POOL}; use two pools")
    attrs = {**node.attrs, "strides": (stride,) * len(strides)}
    if Windows.of(size, attrs).count(shape) != count:
        raise RefusedError(f"its strides {list(strides)} differ; the hardware has one for rows and columns")
    return match.emit(node.op, node.inputs, attrs) if attrs != dict(node.attrs) else None


def is_never_negative(match: Match, tensor: str) -> bool:
    """Whether what makes a tensor limits it to 0 and above."""
    node: Node | None = match.new.producer(tensor)
    while node and node.op.moves and len(node.inputs) == 1:
        node = match.new.producer(node.inputs[0])
    return node is not None and (
        float(str(node.attrs.get("low", -math.inf))) >= 0 or node.op.name in ("Relu", "Abs")
    )


def rewrite_reduction(match: Match) -> Sequence[str] | None:
    """The mean over all rows and columns as a pool."""
    node, shape = match.node, match.shape(0) if match.node.inputs and match.node.inputs[0] else ()
    if node.op.name not in ("ReduceMean", "ReduceMax"):
        return None
    axes = {a % len(shape) for a in integers(node.attrs, "axes")}
    if len(shape) not in (3, 4) or axes != set(range(1, len(shape) - 1)):
        raise RefusedError(f"it reduces axes {sorted(axes)}; the hardware pools rows and columns")
    attrs = {"kernel": shape[1:-1], **plain_window((0,) * len(axes))}
    op, new = ("AveragePool" if node.op.name == "ReduceMean" else "MaxPool"), match.new
    name = new.stored(f"{node.name}.pooled", new.storages.get(node.outputs[0]))
    pooled = new.one(op, [node.inputs[0]], attrs, outputs=[name], like=node)
    kept = node.op.infer([new.tensors[node.inputs[0]].real], node.attrs)[0][1]
    return [pooled] if kept == new.shape(pooled) else match.emit("Reshape", [pooled], {"shape": kept})


MAX_POOL = 16
"""The largest window and stride of a pool."""


def remove_crop_before_pool(match: Match) -> Sequence[str] | None:
    """A pool over the beginning of data reads all of it, where its windows stay the same."""
    node = match.node
    cut = match.sole_producer(0, "Slice") if node.inputs else None
    maker = match.new.producer(node.inputs[0]) if node.inputs and node.inputs[0] else None
    cut = cut or (
        maker if maker and maker.op.name == "Slice" and match.uses.get(node.inputs[0], 1) == 1 else None
    )
    if node.op.name not in ("MaxPool", "AveragePool") or cut is None or not _keeps_start(cut.attrs):
        return None
    windows = Windows.of(integers(node.attrs, "kernel"), node.attrs)
    whole, part = match.new.shape(cut.inputs[0]), match.shape(0)
    same = windows.count(whole[1:-1]) == windows.count(part[1:-1]) and whole[-1] == part[-1]
    return match.emit(node.op, [cut.inputs[0]], node.attrs) if same else None


def _keeps_start(attrs: object) -> bool:
    assert hasattr(attrs, "__getitem__")
    return not any(attrs["starts"]) and set(attrs["steps"]) == {1}
