"""GRU: gated recurrent units, as the ONNX operator with layout 0.

Gates in the order z (update), r (reset), h (candidate).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array
from mace_core.ops.op import Op, Spec
from mace_core.ops.rnn import (
    RecurrentActivation,
    RecurrentAttributes,
    Sequences,
    activations,
    infer,
    sequences,
    stack_directions,
    unroll,
)
from mace_core.ops.shapes import Inputs

DEFAULTS = ("Sigmoid", "Tanh")


@dataclass(frozen=True)
class GRUAttributes(RecurrentAttributes):
    """linear_before_reset: whether the reset gate multiplies the state's product, not the state."""

    linear_before_reset: bool = False


def _infer(inputs: Inputs, attrs: GRUAttributes) -> list[Spec]:
    return list(infer(inputs, attrs, 3, DEFAULTS))


class _Cell:
    """The weights and functions of one direction.

    zt = f(Xt Wz' + Ht-1 Rz' + bz), rt = f(Xt Wr' + Ht-1 Rr' + br), Ht = (1 - zt) ht + zt Ht-1, where
    ht = g(Xt Wh' + Wbh + (rt Ht-1) Rh' + Rbh), or with linear_before_reset ht = g(Xt Wh' + Wbh + rt (Ht-1 Rh'
    + Rbh)).
    """

    def __init__(
        self, w: Array, r: Array, b: Array | None, functions: list[RecurrentActivation], linear: bool
    ) -> None:
        self.w = w.astype(np.float64).T
        self.r = np.split(r.astype(np.float64).transpose(), 3, axis=-1)
        both = np.zeros((2, len(w))) if b is None else b.astype(np.float64).reshape(2, -1)
        self.wb, self.rb = both[0], np.split(both[1], 3)
        self.f, self.g = functions
        self.linear = linear

    def __call__(self, run: Sequences, x: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        (h,) = states
        xz, xr, xh = np.split(x @ self.w + self.wb, 3, axis=-1)
        z = self.f(run.clip_input(xz + h @ self.r[0] + self.rb[0]))
        r = self.f(run.clip_input(xr + h @ self.r[1] + self.rb[1]))
        # The two forms of ONNX's linear_before_reset; cuDNN and Keras (reset_after) use the first.
        linear = r * (h @ self.r[2] + self.rb[2]) if self.linear else (r * h) @ self.r[2] + self.rb[2]
        candidate = self.g(run.clip_input(xh + linear))
        return ((1 - z) * candidate + z * h,)


def _gru(x: Array, w: Array, r: Array, *optional: Array | None, attrs: GRUAttributes) -> tuple[Array, ...]:
    b, lengths, h0 = ([*optional] + [None] * 3)[:3]
    functions = activations(attrs, DEFAULTS)
    results = []
    for d, run in enumerate(sequences(x, lengths, h0, attrs)):
        bias = None if b is None else b[d]
        cell = _Cell(w[d], r[d], bias, functions[d], attrs.linear_before_reset)
        results.append(unroll(run, cell, (run.h0,)))
    return stack_directions(x, results)


OPS = (
    Op(
        "GRU",
        ("x", "w", "r", "b?", "lengths?", "h0?"),
        ("y", "yh?"),
        _infer,
        _gru,
        GRUAttributes,
    ),
)
