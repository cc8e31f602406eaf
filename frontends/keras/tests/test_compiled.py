"""Models of both formats through generated C, beside Keras itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_cases import computed, keras, load, randomise, saved

from mace_core.ir import Array, Graph
from mace_core.registry import Registry
from mace_core.testing.compiled import compile_graphs
from mace_core.transforms import run_phases


def image(k: Any) -> Any:
    layers = k.layers
    x = layers.Input((16, 16, 3), name="x")
    y = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)
    y = layers.ReLU(max_value=6.0)(layers.BatchNormalization()(y))
    z = layers.SeparableConv2D(8, 3, padding="same", activation="hard_silu")(y)
    z = layers.Dropout(0.2)(layers.Concatenate()([y, layers.Add()([y, z])]))
    z = layers.UpSampling2D(2, interpolation="bilinear")(layers.MaxPooling2D(2)(z))
    return k.Model(x, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(z)))


def sequence(k: Any) -> Any:
    layers = k.layers
    steps = [
        layers.Input((9, 4), name="x"),
        layers.Conv1D(6, 3, padding="causal", activation="gelu"),
        layers.LayerNormalization(),
    ]
    return k.Sequential(
        [*steps, layers.Bidirectional(layers.LSTM(5, return_sequences=True)), layers.GRU(4), layers.Dense(3)]
    )


def transformer(k: Any) -> Any:
    layers = k.layers
    x = layers.Input((6, 8), name="x")
    y = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    return k.Model(x, layers.Dense(3)(layers.Flatten()(y + layers.Dense(8, activation="silu")(y))))


MODELS = (image, sequence, transformer)


def cosine(a: Array, b: Array) -> float:
    a, b = a.reshape(-1).astype(np.float64), b.reshape(-1).astype(np.float64)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def read_both_formats(model: Any, folder: Path) -> Graph:
    """Return the graph of a model, which the files of both formats give with the same nodes and weights."""
    graph, older = (load(saved(model, folder / f"model{suffix}")) for suffix in (".keras", ".h5"))
    assert graph.nodes == older.nodes
    assert graph.weights.keys() == older.weights.keys()
    for name, array in graph.weights.items():
        np.testing.assert_array_equal(array, older.weights[name], err_msg=name)
    return graph


@pytest.mark.exhaustive
@pytest.mark.slow
def test_generated_code_computes_what_keras_does(tmp_path: Path) -> None:
    """The files of both formats are compared as graphs, so that one compilation stands for both."""
    from mace_target_cpu import Cpu

    k, registry, graphs, runs = keras(), Registry.load(), [], {}
    for make in MODELS:
        model = make(k)
        randomise(model)
        graph = run_phases(read_both_formats(model, tmp_path), registry).with_name(make.__name__)
        x = np.random.default_rng(0).standard_normal(graph.tensors["x"].shape).astype(np.float32)
        graphs.append(graph)
        runs[make.__name__] = x, computed(model, {"x": x})[0]
    models = compile_graphs(Cpu(), graphs, tmp_path)
    for graph in graphs:
        x, expected = runs[graph.name]
        result = models[graph.name].run({"x": x})[graph.outputs[0]]
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=graph.name)
        assert cosine(result, expected) > 0.9999
