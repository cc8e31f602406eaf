"""Rewrites pools and reductions over rows and columns to pools of the hardware."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mace_core.ir import Node
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.pool import AveragePoolAttributes, PoolAttributes
from mace_core.ops.reduce import ReduceAttributes
from mace_core.ops.slice import SliceAttributes
from mace_core.rewrite import Match
from mace_target_max78000.device import MAX_POOL
from mace_target_max78000.legalize.copies import plain_window, require_bytes
from mace_target_max78000.legalize.refusals import NoEquivalentError

POOLED_RANKS = (3, 4)
"""Axes of data with rows: lines and images."""


def pool_rule(has_dilated_pools: bool) -> Callable[[Match], Sequence[str] | None]:
    """Return the rule that rewrites pools with padding or other strides."""

    def rewrite_pool(match: Match) -> Sequence[str] | None:
        node = match.node
        if node.op.name not in ("MaxPool", "AveragePool"):
            return None
        attrs = node.attributes(PoolAttributes)
        size, dilations = list(attrs.kernel), list(attrs.dilations)
        if max(size) > MAX_POOL:
            problem = f"its window is {size}, and those of the hardware are at most {MAX_POOL}"
            raise NoEquivalentError(f"{problem}; use two smaller pools")
        if max(dilations) > 1 and not has_dilated_pools:
            problem = f"its dilation is {dilations}, and the part has no dilated pools"
            raise NoEquivalentError(f"{problem}; use dilation 1")
        before, after = _measure_reach(match)
        if any(before) or any(after):
            return _pad_pool(match, before, after)
        return _unify_strides(match)

    return rewrite_pool


def _measure_reach(match: Match) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many elements before and after the data the windows need, along each axis."""
    node, spatial = match.node, match.shape(0)[1:-1]
    attrs = node.attributes(PoolAttributes)
    windows = attrs.windows(len(spatial))
    count = windows.count(spatial, attrs.ceil)
    axes = zip(spatial, count, windows.strides, windows.extent, windows.before, strict=True)
    # The padding that the node states may be more than its last window reaches.
    after = [(results - 1) * stride + extent - size - pad for size, results, stride, extent, pad in axes]
    return windows.before, tuple(max(elements, 0) for elements in after)


def _pad_pool(match: Match, before: tuple[int, ...], after: tuple[int, ...]) -> Sequence[str]:
    """Pad in a layer of its own, because the hardware pads after its pool."""
    node, builder = match.node, match.new
    if node.op.name == "AveragePool" and not node.attributes(AveragePoolAttributes).count_pad:
        problem = "its mean leaves out the padding"
        raise NoEquivalentError(f"{problem}; let it count the padding, or pad nothing")
    if node.op.name == "MaxPool" and not is_never_negative(match, node.inputs[0]):
        # A zero of padding would be the maximum of a window of negative data.
        problem = "it pads data that may be negative, and the hardware pads with zeros"
        raise NoEquivalentError(f"{problem}; put a ReLU before it, or pad nothing")
    storage = require_bytes(builder.tensors[node.inputs[0]].storage, node.inputs[0])
    name = builder.stored(f"{node.name}.padded", storage)
    pads = {"before": (0, *before, 0), "after": (0, *after, 0)}
    padded = builder.one("Pad", [node.inputs[0]], pads, outputs=[name], like=node)
    zeros = (0,) * len(before)
    attrs = replace(node.attributes(PoolAttributes), pads_before=zeros, pads_after=zeros, ceil=False)
    return match.emit(node.op, [padded], attrs)


def _unify_strides(match: Match) -> Sequence[str] | None:
    """Give both axes one stride; along an axis of one window any stride gives the same."""
    node = match.node
    attrs = node.attributes(PoolAttributes)
    strides = attrs.strides
    problem = f"its strides {list(strides)} differ, and the hardware has one for rows and columns"
    shape = match.shape(0)[1:-1]
    count = attrs.windows(len(shape)).count(shape)
    needed = {stride for stride, windows in zip(strides, count, strict=True) if windows > 1}
    if len(needed) > 1:
        raise NoEquivalentError(f"{problem}; use equal strides")
    stride = needed.pop() if needed else min(max(strides), MAX_POOL)
    if stride > MAX_POOL:
        raise NoEquivalentError(
            f"its stride is {stride}, and those of the hardware are at most {MAX_POOL}; use two pools"
        )
    unified = replace(attrs, strides=(stride,) * len(strides))
    # A smaller stride along an axis of one window may leave room for a second one.
    if unified.windows(len(shape)).count(shape) != count:
        raise NoEquivalentError(f"{problem}; use equal strides")
    return match.emit(node.op, node.inputs, unified) if unified != attrs else None


def is_never_negative(match: Match, tensor: str) -> bool:
    """Whether the node that computes a tensor limits it to 0 and above."""
    node: Node | None = match.new.producer(tensor)
    while node and node.op.moves and len(node.inputs) == 1:
        node = match.new.producer(node.inputs[0])
    if node is None:
        return False
    is_clamped = isinstance(node.attrs, ClampAttributes) and node.attrs.low >= 0
    return is_clamped or node.op.name in ("Relu", "Abs")


def rewrite_reduction(match: Match) -> Sequence[str] | None:
    """Rewrite the mean or maximum over all rows and columns to a pool."""
    node, builder = match.node, match.new
    if node.op.name not in ("ReduceMean", "ReduceMax"):
        return None
    shape = match.shape(0)
    axes = {axis % len(shape) for axis in node.attributes(ReduceAttributes).axes}
    if len(shape) not in POOLED_RANKS or axes != set(range(1, len(shape) - 1)):
        problem = f"it reduces axes {sorted(axes)}, and the hardware pools rows and columns"
        raise NoEquivalentError(f"{problem}; reduce all rows and columns, or compute it outside")
    attrs = {"kernel": shape[1:-1], **plain_window((0,) * len(axes))}
    op = "AveragePool" if node.op.name == "ReduceMean" else "MaxPool"
    name = builder.stored(f"{node.name}.pooled", builder.storages.get(node.outputs[0]))
    pooled = builder.one(op, [node.inputs[0]], attrs, outputs=[name], like=node)
    result = node.op.infer([builder.tensors[node.inputs[0]].real], node.attrs)[0][1]
    return [pooled] if result == builder.shape(pooled) else match.emit("Reshape", [pooled], {"shape": result})


def remove_crop_before_pool(match: Match) -> Sequence[str] | None:
    """Let a pool over the beginning of data read all of it, where its windows stay the same.

    This saves the layers that would crop.
    """
    node = match.node
    if node.op.name not in ("MaxPool", "AveragePool"):
        return None
    crop = match.sole_producer(0, "Slice")
    producer_node = match.new.producer(node.inputs[0])
    if (
        crop is None
        and producer_node
        and producer_node.op.name == "Slice"
        and match.uses.get(node.inputs[0], 1) == 1
    ):
        crop = producer_node
    if crop is None or not _keeps_start(crop.attributes(SliceAttributes)):
        return None
    windows = node.attributes(PoolAttributes).windows(len(match.shape(0)) - 2)
    source_shape, part_shape = match.new.shape(crop.inputs[0]), match.shape(0)
    same = (
        windows.count(source_shape[1:-1]) == windows.count(part_shape[1:-1])
        and source_shape[-1] == part_shape[-1]
    )
    return match.emit(node.op, [crop.inputs[0]], node.attrs) if same else None


def _keeps_start(attrs: SliceAttributes) -> bool:
    """Whether a Slice takes all elements up to its end."""
    return not any(attrs.starts) and set(attrs.steps) == {1}
