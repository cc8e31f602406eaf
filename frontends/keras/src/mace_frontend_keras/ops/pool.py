"""Layers that reduce windows, or the whole image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.conv import windows


def _pool(op: str, rank: int) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.to_channels_last(node.float_input())
        spatial = node.shape(x)[1:-1]
        node.refuse_unless(
            len(spatial) == rank, f"it is given {len(spatial)} spatial axes, {rank} were expected"
        )
        kernel = node.integers("pool_size", rank, 2)
        node.refuse_unless(min(kernel) > 0, f"a pool of {list(kernel)}")
        sized = (
            windows(node, spatial, kernel)
            if node.get("strides") is not None
            else _side_by_side(node, spatial, kernel)
        )
        return node.done_in_own_order(op, [x], {**sized, "kernel": kernel})

    return handle


def _side_by_side(node: KerasNode, spatial: tuple[int, ...], kernel: tuple[int, ...]) -> dict[str, object]:
    """Windows with the strides that are left out: as far as the pool is wide."""
    rank = len(kernel)
    total = [
        max(-(-n // k) * k - n, 0) if node.get("padding") == "same" else 0
        for n, k in zip(spatial, kernel, strict=True)
    ]
    before = tuple(t // 2 for t in total)
    after = tuple(t - b for t, b in zip(total, before, strict=True))
    return {"strides": kernel, "dilations": (1,) * rank, "pads_before": before, "pads_after": after}


def _global(op: str, rank: int) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.float_input()
        node.refuse_unless(
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
        fits = (
            len(spatial) == rank
            and min(sizes) > 0
            and all(n % s == 0 for n, s in zip(spatial, sizes, strict=True))
        )
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
        return node.done_in_own_order(op, [x], attrs)

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
