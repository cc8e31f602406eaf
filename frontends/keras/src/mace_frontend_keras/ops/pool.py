"""Layers that reduce windows, or the complete image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from mace_core.decompositions import same_paddings
from mace_core.ir import Shape
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.conv import window_attributes


def _pool(op: str, rank: int) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.to_channels_last(node.float_input())
        spatial = node.shape(x)[1:-1]
        node.require_consistent(
            len(spatial) == rank, f"it is given {len(spatial)} spatial axes, {rank} were expected"
        )
        kernel = node.integers("pool_size", rank, 2)
        node.require_consistent(min(kernel) > 0, f"it has a pool of {list(kernel)}")
        # Without strides windows lie side by side.
        make_attributes = _side_by_side if node.get("strides") is None else window_attributes
        attrs = make_attributes(node, spatial, kernel)
        return node.done_in_layer_order(op, [x], {**attrs, "kernel": kernel})

    return handle


def _side_by_side(node: KerasNode, spatial: Shape, kernel: Shape) -> dict[str, Any]:
    """Return the attributes of windows whose strides are their size."""
    before: Shape = (0,) * len(kernel)
    after: Shape = before
    if node.get("padding") == "same":
        before, after = same_paddings(spatial, kernel, kernel)
    return {"strides": kernel, "dilations": (1,) * len(kernel), "pads_before": before, "pads_after": after}


def _global(op: str, rank: int) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.float_input()
        node.require_consistent(
            len(node.shape(x)) == rank + 2,
            f"it is given a tensor of rank {len(node.shape(x))}, expected {rank + 2}",
        )
        axes = tuple(range(2, rank + 2)) if node.is_channels_first else tuple(range(1, rank + 1))
        return node.done(op, [x], {"axes": axes, "keepdims": bool(node.get("keepdims", False))})

    return handle


def _adaptive(op: str, rank: int) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.to_channels_last(node.float_input())
        spatial, sizes = node.shape(x)[1:-1], node.integers("output_size", rank)
        # A size that does not divide needs windows of several sizes, which no op of the IR has.
        divides = len(spatial) == rank and min(sizes) > 0
        fits = divides and all(n % s == 0 for n, s in zip(spatial, sizes, strict=True))
        node.refuse_unless(
            fits, f"{list(spatial)} pooled to {list(sizes)}, which does not divide; use a pool of one size"
        )
        kernel = tuple(n // s for n, s in zip(spatial, sizes, strict=True))
        none = (0,) * rank
        attrs = {
            "kernel": kernel,
            "strides": kernel,
            "dilations": (1,) * rank,
            "pads_before": none,
            "pads_after": none,
        }
        return node.done_in_layer_order(op, [x], attrs)

    return handle


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{f"MaxPooling{n}D": _pool("MaxPool", n) for n in (1, 2, 3)},
        **{f"AveragePooling{n}D": _pool("AveragePool", n) for n in (1, 2, 3)},
        **{f"GlobalMaxPooling{n}D": _global("ReduceMax", n) for n in (1, 2, 3)},
        **{f"GlobalAveragePooling{n}D": _global("ReduceMean", n) for n in (1, 2, 3)},
        **{f"AdaptiveMaxPooling{n}D": _adaptive("MaxPool", n) for n in (1, 2, 3)},
        **{f"AdaptiveAveragePooling{n}D": _adaptive("AveragePool", n) for n in (1, 2, 3)},
    }
)
