"""Whole models: nested, shared, with several inputs and outputs, cut, and of the older formats."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_cases import computed, given, keras, load, random, randomise, same, saved, stacked

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_keras import Keras

FORMATS = pytest.mark.parametrize("suffix", [".keras", ".h5"])


def agrees(model: Any, folder: Path, suffix: str, **stated: Any) -> Graph:
    """The model's graph, which computes what Keras computes."""
    randomise(model)
    graph = load(saved(model, folder / f"model{suffix}"), **stated)
    same(graph, given(graph), computed(model, given(graph)))
    return graph


def encoder(k: Any) -> Any:
    layers = k.layers
    x = layers.Input((8, 8, 3), name="image")
    y = layers.Conv2D(4, 3, name="conv")(x)
    y = layers.BatchNormalization(name="norm")(y)
    y = layers.Conv2D(4, 3, name="conv2", trainable=False)(y)
    y = layers.BatchNormalization(name="norm2")(y)
    return k.Model(
        x, [layers.Flatten(name="flat")(y), layers.GlobalMaxPooling2D(name="best")(y)], name="encoder"
    )


@FORMATS
def test_nested_model_that_is_called_twice(suffix: str, tmp_path: Path) -> None:
    k = keras()
    a, b = (k.layers.Input((8, 8, 3), name=n) for n in "ab")
    inner = encoder(k)
    flat, best = inner(a)
    other, second = inner(b)
    head = k.Sequential(
        [k.layers.Input((64,)), k.layers.Dense(5, activation="tanh"), k.layers.Dense(2)], name="head"
    )
    model = k.Model([a, b], [head(flat), head(other), k.layers.Concatenate(name="both")([best, second])])
    graph = agrees(model, tmp_path, suffix)
    assert graph.outputs == ("head", "head/1", "both")
    names = {o for n in graph.nodes for o in n.outputs}
    assert {"encoder/conv", "encoder/1/conv", "encoder/best"} <= names


@FORMATS
def test_frozen_models_in_models(suffix: str, tmp_path: Path) -> None:
    k = keras()
    inner = encoder(k)
    inner.trainable = False
    x = k.layers.Input((8, 8, 3), name="x")
    outer = k.Model(x, k.layers.Dense(4, name="d")(inner(x)[0]), name="outer")
    model = k.Sequential(
        [k.layers.Input((8, 8, 3), name="in"), outer, k.layers.LayerNormalization(), k.layers.Dense(3)]
    )
    assert agrees(model, tmp_path, suffix).outputs[0].startswith("dense")


@FORMATS
def test_shared_layers(suffix: str, tmp_path: Path) -> None:
    k = keras()
    x, y = k.layers.Input((4,), name="x"), k.layers.Input((4,), name="y")
    shared = k.layers.Dense(4, activation="relu", name="shared")
    graph = agrees(
        k.Model([x, y], k.layers.Add(name="sum")([shared(shared(x)), shared(y)])), tmp_path, suffix
    )
    assert sum(n.op.name == "MatMul" for n in graph.nodes) == 3
    assert sum(a.ndim == 2 for a in graph.weights.values()) == 1


@FORMATS
def test_model_in_time_distributed(suffix: str, tmp_path: Path) -> None:
    k = keras()
    cnn = k.Sequential(
        [k.layers.Input((8, 8, 1)), k.layers.Conv2D(3, 3), k.layers.BatchNormalization(), k.layers.Flatten()],
        name="cnn",
    )
    steps = k.layers.TimeDistributed(cnn)
    agrees(
        k.Sequential([k.layers.Input((3, 8, 8, 1)), steps, k.layers.Bidirectional(k.layers.GRU(3))]),
        tmp_path,
        suffix,
    )


@FORMATS
def test_transformer_block(suffix: str, tmp_path: Path) -> None:
    k = keras()
    x = k.layers.Input((6, 8))
    y = k.layers.LayerNormalization()(x + k.layers.MultiHeadAttention(2, 4)(x, x))
    z = k.layers.Dense(8)(k.layers.Dense(16, activation="gelu")(y))
    agrees(k.Model(x, k.layers.LayerNormalization()(y + k.layers.Dropout(0.1)(z))), tmp_path, ".keras")


