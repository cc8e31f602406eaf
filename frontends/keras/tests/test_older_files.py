"""Files of Keras 2 and of the first Keras 3, some written by hand: no Keras of today writes them."""

import io
import json
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from keras_cases import computed, given, keras, load, old_file, random, randomise, same, saved

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.run.reference import execute
from mace_frontend_keras import Keras


def old_layer(kind: str, name: str, nodes: list[Any], **config: Any) -> dict[str, Any]:
    results = {
        "class_name": kind,
        "config": {"name": name, "trainable": True, "dtype": "float32", **config},
        "name": name,
    }
    return {**results, "inbound_nodes": nodes}


def old_model(name: str, layers: list[Any], inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
    return {
        "class_name": "Functional",
        "config": {"name": name, "layers": layers, "input_layers": inputs, "output_layers": outputs},
    }


def source(name: str, *shape: int) -> dict[str, Any]:
    return old_layer("InputLayer", name, [], batch_input_shape=[None, *shape])


def test_functional_model_of_keras_2(tmp_path: Path) -> None:
    """A nested model counts its calls from 1, its weights are trained ones first.

    Functions of TensorFlow are layers.
    """
    inner = old_model(
        "inner",
        [
            source("i", 3),
            old_layer("BatchNormalization", "bn", [[["i", 0, 0, {}]]], axis=[1], epsilon=0.5),
            old_layer("Dense", "d", [[["bn", 0, 0, {}]]], units=3, activation="linear", use_bias=True),
        ],
        [["i", 0, 0]],
        [["d", 0, 0]],
    )
    outer = old_model(
        "outer",
        [
            source("x", 3),
            {**inner, "name": "inner", "inbound_nodes": [[["x", 0, 0, {}]], [["inner", 1, 0, {}]]]},
            old_layer(
                "TFOpLambda",
                "add",
                [["inner", 1, 0, {"y": ["inner", 2, 0], "name": None}]],
                function="math.add",
            ),
            old_layer(
                "TFOpLambda", "scale", [["add", 0, 0, {"y": 2.0, "name": None}]], function="math.multiply"
            ),
            old_layer(
                "TFOpLambda",
                "less",
                [["_CONSTANT_VALUE", -1, 1.0, {"y": ["scale", 0, 0], "name": None}]],
                function="math.subtract",
            ),
            old_layer("Activation", "gate", [[["less", 0, 0, {}]]], activation="hard_sigmoid"),
        ],
        [["x", 0, 0]],
        [["gate", 0, 0], ["inner", 2, 0]],
    )
    kernel, bias = random(3, 3), random(3, seed=1)
    gamma, beta, mean, variance = (np.abs(random(3, seed=i)) for i in range(2, 6))
    trained = {"bn/gamma:0": gamma, "bn/beta:0": beta, "d/kernel:0": kernel, "d/bias:0": bias}
    file = old_file(
        tmp_path / "old.h5",
        outer,
        {"inner": {**trained, "bn/moving_mean:0": mean, "bn/moving_variance:0": variance}},
    )
    graph = load(file)
    x = random(1, 3, seed=9)

    def once(v: Array) -> Array:
        return ((v - mean) / np.sqrt(variance + 0.5) * gamma + beta) @ kernel + bias

    values = execute(graph, {"x": x})
    expected = np.clip(0.2 * (1 - (once(x) + once(once(x))) * 2) + 0.5, 0, 1)
    assert graph.outputs == ("gate", "inner/1")
    if find_spec("keras"):
        with pytest.raises(
            MaceError, match=r"old.h5: was written by Keras 2, whose hard_sigmoid has another slope"
        ):
            Keras().reference((file,), Model("m", (file,)))
    np.testing.assert_allclose(values["gate"], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(values["inner/1"], once(once(x)), rtol=1e-5, atol=1e-5)


def test_sequential_model_without_an_input_layer(tmp_path: Path) -> None:
    """Keras 2.0 lists the layers alone.

    The first one has the shape, and there is a GRU that resets before.
    """
    layers = [
        {
            "class_name": "LeakyReLU",
            "config": {"name": "leaky", "batch_input_shape": [None, 5, 2], "alpha": 0.1},
        },
        {
            "class_name": "GRU",
            "config": {"name": "gru", "units": 2, "recurrent_activation": "hard_sigmoid", "use_bias": True},
        },
    ]
    arrays = {
        "gru/kernel:0": random(2, 6),
        "gru/recurrent_kernel:0": random(2, 6, seed=1),
        "gru/bias:0": random(6, seed=2),
    }
    file = old_file(
        tmp_path / "old.hdf5",
        {"class_name": "Sequential", "config": layers},
        {"leaky": {}, "gru": arrays},
        "2.0.8",
    )
    graph = load(file)
    assert graph.inputs == ("leaky_input",)
    x, h = random(1, 5, 2, seed=3), np.zeros((1, 2), np.float32)
    w, r, b = arrays.values()
    for step in np.where(x > 0, x, 0.1 * x)[0]:
        xz, xr, xh = np.split(step @ w + b, 3)
        z, reset = (
            np.clip(0.2 * (v + h @ r[:, i * 2 : i * 2 + 2]) + 0.5, 0, 1) for i, v in enumerate((xz, xr))
        )
        h = z * h + (1 - z) * np.tanh(xh + (reset * h) @ r[:, 4:])
    np.testing.assert_allclose(execute(graph, {"leaky_input": x})["gru"], h, rtol=1e-5, atol=1e-5)


def renamed(file: Path, old: str, new: str) -> None:
    """Rewrite an archive with the weights' paths as an earlier Keras wrote them."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    buffer = io.BytesIO()
    with h5py.File(io.BytesIO(members["model.weights.h5"])) as before, h5py.File(buffer, "w") as after:
        names: list[str] = []
        before.visit(names.append)
        for name in names:
            if isinstance(before[name], h5py.Dataset):
                after[name.replace(old, new)] = before[name][()]
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in {**members, "model.weights.h5": buffer.getvalue()}.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("old", "new"), [("layers", "_layer_checkpoint_dependencies"), ("query_dense", "_query_dense")]
)
def test_archives_of_the_first_keras_3(old: str, new: str, tmp_path: Path) -> None:
    k = keras()
    x = k.layers.Input((6, 8), name="x")
    model = k.Model(x, k.layers.Dense(3)(k.layers.MultiHeadAttention(2, 4)(x, x)))
    randomise(model)
    file = saved(model, tmp_path / "model.keras")
    renamed(file, old, new)
    graph = load(file)
    same(graph, given(graph), computed(model, given(graph)))


def test_bidirectional_layer_of_keras_2_0(tmp_path: Path) -> None:
    """It does not describe the layer that goes backwards."""
    k = keras()
    model = k.Sequential(
        [k.layers.Input((5, 4), name="x"), k.layers.Bidirectional(k.layers.LSTM(3, return_sequences=True))]
    )
    randomise(model)
    file = saved(model, tmp_path / "model.h5")
    with h5py.File(file, "a") as opened:
        config = json.loads(opened.attrs["model_config"])
        del config["config"]["layers"][1]["config"]["backward_layer"]
        opened.attrs["model_config"] = json.dumps(config)
    graph = load(file)
    same(graph, given(graph), computed(model, given(graph)))
