"""What no library can hold, or no file tells: refused by name, with what to do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_cases import computed, keras, load, old_file, randomise, same, saved, stacked

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_frontend_keras import Keras


def refused(model: Any, file: Path) -> str:
    with pytest.raises(MaceError) as error:
        load(saved(model, file))
    return str(error.value)


def test_python_code_is_refused(tmp_path: Path) -> None:
    k = keras()
    text = refused(stacked(k.layers.Lambda(lambda x: x * 2, name="twice")), tmp_path / "model.keras")
    assert (
        "layer 'twice' (Lambda): it is Python code, which is never executed here; write it with operations of keras.ops"
        in text
    )


def test_every_unknown_layer_is_named(tmp_path: Path) -> None:
    k = keras()
    file = tmp_path / "model.keras"
    text = refused(
        stacked(
            k.layers.ConvLSTM1D(2, 3, name="a"),
            k.layers.Discretization([0.0, 1.0], name="b"),
            shape=(5, 8, 2),
        ),
        file,
    )
    assert text.count("is not supported; cut the graph before it with output_tensors") == 2
    assert "model.keras: layer 'a' (ConvLSTM1D)" in text


def test_masks_that_change_what_is_computed_are_refused(tmp_path: Path) -> None:
    k = keras()
    embedding = k.layers.Embedding(9, 4, mask_zero=True)
    text = refused(
        stacked(embedding, k.layers.Dropout(0.1), k.layers.LSTM(3), shape=(5,), dtype="int32"),
        tmp_path / "model.keras",
    )
    assert (
        "it is given sequences with a mask, which is computed at run time; make the model without masks"
        in text
    )


@pytest.mark.filterwarnings("ignore:Layer 'conv1d' .of type Conv1D. was passed an input with a mask")
def test_masks_that_change_nothing_are_not(tmp_path: Path) -> None:
    k = keras()
    model = stacked(
        k.layers.Embedding(9, 4, mask_zero=True),
        k.layers.Conv1D(3, 2),
        k.layers.LSTM(3),
        shape=(5,),
        dtype="int32",
    )
    randomise(model)
    graph = load(saved(model, tmp_path / "model.keras"))
    x = np.array([[1, 0, 3, 0, 8]], np.int32)
    same(graph, {"x": x}, computed(model, {"x": x}))


def test_arguments_that_no_handler_reads_are_refused(tmp_path: Path) -> None:
    k = keras()
    x = k.Input((4,), name="x")
    text = refused(k.Model(x, k.ops.max(x, axis=1, initial=5.0)), tmp_path / "model.keras")
    assert "it is given initial" in text


def test_masks_by_position_are_refused(tmp_path: Path) -> None:
    k = keras()
    x, mask = k.Input((5, 4), name="x"), k.Input((5,), dtype="bool", name="mask")
    layer = k.layers.MultiHeadAttention(2, 4)
    text = refused(k.Model([x, mask], layer(x, x, x, mask)), tmp_path / "model.keras")
    assert "it is given a mask by position; give it as attention_mask of MultiHeadAttention" in text


def test_masks_that_a_call_gives_are_refused(tmp_path: Path) -> None:
    k = keras()
    x, mask = k.Input((5, 4), name="x"), k.Input((5,), dtype="bool", name="mask")
    layers = (k.layers.LSTM(3), k.layers.Bidirectional(k.layers.GRU(3)), k.layers.GlobalAveragePooling1D())
    for layer in layers:
        text = refused(k.Model([x, mask], layer(x, mask=mask)), tmp_path / "model.keras")
        assert "it is given a mask as an argument; make the model without masks" in text
    by_position = k.Model([x, mask], k.layers.GlobalAveragePooling1D()(x, mask))
    assert "it is given a mask as an argument" in refused(by_position, tmp_path / "model.keras")
    constant = np.array([[True, True, True, False, False]])
    attention = k.layers.MultiHeadAttention(2, 4)(x, x, key_mask=constant)
    assert "it is given key_mask" in refused(k.Model(x, attention), tmp_path / "model.keras")


def test_a_stateful_layer_that_is_called_twice_is_refused(tmp_path: Path) -> None:
    k = keras()
    first, second = (k.layers.Input(batch_shape=(1, 5, 4), name=name) for name in ("first", "second"))
    layer = k.layers.LSTM(3, stateful=True, name="lstm")
    text = refused(k.Model([first, second], [layer(first), layer(second)]), tmp_path / "model.keras")
    assert "it is stateful and called more than once; give each call a layer of its own" in text


@pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)
@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize` method")
def test_quantized_models_are_refused(tmp_path: Path) -> None:
    k = keras()
    model = stacked(k.layers.Dense(3))
    model.quantize("int8")
    assert (
        "it is quantized by Keras; save the model before it is quantized, or convert it to TFLite"
        in refused(model, tmp_path / "m.keras")
    )


@pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)
def test_weights_alone_are_refused(tmp_path: Path) -> None:
    model = stacked(keras().layers.Dense(3))
    model.save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(
        MaceError,
        match=r"holds weights without the model that they belong to; save the whole model: model.save\(\)",
    ):
        load(tmp_path / "model.weights.h5")


def test_keras_1_is_refused_with_advice(tmp_path: Path) -> None:
    file = old_file(tmp_path / "old.h5", {"class_name": "Sequential", "config": []}, {}, "1.2.2")
    with pytest.raises(MaceError, match=r"was written by Keras 1; load it with Keras 2.2 and save it again"):
        load(file)


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    model = {
        "class_name": "Sequential",
        "config": [{"class_name": "Dense", "config": {"name": "d", "batch_input_shape": [1, 3], "units": 2}}],
    }
    with pytest.raises(MaceError, match="layer 'd' has 1 weights in the file, expected d/kernel, d/bias"):
        load(old_file(tmp_path / "old.h5", model, {"d": {"d/kernel:0": np.zeros((3, 2), np.float32)}}))


def test_subclassed_models_are_refused(tmp_path: Path) -> None:
    k = keras()

    class Own(k.Model):  # type: ignore[misc,name-defined]
        def call(self, x: Any) -> Any:
            return x

    model = Own()
    model(np.zeros((1, 2), np.float32))
    text = refused(model, tmp_path / "model.keras")
    assert "is a model of class" in text
    assert "Python code is never executed here" in text


def test_reference_refuses_what_is_none(tmp_path: Path) -> None:
    keras()
    file = tmp_path / "model.keras"
    file.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(MaceError, match=r"model.keras: is no Keras model, or a damaged one"):
        Keras().reference((file,), Model("m", (file,)))
    k = keras()
    file = saved(stacked(k.layers.Lambda(lambda x: x * 2)), tmp_path / "code.keras")
    with pytest.raises(
        MaceError, match=r"code.keras: Keras refuses it: .*; validate against stored data instead"
    ):
        Keras().reference((file,), Model("m", (file,)))