@FORMATS
def test_layers_of_own_classes_in_the_networks_of_keras(suffix: str, tmp_path: Path) -> None:
    """ConvNeXt and InceptionResNetV2 of keras.applications bring layers that keras.layers has not."""
    k = keras()
    from keras.src.applications.convnext import LayerScale, StochasticDepth
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

    x = k.Input((6, 6, 4), name="x")
    branch = LayerScale(1e-6, 4)(k.layers.Conv2D(4, 3, padding="same")(x))
    total = k.layers.Add()([x, StochasticDepth(0.2)(branch)])
    agrees(k.Model(x, CustomScaleLayer(0.17)([total, branch])), tmp_path, suffix)


def test_several_layers_of_one_class_keep_their_weights_apart(tmp_path: Path) -> None:
    k = keras()
    layers = [k.layers.Dense(4, name=f"l{9 - i}", activation="tanh") for i in range(4)]
    agrees(k.Sequential([k.layers.Input((4,)), *layers]), tmp_path, ".keras")


def test_dictionaries_of_inputs_and_outputs(tmp_path: Path) -> None:
    k = keras()
    x, y = k.layers.Input((4,), name="zebra"), k.layers.Input((3,), name="ant")
    model = k.Model(
        {"zebra": x, "ant": y},
        {"second": k.layers.Dense(2, name="b")(x), "first": k.layers.Dense(2, name="c")(y)},
    )
    graph = load(saved(model, tmp_path / "model.keras"))
    assert set(graph.inputs) == {"zebra", "ant"}
    assert graph.outputs == ("c", "b")


def cnn(k: Any) -> Any:
    layers = k.layers
    parts = [
        layers.Input((16, 16, 3), name="image"),
        layers.Conv2D(4, 3, activation="relu", name="conv"),
        layers.MaxPooling2D(name="pool"),
    ]
    return k.Sequential(
        [
            *parts,
            layers.Flatten(name="flat"),
            layers.Dense(5, name="scores"),
            layers.Softmax(name="probabilities"),
        ]
    )


def test_cut_between_inner_tensors(tmp_path: Path) -> None:
    model = cnn(keras())
    file = saved(model, tmp_path / "model.keras")
    ports = {"inputs": (Port("pool", (1, 7, 7, 4)),), "outputs": (Port("scores"),)}
    graph = load(file, **ports)
    x = random(1, 7, 7, 4)
    run = Keras().reference((file,), Model("m", (file,), **ports))
    assert run is not None
    np.testing.assert_allclose(
        execute(graph, {"pool": x})["scores"], run({"pool": x})["scores"], rtol=1e-5, atol=1e-5
    )
    assert [n.op.name for n in graph.nodes] == ["Reshape", "MatMul"]


@FORMATS
def test_reference_names_outputs_as_the_graph_does(suffix: str, tmp_path: Path) -> None:
    k = keras()
    x = k.layers.Input((5, 4), name="x")
    shared = k.layers.Dense(4, name="shared")
    lstm = k.layers.LSTM(3, return_state=True, name="lstm")(x)
    model = k.Model(x, [shared(shared(x)), lstm[0], lstm[2]])
    for case in (model, k.Sequential([k.layers.Input((5, 4), name="x"), k.layers.Dense(2, name="d")])):
        file = saved(case, tmp_path / f"model{suffix}")
        graph, run = load(file), Keras().reference((file,), Model("m", (file,)))
        assert run is not None
        values, found = execute(graph, given(graph)), run(given(graph))
        assert tuple(found) == graph.outputs
        for name in graph.outputs:
            np.testing.assert_allclose(values[name], found[name], rtol=1e-5, atol=1e-5)


