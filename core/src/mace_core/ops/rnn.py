"""RNN, and the activations, directions and shapes that it shares with GRU and LSTM.

All are as the ONNX operators of these names with layout 0.

With T time steps, B sequences, I inputs, H hidden units, G gates and D directions: x is [T, B, I], w [D, G*H,
I], r [D, G*H, H], b [D, 2*G*H] (of w, then of r), lengths [B] (i32), the initial states [D, B, H]; y is [T,
D, B, H], the final states [D, B, H].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType, Shape
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need

Direction = Literal["forward", "reverse", "bidirectional"]

DIRECTIONS: Mapping[Direction, tuple[bool, ...]] = {
    "forward": (False,),
    "reverse": (True,),
    "bidirectional": (False, True),
}
"""For each value of the attribute, whether each of its directions runs backwards in time."""


@dataclass(frozen=True)
class RecurrentAttributes(Attributes):
    """The attributes that all three ops have.

    hidden: number of hidden units.
    activations: names, those of the first direction first; () for the defaults of the op.
    alphas, betas: parameters of the activations that have one, in order.
    clip: bound of the magnitude of activations' inputs; 0 for none.
    """

    hidden: int
    direction: Direction = "forward"
    activations: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()
    clip: float = 0.0


@dataclass(frozen=True)
class RecurrentActivation:
    """A function of one element that the recurrent ops can apply.

    alpha, beta: their defaults, those of the ONNX operator of that name; None where it has none.
    """

    name: str
    compute: Callable[[Array, float, float], Array]
    alpha: float | None = None
    beta: float | None = None

    def __call__(self, x: Array) -> Array:
        """Apply the function with this activation's alpha and beta."""
        return self.compute(x, self.alpha or 0.0, self.beta or 0.0)


