"""Settings of layers and arguments of their calls that no handler reads: refused by name, not ignored."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from keras_cases import computed, keras, load, old_file, randomise, same, saved, stacked

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_keras.layer import KerasLayer
from mace_frontend_keras.network import Ref
from mace_frontend_keras.settings import has_unread_positions

Json: TypeAlias = "str | float | Sequence[Json] | Mapping[str, Json] | None"
Layer: TypeAlias = Mapping[str, Json]

KERNELS = {"LSTM": ((4, 8), (2, 8), (8,)), "Dense": ((4, 2), (2,)), "BatchNormalization": ((4,),) * 4}


def layer(kind: str, **config: Json) -> Layer:
    return {"class_name": kind, "config": {"name": kind.lower(), **config}}


def write_call(folder: Path, called: Layer, kwargs: Layer, weights: tuple[tuple[int, ...], ...]) -> Path:
    """Write a model of Keras 2 that calls one layer with these arguments."""
    name = str(called["config"]["name"])  # type: ignore[index, call-overload]
    first = {**layer("InputLayer", batch_input_shape=[None, 5, 4]), "name": "inputlayer", "inbound_nodes": []}
    node: Json = [["inputlayer", 0, 0, kwargs]]
    layers: Json = [first, {**called, "name": name, "inbound_nodes": [node]}]
    config: Layer = {
        "name": "model",
        "layers": layers,
        "input_layers": [["inputlayer", 0, 0]],
        "output_layers": [[name, 1 if called["class_name"] == "Sequential" else 0, 0]],
    }
    arrays = {f"w{i}": np.ones(shape, np.float32) for i, shape in enumerate(weights)}
    model = {"class_name": "Functional", "config": config}
    return old_file(folder / "model.h5", model, {"inputlayer": {}, name: arrays})


UNREAD: tuple[tuple[str, Layer, tuple[tuple[int, ...], ...]], ...] = (
    ("renorm", layer("BatchNormalization", renorm=True), KERNELS["BatchNormalization"]),
    ("surprise, another", layer("Dense", units=2, surprise=1, another="x"), KERNELS["Dense"]),
    ("peepholes", layer("LSTM", units=2, peepholes=True), KERNELS["LSTM"]),
    (
        "peepholes",
        layer("RNN", cell=layer("StackedRNNCells", cells=[layer("LSTMCell", units=2, peepholes=True)])),
        KERNELS["LSTM"],
    ),
    (
        "peepholes",
        layer("Bidirectional", layer=layer("LSTM", units=2, peepholes=True)),
        KERNELS["LSTM"] * 2,
    ),
    (
        "surprise",
        layer("TimeDistributed", layer=layer("Dense", units=2, surprise=1)),
        KERNELS["Dense"],
    ),
    ("surprise", layer("Activation", activation=layer("ReLU", surprise=1)), ()),
)


@pytest.mark.parametrize(("names", "called", "weights"), UNREAD)
def test_a_setting_that_no_handler_reads_is_refused(
    names: str, called: Layer, weights: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    file = write_call(tmp_path, called, {}, weights)
    problem = f"it is given {names}, which is not supported; cut the graph before it with output_tensors"
    with pytest.raises(MaceError, match=re.escape(problem)):
        load(file)


def test_settings_without_effect_are_not_refused(tmp_path: Path) -> None:
    called = layer("Dense", units=2, kernel_constraint="x", bias_regularizer="y", some=None, more=False)
    graph = load(write_call(tmp_path, called, {}, KERNELS["Dense"]))
    assert graph.tensors[graph.outputs[0]].shape == (1, 5, 2)


TRAINED: tuple[tuple[Layer, tuple[tuple[int, ...], ...]], ...] = (
    (layer("Dropout", rate=0.5), ()),
    (layer("BatchNormalization"), KERNELS["BatchNormalization"]),
    (layer("LSTM", units=2, recurrent_dropout=0.5), KERNELS["LSTM"]),
    (layer("Sequential", layers=[layer("Sequential", layers=[layer("Dropout", rate=0.5)])]), ()),
)


@pytest.mark.parametrize(("called", "weights"), TRAINED)
def test_training_of_keras_2_is_refused(
    called: Layer, weights: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    assert load(write_call(tmp_path, called, {"training": False}, weights)).outputs
    with pytest.raises(MaceError, match=r"it is called with training=True; make the model that you deploy"):
        load(write_call(tmp_path, called, {"training": True}, weights))


UNCHANGED: tuple[tuple[Layer, tuple[tuple[int, ...], ...]], ...] = (
    (layer("Dense", units=2), KERNELS["Dense"]),
    (layer("BatchNormalization", trainable=False), KERNELS["BatchNormalization"]),
    (layer("LSTM", units=2, dropout=0.0), KERNELS["LSTM"]),
    (layer("Sequential", layers=[layer("ReLU")]), ()),
)


@pytest.mark.parametrize(("called", "weights"), UNCHANGED)
def test_training_that_changes_nothing_is_not_refused(
    called: Layer, weights: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    assert load(write_call(tmp_path, called, {"training": True}, weights)).outputs


def test_an_argument_of_a_nested_model_is_refused(tmp_path: Path) -> None:
    model = layer("Sequential", layers=[layer("ReLU")])
    with pytest.raises(MaceError, match=r"model 'sequential' is given a mask or an argument by position"):
        load(write_call(tmp_path, model, {"mask": [[True, False]]}, ()))


def test_keras_3_runs_a_model_without_training_whatever_its_calls_say(tmp_path: Path) -> None:
    k = keras()
    x = k.Input((4,), name="x")
    normalized = k.layers.BatchNormalization()(x, training=True)
    model = k.Model(x, k.layers.Dropout(0.5)(normalized, training=True))
    randomise(model)
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 4)).astype(np.float32)}
    expected = computed(model, inputs)
    np.testing.assert_array_equal(expected[0], model.predict(inputs["x"], verbose=0))
    same(load(saved(model, tmp_path / "model.keras")), inputs, expected)


def test_an_argument_by_name_that_no_handler_reads_is_refused(tmp_path: Path) -> None:
    file = write_call(tmp_path, layer("Dense", units=2), {"mask": [[True, False]]}, KERNELS["Dense"])
    with pytest.raises(MaceError, match=r"it is given mask, which is not supported"):
        load(file)


def test_arguments_by_position_are_those_that_handlers_read() -> None:
    x, mask = Ref("x"), Ref("mask")
    for kind, read in (("Dense", 1), ("Attention", 1), ("LSTM", 2), ("MultiHeadAttention", 3)):
        called = KerasLayer(kind, kind.lower(), {}, "")
        assert not has_unread_positions(called, [x] * read)
        assert not has_unread_positions(called, [*[x] * read, None, False])
        assert has_unread_positions(called, [*[x] * read, mask])


def test_a_mask_changes_no_trained_normalization(tmp_path: Path) -> None:
    k = keras()
    x = k.Input((5,), dtype="int32", name="x")
    normalized = k.layers.BatchNormalization()(k.layers.Embedding(9, 4, mask_zero=True)(x))
    model = k.Model(x, k.layers.Dense(2)(normalized))
    randomise(model)
    inputs = {"x": np.array([[1, 0, 3, 0, 8]], np.int32)}
    same(load(saved(model, tmp_path / "model.keras")), inputs, computed(model, inputs))


@pytest.mark.parametrize("kind", ["Embedding", "ReversibleEmbedding"])
def test_masks_of_every_embedding_are_followed(kind: str, tmp_path: Path) -> None:
    k = keras()
    embedding = getattr(k.layers, kind)(9, 4, mask_zero=True)
    model = stacked(embedding, k.layers.LSTM(3), shape=(5,), dtype="int32")
    with pytest.raises(MaceError, match=r"it is given sequences with a mask"):
        load(saved(model, tmp_path / "model.keras"))


def test_masks_are_followed_behind_dropped_channels(tmp_path: Path) -> None:
    first = layer("InputLayer", batch_input_shape=[None, 5, 3, 4])
    wrapped = layer("TimeDistributed", layer=layer("Dense", units=2))
    layers: Json = [first, layer("Masking"), layer("SpatialDropout2D", rate=0.5), wrapped]
    arrays = {f"w{i}": np.ones(shape, np.float32) for i, shape in enumerate(KERNELS["Dense"])}
    weights: dict[str, dict[str, Array]] = {
        name: {} for name in ("inputlayer", "masking", "spatialdropout2d")
    }
    file = old_file(
        tmp_path / "model.h5",
        {"class_name": "Sequential", "config": {"layers": layers}},
        {**weights, "timedistributed": arrays},
    )
    with pytest.raises(MaceError, match=r"it is given sequences with a mask"):
        load(file)
