"""LSTM and RNN against their definitions, written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from caffe_cases import Case, check, floats

from mace_core.ir import Array

STEPS, BATCH, INPUTS, HIDDEN, STATIC = 5, 2, 3, 4, 6
X, GOES_ON = (STEPS, BATCH, INPUTS), (STEPS, BATCH)
LSTM = [floats(4 * HIDDEN, INPUTS), floats(4 * HIDDEN, seed=1), floats(4 * HIDDEN, HIDDEN, seed=2)]
OWN = floats(4 * HIDDEN, STATIC, seed=3)
RNN = [
    floats(HIDDEN, INPUTS),
    floats(HIDDEN, seed=1),
    floats(HIDDEN, HIDDEN, seed=2),
    floats(HIDDEN, HIDDEN, seed=3),
    floats(HIDDEN, seed=4),
]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm(x: Array, goes_on: Array, static: Array | None, h: Array, c: Array) -> tuple[Array, ...]:
    results = []
    for t in range(STEPS):
        on = goes_on[t][:, None]
        sums = x[t].reshape(BATCH, -1) @ LSTM[0].T + LSTM[1] + (h * on) @ LSTM[2].T
        sums = sums if static is None else sums + static.reshape(BATCH, -1) @ OWN.T
        i, f, o, g = np.split(sums, 4, 1)
        c = on * sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        results.append(h)
    return np.stack(results), h[None], c[None]


def rnn(x: Array, goes_on: Array) -> Array:
    h, made = np.zeros((BATCH, HIDDEN)), []
    for t in range(STEPS):
        h = np.tanh(x[t] @ RNN[0].T + RNN[1] + (h * goes_on[t][:, None]) @ RNN[2].T)
        made.append(np.tanh(h @ RNN[3].T + RNN[4]))
    return np.stack(made)


ZERO = np.zeros((BATCH, HIDDEN))
ON = {"x1": np.array([[0, 0], [1, 1], [1, 0], [1, 1], [1, 1]], np.float32)}
PLAIN = f"LSTM recurrent_param {{ num_output: {HIDDEN} }}"
EXPOSED = f"LSTM recurrent_param {{ num_output: {HIDDEN} expose_hidden: true }}"
STATE = (1, BATCH, HIDDEN)
CASES = (
    Case("lstm", PLAIN, [X, GOES_ON], LSTM, arrays=ON, oracle=lambda x, on: lstm(x, on, None, ZERO, ZERO)[0]),
    Case(
        "lstm of images",
        PLAIN,
        [(STEPS, BATCH, INPUTS, 1, 1), GOES_ON],
        LSTM,
        arrays=ON,
        oracle=lambda x, on: lstm(x, on, None, ZERO, ZERO)[0],
    ),
    Case(
        "lstm with a static input",
        PLAIN,
        [X, GOES_ON, (BATCH, 2, 3)],
        [*LSTM[:2], OWN, LSTM[2]],
        arrays=ON,
        oracle=lambda x, on, static: lstm(x, on, static, ZERO, ZERO)[0],
    ),
    Case(
        "lstm with its states",
        EXPOSED,
        [X, GOES_ON, STATE, STATE],
        LSTM,
        tops=3,
        arrays={"x1": np.ones(GOES_ON, np.float32)},
        oracle=lambda x, on, h, c: lstm(x, on, None, h[0], c[0]),
    ),
    Case("rnn", f"RNN recurrent_param {{ num_output: {HIDDEN} }}", [X, GOES_ON], RNN, arrays=ON, oracle=rnn),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_layer(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)
