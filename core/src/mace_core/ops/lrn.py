"""LRN: local response normalisation over neighbouring channels."""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array, Attrs
from mace_core.ops.norm import channels_last, move_outer
from mace_core.ops.op import REQUIRED, Op, OpError, Spec
from mace_core.ops.shapes import Inputs


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    x = channels_last(inputs, attrs, least=2)
    size = attrs["size"]
    if not isinstance(size, int) or size < 1:
        raise OpError(f"size is {size!r}; it must be a positive number")
    return [(x.dtype, x.shape)]


def _lrn(x: Array, size: int, alpha: float, beta: float, bias: float) -> Array:
    """Divide x by (bias + alpha / size * sum of squares over `size` channels) ** beta.

    An even window reaches further up (ONNX).
    """
    before = (size - 1) // 2
    squares = np.pad(x.astype(np.float64) ** 2, [(0, 0)] * (x.ndim - 1) + [(before, size - 1 - before)])
    windows = np.lib.stride_tricks.sliding_window_view(squares, size, axis=-1)
    return np.asarray(x / (bias + alpha / size * windows.sum(axis=-1)) ** beta).astype(x.dtype)


OPS = (
    Op(
        "LRN",
        ("x",),
        ("y",),
        _infer,
        _lrn,
        {"size": REQUIRED, "alpha": 1e-4, "beta": 0.75, "bias": 1.0},
        move=move_outer,
    ),
)
