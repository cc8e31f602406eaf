"""Files of Keras written by hand, without Keras: a small network in both formats, and its pieces."""

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

Json = dict[str, Any]


def ref(name: str, call: int = 0, index: int = 0) -> Json:
    return {
        "class_name": "__keras_tensor__",
        "config": {"shape": [None, 8, 8, 3], "dtype": "float32", "keras_history": [name, call, index]},
    }


def described(kind: str, name: str, *given: Any, **config: Any) -> Json:
    nodes = [{"args": list(given), "kwargs": {}}] if given else []
    results = {
        "module": "keras.layers",
        "class_name": kind,
        "config": {"name": name, "trainable": True, "dtype": "float32", **config},
    }
    return {**results, "registered_name": None, "name": name, "inbound_nodes": nodes}


def functional(name: str, layers: list[Json], first: list[Any], last: list[Any]) -> Json:
    config = {"name": name, "trainable": True, "layers": layers, "input_layers": first, "output_layers": last}
    return {
        "module": "keras.src.models.functional",
        "class_name": "Functional",
        "config": config,
        "registered_name": "Functional",
    }


def network() -> Json:
    """A model with an image, a nested model that is called twice, an operation, and a sequence."""
    inner = functional(
        "inner",
        [
            described("InputLayer", "i", batch_shape=[None, 4]),
            described("Dense", "d", ref("i"), units=4, activation="relu"),
            described("BatchNormalization", "bn", ref("d"), axis=-1, epsilon=0.001),
        ],
        ["i", 0, 0],
        ["bn", 0, 0],
    )
    nodes = [{"args": [ref("pool")], "kwargs": {}}, {"args": [ref("inner")], "kwargs": {}}]
    layers = [
        described("InputLayer", "x", batch_shape=[None, 8, 8, 3]),
        described(
            "Conv2D",
            "c",
            ref("x"),
            filters=4,
            kernel_size=[3, 3],
            strides=[2, 2],
            padding="same",
            activation="relu",
        ),
        described("GlobalAveragePooling2D", "pool", ref("c"), data_format="channels_last", keepdims=False),
        {**inner, "name": "inner", "inbound_nodes": nodes},
        {
            **described("Add", "add", ref("inner", 1), 2.0),
            "module": "keras.src.ops.numpy",
            "config": {"name": "add"},
        },
        described("Reshape", "steps", ref("add"), target_shape=[2, 2]),
        described(
            "LSTM",
            "lstm",
            ref("steps"),
            units=3,
            activation="tanh",
            recurrent_activation="sigmoid",
            return_sequences=True,
        ),
        described(
            "Bidirectional",
            "bi",
            ref("lstm"),
            merge_mode="concat",
            layer=described("GRU", "gru", units=2, reset_after=True),
        ),
    ]
    return functional("net", layers, [["x", 0, 0]], [["bi", 0, 0], ["inner", 2, 0]])


def array(*shape: int) -> np.ndarray:
    return np.linspace(0.1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


WEIGHTS = {
    "c": {"layers/conv2d": [(3, 3, 3, 4), (4,)]},
    "inner": {
        "layers/functional/layers/dense": [(4, 4), (4,)],
        "layers/functional/layers/batch_normalization": [(4,)] * 4,
    },
    "lstm": {"layers/lstm/cell": [(2, 12), (3, 12), (12,)]},
    "bi": {
        f"layers/bidirectional/{way}_layer/cell": [(3, 6), (2, 6), (2, 6)] for way in ("forward", "backward")
    },
}


def stored() -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as made:
        for places in WEIGHTS.values():
            for place, shapes in places.items():
                for i, shape in enumerate(shapes):
                    made[f"{place}/vars/{i}"] = array(*shape)
    return buffer.getvalue()


def archive(
    config: bytes, weights: bytes, names: tuple[str, str] = ("config.json", "model.weights.h5")
) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("metadata.json", json.dumps({"keras_version": "3.9.0"}))
        made.writestr(names[0], config)
        made.writestr(names[1], weights)
    return buffer.getvalue()


def old(config: Any, change: Callable[[h5py.File], None] = lambda _: None) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as made:
        made.attrs["model_config"] = config if isinstance(config, bytes) else json.dumps(config)
        made.attrs["keras_version"] = "3.9.0"
        group = made.create_group("model_weights")
        group.attrs["layer_names"] = [*map(str.encode, WEIGHTS)]
        for layer, places in WEIGHTS.items():
            shapes = [shape for listed in places.values() for shape in listed]
            names = [f"{layer}/w{i}" for i in range(len(shapes))]
            held = group.create_group(layer)
            held.attrs["weight_names"] = [*map(str.encode, names)]
            for name, shape in zip(names, shapes, strict=True):
                held[name] = array(*shape)
        change(made)
    return buffer.getvalue()


def encoded(config: Any) -> bytes:
    return json.dumps(config).encode()
