"""Layers with stateful=True: their states last from one run of the library to the next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_cases import keras, load, randomise, same, saved

from mace_core.deployment import Model
from mace_core.ir import Array
from mace_core.run.reference import ReferenceSession
from mace_frontend_keras import Keras

RUNS = 8

LAYERS: dict[str, Callable[[Any], Any]] = {
    "lstm": lambda k: k.layers.LSTM(3, stateful=True),
    "gru": lambda k: k.layers.GRU(3, stateful=True, return_sequences=True),
    "simple": lambda k: k.layers.SimpleRNN(3, stateful=True),
    "cells": lambda k: k.layers.RNN([k.layers.LSTMCell(3), k.layers.GRUCell(2)], stateful=True),
    "both ways": lambda k: k.layers.Bidirectional(k.layers.LSTM(3, stateful=True)),
}


def stateful(name: str, file: Path) -> Path:
    """A model of one such layer, its weights random."""
    k = keras()
    model = k.Sequential([k.layers.Input(batch_shape=(1, 5, 4), name="x"), LAYERS[name](k)])
    randomise(model)
    return saved(model, file)


def sample(rng: np.random.Generator) -> dict[str, Array]:
    return {"x": rng.uniform(-1, 1, (1, 5, 4)).astype(np.float32)}


@pytest.mark.slow
@pytest.mark.sampled(cases="lstm|cells")
@pytest.mark.parametrize("name", LAYERS)
def test_states_equal_keras_over_several_runs_and_again_after_a_reset(name: str, tmp_path: Path) -> None:
    file = stateful(name, tmp_path / "model.keras")
    graph = load(file)
    assert graph.port_inputs == ("x",)
    session = ReferenceSession(graph)
    for _ in range(2):
        rng = np.random.default_rng(0)
        run = Keras().recurrent((file,), Model("case", (file,)))
        assert run is not None
        for _ in range(RUNS):
            x = sample(rng)
            values = session.run(x)
            (expected,) = run(x).values()
            np.testing.assert_allclose(values[graph.port_outputs[0]], expected, rtol=1e-4, atol=1e-5)
        session.reset()


def test_a_state_changes_what_is_computed(tmp_path: Path) -> None:
    """Otherwise the test before would show nothing."""
    session = ReferenceSession(load(stateful("lstm", tmp_path / "model.keras")))
    x = sample(np.random.default_rng(0))
    first, second = (session.run(x)[session.graph.port_outputs[0]] for _ in range(2))
    assert np.abs(first - second).max() > 1e-3


def test_states_bear_the_names_of_their_layers(tmp_path: Path) -> None:
    k = keras()
    model = k.Sequential(
        [k.layers.Input(batch_shape=(1, 5, 4), name="x"), k.layers.LSTM(3, stateful=True, name="lstm")]
    )
    file = saved(model, tmp_path / "model.keras")
    assert [str(state) for state in load(file).states] == [
        f"lstm/{letter}:f32[1, 3], at first 0.0" for letter in "hc"
    ]
    carried = load(file, keys={"states": "application"})
    assert carried.port_inputs == ("x", "lstm/h", "lstm/c")
    assert carried.port_outputs[1:] == ("lstm/h.next", "lstm/c.next")


def test_states_begin_anew_where_the_deployment_file_says_so(tmp_path: Path) -> None:
    file = stateful("lstm", tmp_path / "model.keras")
    graph = load(file, keys={"states": "reset"})
    reference = Keras().reference((file,), Model("case", (file,)))
    assert reference is not None
    for seed in range(2):
        x = sample(np.random.default_rng(seed))
        same(graph, x, list(reference(x).values()))


def test_a_layer_that_is_given_its_states_keeps_none(tmp_path: Path) -> None:
    k = keras()
    x, h, c = (
        k.layers.Input(batch_shape=shape, name=name)
        for name, shape in (("x", (1, 5, 4)), ("h", (1, 3)), ("c", (1, 3)))
    )
    model = k.Model([x, h, c], k.layers.LSTM(3, stateful=True)(x, initial_state=[h, c]))
    assert not load(saved(model, tmp_path / "model.keras")).states
