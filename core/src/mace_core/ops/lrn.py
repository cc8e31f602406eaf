"""LRN: local response normalization over adjacent channels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array
from mace_core.ops.norm import channels_last, move_outer
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need


@dataclass(frozen=True)
class LRNAttributes(Attributes):
    """size: channels of a window.  alpha, beta, bias: the terms of the formula at `_lrn`."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0


def _infer(inputs: Inputs, attrs: LRNAttributes) -> list[Spec]:
    x = channels_last(inputs, min_rank=2)
    need(attrs.size >= 1, f"size is {attrs.size}; it must be a positive number")
    return [(x.dtype, x.shape)]


def _lrn(x: Array, attrs: LRNAttributes) -> Array:
    """Divide x by (bias + alpha / size * sum of squares over `size` channels) ** beta."""
    size = attrs.size
    if not x.size:
        return x
    # An even window reaches one channel further up than down, as ONNX defines it.
    before = (size - 1) // 2
    squares = np.pad(x.astype(np.float64) ** 2, [(0, 0)] * (x.ndim - 1) + [(before, size - 1 - before)])
    windows = np.lib.stride_tricks.sliding_window_view(squares, size, axis=-1)
    divisors = (attrs.bias + attrs.alpha / size * windows.sum(axis=-1)) ** attrs.beta
    return np.asarray(x / divisors).astype(x.dtype)


OPS = (
    Op(
        "LRN",
        ("x",),
        ("y",),
        _infer,
        _lrn,
        LRNAttributes,
        move=move_outer,
    ),
)