@FORMATS
def test_reference_knows_inner_tensors(suffix: str, tmp_path: Path) -> None:
    file = saved(cnn(keras()), tmp_path / f"model{suffix}")
    expected = ("probabilities", "conv", "flat")
    graph = load(file, outputs=tuple(Port(n) for n in expected))
    run = Keras().reference((file,), Model("m", (file,), outputs=tuple(Port(n) for n in expected)))
    assert run is not None
    values, found = execute(graph, given(graph)), run(given(graph))
    assert tuple(found) == expected
    for name in expected:
        np.testing.assert_allclose(values[name], found[name], rtol=1e-5, atol=1e-5)


def test_shapes_of_the_deployment_file(tmp_path: Path) -> None:
    k = keras()
    x = k.layers.Input((None, None, 3), name="x")
    file = saved(
        k.Model(x, k.layers.GlobalAveragePooling2D()(k.layers.Conv2D(2, 3)(x))), tmp_path / "model.keras"
    )
    lines = r'\n  input_tensors: \[x\]\n  input_shapes: \["1,\?,\?,3"\]$'
    with pytest.raises(MaceError, match=rf"'x' leaves dimension 1, 2 open; write [^\n]*{lines}"):
        load(file)
    assert load(file, inputs=(Port("x", (2, 9, 8, 3)),)).tensors["x"].shape == (2, 9, 8, 3)
    with pytest.raises(
        MaceError, match=r"has shape \[\?,\?,\?,3\] in the model, \[1, 3, 8, 9\] in the deployment file"
    ):
        load(file, inputs=(Port("x", (1, 3, 8, 9)),))
    with pytest.raises(MaceError, match=r"no tensor 'xx'.*did you mean 'x'"):
        load(file, inputs=(Port("xx", (1, 8, 8, 3)),))


def test_channels_first_is_channels_last_turned(tmp_path: Path) -> None:
    """TensorFlow computes no convolution with channels first on a CPU: the same weights with channels last are the oracle."""
    k = keras()

    def made(order: str) -> Any:
        how = {"data_format": order}
        layers = [
            k.layers.Conv2D(4, 3, padding="same", activation="relu", **how),
            k.layers.DepthwiseConv2D(3, **how),
        ]
        layers += [
            k.layers.MaxPooling2D(2, **how),
            k.layers.Conv2DTranspose(3, 3, strides=2, **how),
            k.layers.SeparableConv2D(4, 3, **how),
        ]
        layers += [
            k.layers.BatchNormalization(axis=1 if order == "channels_first" else -1),
            k.layers.AveragePooling2D(2, **how),
        ]
        return k.Sequential(
            [k.layers.Input((2, 12, 12) if order == "channels_first" else (12, 12, 2), name="x"), *layers]
        )

    first, last = made("channels_first"), made("channels_last")
    randomise(first)
    last.set_weights(first.get_weights())
    x = random(1, 2, 12, 12)
    graph = load(saved(first, tmp_path / "model.keras"))
    expected = computed(last, {"x": np.transpose(x, (0, 2, 3, 1))})[0]
    np.testing.assert_allclose(
        execute(graph, {"x": x})[graph.outputs[0]], np.transpose(expected, (0, 3, 1, 2)), rtol=1e-5, atol=1e-5
    )


def test_layers_of_plugins(tmp_path: Path) -> None:
    k = keras()

    @k.saving.register_keras_serializable("acme")
    class Twice(k.layers.Layer):  # type: ignore[misc,name-defined]
        def call(self, x: Any) -> Any:
            return x * 2

    file = saved(stacked(Twice(name="twice"), k.layers.ReLU(name="r")), tmp_path / "model.keras")
    with pytest.raises(MaceError, match=r"Twice is not supported; .* or add 'keras::Twice' by a plugin"):
        load(file)
    op = Op(
        "keras::Twice",
        ("x",),
        ("y",),
        lambda inputs, _: [(inputs[0].dtype, inputs[0].shape)],
        lambda x: x * 2,
    )  # type: ignore[union-attr]
    graph = verify(Keras().load((file,), Model("m", (file,)), {**core_ops(), op.name: op}))
    x = random(1, 5, 4)
    np.testing.assert_allclose(execute(graph, {"x": x})["r"], np.maximum(2 * x, 0))
