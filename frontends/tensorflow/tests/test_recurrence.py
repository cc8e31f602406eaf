"""Loops that are recurrent layers become layers; loops that only look like them do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_cases import Case, check, f32, floats

from mace_core.testing.compiled import check_graphs
from mace_target_cpu import Cpu

Step = Callable[..., tuple[Any, ...]]
TIME, BATCH, WIDTH, HIDDEN = 7, 2, 3, 4


def layer(tf: Any, x: Any, step: Step, states: int, reverse: bool = False) -> Any:
    """A loop over [time, batch, width]: what a step leaves as its first state is collected."""
    given = tf.TensorArray(tf.float32, TIME).unstack(x)
    made = tf.TensorArray(tf.float32, TIME, element_shape=(BATCH, HIDDEN))
    begin = [tf.constant(floats(BATCH, HIDDEN, seed=9 + i)) for i in range(states)]

    def body(i: Any, made: Any, *now: Any) -> Any:
        place = TIME - 1 - i if reverse else i
        after = step(tf, given.read(place), i, *now)
        return (i + 1, made.write(place, after[0]), *after)

    _, made, *ends = tf.while_loop(lambda i, *_: i < TIME, body, [tf.constant(0), made, *begin])
    return [made.stack(), *ends]


def weights(rows: int, gates: int, seed: int = 0) -> Any:
    return floats(rows, gates * HIDDEN, seed=seed)


def basic_lstm(tf: Any, x: Any, _: Any, h: Any, c: Any, forget: float = 1.0) -> Any:
    """As TensorFlow 1 had it: one product, gates i, candidate, f, o, a number added to the forget gate."""
    total = tf.concat([x, h], 1) @ weights(WIDTH + HIDDEN, 4) + weights(1, 4, 1)[0]
    i, j, f, o = tf.split(total, 4, 1)
    new = c * tf.sigmoid(f + forget) + tf.sigmoid(i) * tf.tanh(j)
    return tf.tanh(new) * tf.sigmoid(o), new


def lstm_without_bias(tf: Any, x: Any, _: Any, h: Any, c: Any) -> Any:
    i, f, g, o = tf.split(x @ weights(WIDTH, 4) + h @ weights(HIDDEN, 4, 1), 4, 1)
    new = c * tf.sigmoid(f) + tf.sigmoid(i) * tf.tanh(g)
    return tf.tanh(new) * tf.sigmoid(o), new


def plain(tf: Any, x: Any, _: Any, h: Any) -> Any:
    return (tf.tanh(x @ weights(WIDTH, 1) + weights(1, 1, 1)[0] + h @ weights(HIDDEN, 1, 2)),)


def gru(tf: Any, x: Any, _: Any, h: Any) -> Any:
    """As TensorFlow 1 had it: r and u of one product, the candidate of another."""
    r, u = tf.split(tf.sigmoid(tf.concat([x, h], 1) @ weights(WIDTH + HIDDEN, 2) + np.float32(1)), 2, 1)
    new = tf.tanh(tf.concat([x, r * h], 1) @ weights(WIDTH + HIDDEN, 1, 1) + weights(1, 1, 2)[0])
    return (u * h + (1.0 - u) * new,)


def gru_of_biases(tf: Any, x: Any, at: Any, h: Any) -> Any:
    r, u = tf.split(tf.sigmoid(tf.concat([x, h], 1) @ weights(WIDTH + HIDDEN, 2) + weights(1, 2, 3)[0]), 2, 1)
    new = tf.tanh(tf.concat([x, r * h], 1) @ weights(WIDTH + HIDDEN, 1, 1) + weights(1, 1, 2)[0])
    return (u * h + (1.0 - u) * new,)


def gru_after(tf: Any, x: Any, _: Any, h: Any) -> Any:
    """The reset gate behind the product, a bias before it."""
    ours, theirs = (
        tf.split(v, 3, 1)
        for v in (
            x @ weights(WIDTH, 3) + weights(1, 3, 1)[0],
            h @ weights(HIDDEN, 3, 2) + weights(1, 3, 3)[0],
        )
    )
    z, r = (tf.sigmoid(a + b) for a, b in zip(ours[:2], theirs[:2], strict=True))
    return (z * h + (1.0 - z) * tf.tanh(ours[2] + r * theirs[2]),)


def clipped(tf: Any, x: Any, at: Any, h: Any, c: Any) -> Any:
    h, c = basic_lstm(tf, x, at, h, c)
    return h, tf.clip_by_value(c, -0.8, 0.8)


def scaled(tf: Any, x: Any, at: Any, h: Any, c: Any) -> Any:
    h, c = basic_lstm(tf, x, at, h, c)
    return h * 1.01, c


def by_time(tf: Any, x: Any, at: Any, h: Any, c: Any) -> Any:
    """From the fifth turn on another cell."""
    return tuple(
        tf.cond(at < 4, lambda: basic_lstm(tf, x, at, h, c), lambda: basic_lstm(tf, x, at, h, c, forget=0.0))
    )


def faded(tf: Any, x: Any, at: Any, h: Any, c: Any) -> Any:
    return basic_lstm(tf, x * tf.cast(at, tf.float32), at, h, c)


LAYERS: dict[str, tuple[Step, int, str]] = {
    "basic": (basic_lstm, 2, "LSTM"),
    "no forget bias": (lambda tf, *given: basic_lstm(tf, *given, forget=0.0), 2, "LSTM"),
    "no bias": (lstm_without_bias, 2, "LSTM"),
    "plain": (plain, 1, "RNN"),
    "gru": (gru_of_biases, 1, "GRU"),
    "gru after": (gru_after, 1, "GRU"),
}
OTHERS: dict[str, tuple[Step, int]] = {
    "clipped": (clipped, 2),
    "scaled": (scaled, 2),
    "by time": (by_time, 2),
    "faded": (faded, 2),
    "one bias for all": (gru, 1),
}


@pytest.mark.slow
@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_found(name: str, reverse: bool, tmp_path: Path, tf: Any) -> None:
    step, states, op = LAYERS[name]
    case = Case(name, lambda tf, x: layer(tf, x, step, states, reverse), [f32(TIME, BATCH, WIDTH)], 4e-6)
    graph = check(case, tmp_path, tf)
    counts = Counter(n.op.name for n in graph.nodes)
    assert counts[op] == 1
    assert counts["MatMul"] == 0
    check_graphs(Cpu(), [graph], tmp_path)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_none_is_written_out(name: str, tmp_path: Path, tf: Any) -> None:
    step, states = OTHERS[name]
    graph = check(
        Case(name, lambda tf, x: layer(tf, x, step, states), [f32(TIME, BATCH, WIDTH)], 4e-6), tmp_path, tf
    )
    assert Counter(n.op.name for n in graph.nodes)["Sigmoid"] >= TIME


def test_a_loop_that_leaves_a_part_of_the_sequence_is_written_out(tmp_path: Path, tf: Any) -> None:
    def make(tf: Any, x: Any) -> Any:
        given = tf.TensorArray(tf.float32, TIME).unstack(x)
        zeros = tf.zeros((BATCH, HIDDEN))
        body = lambda i, *now: (i + 1, *basic_lstm(tf, given.read(i), i, *now))  # noqa: E731
        return list(tf.while_loop(lambda i, *_: i < TIME - 2, body, [tf.constant(0), zeros, zeros])[1:])

    graph = check(Case("part", make, [f32(TIME, BATCH, WIDTH)], 4e-6), tmp_path, tf)
    assert Counter(n.op.name for n in graph.nodes)["Tanh"] == 2 * (TIME - 2)


def test_a_state_that_is_broadcast_is_written_out(tmp_path: Path, tf: Any) -> None:
    def make(tf: Any, x: Any) -> Any:
        given = tf.TensorArray(tf.float32, TIME).unstack(x)

        def body(i: Any, *now: Any) -> tuple[Any, ...]:
            return (i + 1, *basic_lstm(tf, given.read(i), i, now[0] + tf.zeros((BATCH, 1)), now[1]))

        begin = [tf.constant(0), tf.ones((1, HIDDEN)), tf.ones((1, HIDDEN))]
        shapes = [tf.TensorShape(()), tf.TensorShape((None, HIDDEN)), tf.TensorShape((None, HIDDEN))]
        return list(tf.while_loop(lambda i, *_: i < TIME, body, begin, shape_invariants=shapes)[1:])

    check(Case("broadcast", make, [f32(TIME, BATCH, WIDTH)], 4e-6), tmp_path, tf)


def test_a_loop_that_reads_another_constant_at_each_step_is_written_out(tmp_path: Path, tf: Any) -> None:
    def make(tf: Any, x: Any) -> Any:
        given = tf.TensorArray(tf.float32, TIME).unstack(x)
        biases = tf.TensorArray(tf.float32, TIME).unstack(tf.constant(floats(TIME, HIDDEN, seed=5)))

        def body(i: Any, h: Any) -> tuple[Any, ...]:
            product = given.read(i) @ weights(WIDTH, 1) + h @ weights(HIDDEN, 1, 2)
            return i + 1, tf.tanh(product + biases.read(i))

        return tf.while_loop(lambda i, _: i < TIME, body, [tf.constant(0), tf.zeros((BATCH, HIDDEN))])[1]

    graph = check(Case("biases", make, [f32(TIME, BATCH, WIDTH)], 4e-6), tmp_path, tf)
    assert Counter(n.op.name for n in graph.nodes)["Tanh"] == TIME


@pytest.mark.slow
def test_long_sequences_make_small_graphs(tmp_path: Path, tf: Any) -> None:
    def make(tf: Any, x: Any) -> Any:
        given = tf.TensorArray(tf.float32, 2000).unstack(x)
        zeros = tf.zeros((1, HIDDEN))
        body = lambda i, *now: (i + 1, *basic_lstm(tf, given.read(i), i, *now))  # noqa: E731
        return tf.while_loop(lambda i, *_: i < 2000, body, [tf.constant(0), zeros, zeros])[1]

    graph = check(Case("long", make, [f32(2000, 1, WIDTH)], 1e-5), tmp_path, tf)
    assert len(graph.nodes) <= 4
