"""LSTM: long short-term memory, as the ONNX operator with layout 0.

Gates lie in the order i, o, f, c; peepholes in the order i, o, f.
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
    need_shape,
    sequences,
    stack_directions,
    unroll,
)
from mace_core.ops.shapes import Inputs

DEFAULTS = ("Sigmoid", "Tanh", "Tanh")
Weights = tuple[Array, Array, Array | None, Array | None]
"""The w, r, b and p of one direction."""


@dataclass(frozen=True)
class LSTMAttributes(RecurrentAttributes):
    """coupled: whether the forget gate is 1 - input gate.

    cell_clip: bound of the cell state's magnitude; 0 for none.
    """

    coupled: bool = False
    cell_clip: float = 0.0


def _infer(inputs: Inputs, attrs: LSTMAttributes) -> list[Spec]:
    y, state = infer(inputs, attrs, 4, DEFAULTS)
    count, _, hidden = state[1]
    need_shape(inputs, 6, state[1])
    need_shape(inputs, 7, (count, 3 * hidden))
    return [y, state, state]


class _Cell:
    """The weights and functions of one direction.

    it = f(Xt Wi' + Ht-1 Ri' + Pi Ct-1 + bi), ft = f(Xt Wf' + Ht-1 Rf' + Pf Ct-1 + bf), or 1 - it where the
    two are coupled, Ct = ft Ct-1 + it g(Xt Wc' + Ht-1 Rc' + bc), ot = f(Xt Wo' + Ht-1 Ro' + Po Ct + bo), Ht =
    ot h(Ct). `clip` bounds what goes into f and g, but not into h: so the runtimes read ONNX, whose text
    leaves it open. `cell_clip` bounds Ct; 0 for none.
    """

    def __init__(
        self, weights: Weights, functions: list[RecurrentActivation], coupled: bool, cell_clip: float
    ) -> None:
        w, r, b, p = weights
        self.w, self.r = w.astype(np.float64).T, r.astype(np.float64).T
        self.b = 0.0 if b is None else b.astype(np.float64).reshape(2, -1).sum(axis=0)
        self.p = np.zeros((3, r.shape[-1])) if p is None else p.astype(np.float64).reshape(3, -1)
        self.f, self.g, self.h = functions
        self.coupled, self.max_cell = coupled, cell_clip or np.inf

    def __call__(self, run: Sequences, x: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        h, c = states
        zi, zo, zf, zc = np.split(x @ self.w + h @ self.r + self.b, 4, axis=-1)
        i = self.f(run.clip_input(zi + self.p[0] * c))
        f = 1 - i if self.coupled else self.f(run.clip_input(zf + self.p[2] * c))
        c = np.clip(f * c + i * self.g(run.clip_input(zc)), -self.max_cell, self.max_cell)
        # The peephole of the output gate sees the new cell state, those of the other gates the old one.
        o = self.f(run.clip_input(zo + self.p[1] * c))
        return o * self.h(c), c


def _lstm(x: Array, w: Array, r: Array, *optional: Array | None, attrs: LSTMAttributes) -> tuple[Array, ...]:
    b, lengths, h0, c0, p = ([*optional] + [None] * 5)[:5]
    functions = activations(attrs, DEFAULTS)
    results = []
    for d, run in enumerate(sequences(x, lengths, h0, attrs)):
        weights = (w[d], r[d], None if b is None else b[d], None if p is None else p[d])
        cell = _Cell(weights, functions[d], attrs.coupled, attrs.cell_clip)
        c = np.zeros_like(run.h0) if c0 is None else c0[d].astype(np.float64)
        results.append(unroll(run, cell, (run.h0, c)))
    return stack_directions(x, results)


OPS = (
    Op(
        "LSTM",
        ("x", "w", "r", "b?", "lengths?", "h0?", "c0?", "p?"),
        ("y", "yh?", "yc?"),
        _infer,
        _lstm,
        LSTMAttributes,
    ),
)