_ALL = (
    RecurrentActivation("Relu", lambda x, _a, _b: np.maximum(x, 0)),
    RecurrentActivation("Tanh", lambda x, _a, _b: np.tanh(x)),
    RecurrentActivation("Sigmoid", lambda x, _a, _b: 1 / (1 + np.exp(-x))),
    RecurrentActivation("Affine", lambda x, a, b: a * x + b, 1.0, 0.0),
    RecurrentActivation("LeakyRelu", lambda x, a, _b: np.maximum(x, 0) + a * np.minimum(x, 0), 0.01),
    RecurrentActivation("ThresholdedRelu", lambda x, a, _b: np.where(x > a, x, 0), 1.0),
    RecurrentActivation("ScaledTanh", lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    RecurrentActivation("HardSigmoid", lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    RecurrentActivation("Elu", lambda x, a, _b: np.maximum(x, 0) + a * np.expm1(np.minimum(x, 0)), 1.0),
    RecurrentActivation("Softsign", lambda x, _a, _b: x / (1 + np.abs(x))),
    RecurrentActivation("Softplus", lambda x, _a, _b: np.logaddexp(0, x)),
)
ACTIVATIONS: Mapping[str, RecurrentActivation] = {a.name: a for a in _ALL}


def activations(attrs: RecurrentAttributes, defaults: Sequence[str]) -> list[list[RecurrentActivation]]:
    """Return for each direction its activations with their alpha and beta.

    defaults: names for one direction where the attribute is ().
    Raises OpError for a wrong number of names or an unknown one.
    """
    count = len(DIRECTIONS[attrs.direction])
    names = attrs.activations or tuple(defaults) * count
    need(len(names) == count * len(defaults), f"{len(names)} activations, expected {count * len(defaults)}")
    for name in names:
        need(
            name in ACTIVATIONS, f"activation {name!r} is unknown; it must be one of {', '.join(ACTIVATIONS)}"
        )
    # ONNX gives the values of `alphas` and `betas`, in order, to the activations that take one; where they
    # run out the defaults hold, and ONNX Runtime ignores those that are left over.
    alphas, betas = iter(attrs.alphas), iter(attrs.betas)
    functions = []
    for kind in map(ACTIVATIONS.__getitem__, names):
        alpha = None if kind.alpha is None else next(alphas, kind.alpha)
        beta = None if kind.beta is None else next(betas, kind.beta)
        functions.append(RecurrentActivation(kind.name, kind.compute, alpha, beta))
    return [functions[i : i + len(defaults)] for i in range(0, len(functions), len(defaults))]


def infer(
    inputs: Inputs, attrs: RecurrentAttributes, gates: int, defaults: Sequence[str]
) -> tuple[Spec, Spec]:
    """Check x, w, r, b?, lengths?, h0? and the attributes; return type and shape of y and of a final state.

    gates: number of gates, that is, rows of weights for each hidden unit.
    """
    x, w, r, b, lengths, h0 = ([*inputs] + [None] * 6)[:6]
    assert x is not None
    assert w is not None
    assert r is not None
    hidden = attrs.hidden
    need(hidden >= 1, f"hidden is {hidden}; it must be a positive number")
    need(attrs.clip >= 0, f"clip is {attrs.clip}; it must not be negative, 0 meaning none")
    activations(attrs, defaults)
    for t in (x, w, r, b, h0, *inputs[6:]):
        need(
            t is None or t.dtype == x.dtype,
            f"{t and t.name} is of type {t and t.dtype.value}, but x of {x.dtype.value}",
        )
    need(x.dtype.is_float, f"x is of type {x.dtype.value}; it must be of a float type")
    need(len(x.shape) == 3, f"x has shape {list(x.shape)}; it must be [time, batch, input]")
    time, batch, width = x.shape
    count = len(DIRECTIONS[attrs.direction])
    need_shape(inputs, 1, (count, gates * hidden, width))
    need_shape(inputs, 2, (count, gates * hidden, hidden))
    need_shape(inputs, 3, (count, 2 * gates * hidden))
    need_shape(inputs, 4, (batch,))
    need_shape(inputs, 5, (count, batch, hidden))
    need(
        lengths is None or lengths.dtype is DType.I32,
        f"lengths is of type {lengths and lengths.dtype.value}; it must be i32",
    )
    return (x.dtype, (time, count, batch, hidden)), (x.dtype, (count, batch, hidden))


def need_shape(inputs: Inputs, index: int, expected: Shape) -> None:
    """Raise OpError unless an input is absent or has the shape."""
    t = inputs[index] if index < len(inputs) else None
    need(
        t is None or t.shape == expected,
        f"{t and t.name} has shape {list(t.shape) if t else ''}, expected {list(expected)}",
    )


@dataclass(frozen=True)
class Sequences:
    """The sequences as one direction reads them, in double precision.

    x: [T, B, I].  lengths: [B].  h0: [B, H].  clip: bound of activations' inputs; 0 for none.
    """

    x: Array
    lengths: Array
    h0: Array
    backwards: bool
    clip: float

    def steps(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield for each step which sequences still run, the time step that each reads, and its x.

        They have shapes [B, 1], [B] and [B, I].
        A backward direction begins at the last step of each sequence, not of the batch.
        """
        for step in range(len(self.x)):
            alive = step < self.lengths
            time = np.where(alive & self.backwards, self.lengths - 1 - step, step)
            yield alive[:, None], time, self.x[time, np.arange(len(time))]

    def clip_input(self, z: Array) -> Array:
        """Clip the input of an activation."""
        return np.clip(z, -self.clip, self.clip) if self.clip else z


Cell = Callable[[Sequences, Array, tuple[Array, ...]], tuple[Array, ...]]
"""(the sequences, x of the step [B, I], states [B, H] each, h first) -> the states after the step."""


def unroll(run: Sequences, cell: Cell, states: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
    """Compute y [T, B, H] of one direction, zero after a sequence's end, and each sequence's last states."""
    y = np.zeros((len(run.x), *states[0].shape))
    for alive, time, x in run.steps():
        next_states = cell(run, x, states)
        # A sequence that has ended keeps its states, so that they are its final ones.
        states = tuple(np.where(alive, n, s) for n, s in zip(next_states, states, strict=True))
        y[time, np.arange(len(time))] = np.where(alive, states[0], 0)
    return y, states


def sequences(
    x: Array, lengths: Array | None, h0: Array | None, attrs: RecurrentAttributes
) -> list[Sequences]:
    """Return the sequences as each direction reads them, with defaults for absent inputs.

    Lengths are clamped to the number of time steps, so that no input makes a kernel read beyond x.
    """
    directions = DIRECTIONS[attrs.direction]
    time, batch, _ = x.shape
    steps = np.full(batch, time) if lengths is None else np.clip(lengths, 0, time)
    first = np.zeros((len(directions), batch, attrs.hidden)) if h0 is None else h0
    return [
        Sequences(x.astype(np.float64), steps, h.astype(np.float64), is_backwards, attrs.clip)
        for h, is_backwards in zip(first, directions, strict=True)
    ]


def stack_directions(x: Array, runs: Sequence[tuple[Array, tuple[Array, ...]]]) -> tuple[Array, ...]:
    """Stack the results of the directions to y [T, D, B, H] and states [D, B, H], in the type of x."""
    y = np.stack([y for y, _ in runs], axis=1)
    states = [np.stack(s) for s in zip(*(states for _, states in runs), strict=True)]
    return tuple(a.astype(x.dtype) for a in (y, *states))


def _infer(inputs: Inputs, attrs: RecurrentAttributes) -> list[Spec]:
    return list(infer(inputs, attrs, 1, DEFAULTS))


def _rnn(
    x: Array, w: Array, r: Array, *optional: Array | None, attrs: RecurrentAttributes
) -> tuple[Array, ...]:
    """Compute Ht = f(Xt W' + Ht-1 R' + Wb + Rb)."""
    b, lengths, h0 = ([*optional] + [None] * 3)[:3]
    functions = activations(attrs, DEFAULTS)
    results = []
    for d, run in enumerate(sequences(x, lengths, h0, attrs)):
        bias = 0.0 if b is None else b[d].astype(np.float64).reshape(2, -1).sum(axis=0)

        # d and bias are defaults, because a closure would see the values of the last direction.
        def cell(
            run: Sequences, x: Array, states: tuple[Array, ...], d: int = d, bias: Array | float = bias
        ) -> tuple[Array, ...]:
            z = x @ w[d].T.astype(np.float64) + states[0] @ r[d].T + bias
            return (functions[d][0](run.clip_input(z)),)

        results.append(unroll(run, cell, (run.h0,)))
    return stack_directions(x, results)


DEFAULTS = ("Tanh",)

OPS = (Op("RNN", ("x", "w", "r", "b?", "lengths?", "h0?"), ("y", "yh?"), _infer, _rnn, RecurrentAttributes),)
