"""SavedModels: variables, signatures, functions; networks as Keras saves them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_cases import floats

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.testing.compiled import check_graphs, random_inputs
from mace_core.verify import verify
from mace_frontend_tensorflow import TensorFlow
from mace_frontend_tensorflow.source import read
from mace_target_cpu import Cpu


def load(folder: Path, **ports: Any) -> Graph:
    return verify(TensorFlow().load((folder,), Model("saved", (folder,), **ports), core_ops()))


def by_tensorflow(folder: Path, arrays: Mapping[str, Array], **ports: Any) -> Mapping[str, Array]:
    run = TensorFlow().reference((folder,), Model("saved", (folder,), **ports))
    assert run is not None
    return run(arrays)


def given(folder: Path, *shapes: tuple[int, ...]) -> tuple[Port, ...]:
    """The inputs of a network in these shapes: Keras leaves the batch open."""
    serving = next(s for s in read((folder,)).signatures if s.name == "serving_default")
    return tuple(Port(name, shape) for name, shape in zip(serving.inputs, shapes, strict=True))


def agree(folder: Path, tolerance: float = 1e-5, **ports: Any) -> Graph:
    """The graph of a SavedModel, which computes what TensorFlow does."""
    graph = load(folder, **ports)
    inputs = random_inputs(graph)
    actual, expected = execute(graph, inputs), by_tensorflow(folder, inputs, **ports)
    assert set(graph.outputs) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=tolerance, atol=tolerance, err_msg=name)
    return graph


@pytest.fixture
def saved(tmp_path: Path, tf: Any) -> Callable[[Any], Path]:
    """Saves a module or a network of Keras; the folder."""

    def save(model: Any, **how: Any) -> Path:
        folder = tmp_path / "saved"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Keras and TensorFlow warn of each other
            if hasattr(model, "export"):
                model.export(folder, verbose=False)
            else:
                tf.saved_model.save(model, str(folder), **how)
        return folder

    return save


def module(tf: Any) -> tuple[Any, dict[str, Any]]:
    """A module with variables and two signatures."""
    made = tf.Module()
    made.weights = tf.Variable(floats(4, 3))
    made.table = tf.Variable(floats(6, 3, seed=1))
    made.count = tf.Variable(0)

    @tf.function(
        input_signature=[tf.TensorSpec([2, 4], tf.float32, "left"), tf.TensorSpec([2], tf.int32, "places")]
    )
    def both(left: Any, places: Any) -> Any:
        made.count.assign_add(1)
        return {"product": left @ made.weights, "rows": tf.gather(made.table, places)}

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
    def half(x: Any) -> Any:
        return {"halves": x / 2.0}

    made.both, made.half = both, half
    return made, {"serving_default": both, "half": half}


@pytest.mark.slow
def test_variables_have_the_values_that_were_saved(saved: Any, tf: Any) -> None:
    made, signatures = module(tf)
    graph = agree(saved(made, signatures=signatures))
    assert set(graph.inputs) == {"left", "places"}
    assert set(graph.outputs) == {"product", "rows"}


def test_the_signature_is_the_one_that_has_the_names(saved: Any, tf: Any) -> None:
    made, signatures = module(tf)
    folder = saved(made, signatures=signatures)
    graph = agree(folder, inputs=(Port("x", (3, 4)),), outputs=(Port("halves"),))
    assert (graph.inputs, graph.outputs) == (("x",), ("halves",))


def test_the_file_inside_is_as_good_as_the_folder(saved: Any, tf: Any) -> None:
    made, signatures = module(tf)
    folder = saved(made, signatures=signatures)
    assert load(folder / "saved_model.pb").nodes == load(folder).nodes


def test_a_folder_is_claimed_and_its_files_are_sources(saved: Any, tf: Any, tmp_path: Path) -> None:
    made, signatures = module(tf)
    folder, frontend = saved(made, signatures=signatures), TensorFlow()
    assert frontend.claims(folder)
    assert frontend.claims(folder / "saved_model.pb")
    assert not frontend.claims(tmp_path)
    inside = {"saved_model.pb", "variables.index", "variables.data-00000-of-00001"}
    for named in (folder, folder / "saved_model.pb"):
        assert inside <= {f.name for f in frontend.dependencies((named,))}


def test_a_public_name_is_the_outputs_whatever_nodes_are_called(saved: Any, tf: Any) -> None:
    made = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([3], tf.float32, "x")])
    def serve(x: Any) -> Any:
        one = tf.nn.relu(x, name="second")
        return {"first": one, "second": tf.exp(one, name="first"), "StatefulPartitionedCall": x * 2.0}

    graph = agree(saved(made, signatures=serve))
    assert set(graph.outputs) == {"first", "second", "StatefulPartitionedCall"}


def test_missing_variables_are_named(saved: Any, tf: Any) -> None:
    made, signatures = module(tf)
    folder = saved(made, signatures=signatures)
    (folder / "variables" / "variables.index").unlink()
    with pytest.raises(
        MaceError,
        match=r"VarHandleOp.*its value is not stored; freeze the graph, or keep the folder `variables`",
    ):
        load(folder)


def test_variables_of_tensorflow_1(tmp_path: Path, tf: Any) -> None:
    v1, folder = tf.compat.v1, tmp_path / "saved"
    with warnings.catch_warnings(), tf.Graph().as_default(), v1.Session() as session:
        warnings.simplefilter("ignore")
        x = v1.placeholder(tf.float32, (2, 4), "x")
        plain = v1.get_variable("plain", initializer=floats(4, 3), use_resource=False)
        resource = v1.get_variable("resource", initializer=floats(3, seed=1), use_resource=True)
        y = v1.nn.xw_plus_b(x, plain, resource)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(folder), {"x": x}, {"y": y})
    agree(folder)


def cnn(tf: Any) -> Any:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((16, 16, 3)),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(6.0),
            layers.DepthwiseConv2D(3, strides=2, padding="same", activation="swish"),
            layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="gelu"),
            layers.MaxPooling2D(2),
            layers.UpSampling2D(2, interpolation="bilinear"),
            layers.Dropout(0.5),
            layers.SpatialDropout2D(0.5),
            layers.LayerNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5, activation="softmax"),
        ]
    )


def randomised(model: Any) -> Any:
    """The network with random weights, its statistics too; variances stay positive."""
    rng = np.random.default_rng(5)
    model.set_weights(
        [
            np.abs(rng.normal(0, 0.5, w.shape)) + 0.1 if w.ndim == 1 else rng.normal(0, 0.5, w.shape)
            for w in model.get_weights()
        ]
    )
    return model


@pytest.mark.exhaustive
@pytest.mark.slow
def test_an_image_network(saved: Any, tf: Any, tmp_path: Path) -> None:
    folder = saved(randomised(cnn(tf)))
    graph = agree(folder, inputs=given(folder, (1, 16, 16, 3)))
    counts = Counter(n.op.name for n in graph.nodes)
    assert counts["Conv"] == 2
    assert counts["ConvTranspose"] == 1
    check_graphs(Cpu(), [graph], tmp_path, tolerance=1e-4)


def recurrent(tf: Any, layer: Any) -> Any:
    x = tf.keras.Input((6, 4), batch_size=2)  # known, so that Keras may write a short loop out itself
    return tf.keras.Model(x, tf.keras.layers.Dense(3)(layer(x)))


LAYERS: Mapping[str, Callable[[Any], Any]] = {
    "lstm": lambda layers: layers.LSTM(5),
    "lstm sequence": lambda layers: layers.LSTM(5, return_sequences=True, go_backwards=True),
    "gru": lambda layers: layers.GRU(5),
    "gru plain": lambda layers: layers.GRU(5, reset_after=False, return_sequences=True),
    "rnn": lambda layers: layers.SimpleRNN(5, unroll=True),
    "bidirectional": lambda layers: layers.Bidirectional(layers.LSTM(5, return_sequences=True)),
    "attention": lambda layers: lambda x: layers.MultiHeadAttention(2, 3)(x, x),
    "convolution": lambda layers: layers.Conv1D(5, 3, padding="causal", dilation_rate=2),
}


@pytest.mark.slow
@pytest.mark.sampled(cases="^attention$")
@pytest.mark.parametrize("name", LAYERS)
def test_sequence_networks(name: str, saved: Any, tf: Any, tmp_path: Path) -> None:
    folder = saved(randomised(recurrent(tf, LAYERS[name](tf.keras.layers))))
    graph = agree(folder, inputs=given(folder, (2, 6, 4)))
    large = [w for w in graph.weights.values() if w.size > 30 and w.any()]
    assert len({w.tobytes() for w in large}) == len(large), "weights of a loop are there once"
    if name in ("lstm", "gru"):
        check_graphs(Cpu(), [graph], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("lowered", [True, False])
def test_a_frozen_sequence_network(lowered: bool, tf: Any, tmp_path: Path) -> None:
    """Its variables made constants by TensorFlow, its loops left as they are or as frames of TensorFlow 1."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    model = randomised(recurrent(tf, tf.keras.layers.LSTM(5)))
    function = tf.function(lambda x: {"y": model(x)}).get_concrete_function(
        tf.TensorSpec((2, 6, 4), tf.float32, "x")
    )
    frozen = convert_variables_to_constants_v2(function, lower_control_flow=lowered)
    file = tmp_path / "frozen.pb"
    file.write_bytes(frozen.graph.as_graph_def().SerializeToString())
    graph = agree(file, outputs=(Port(frozen.outputs[0].name.removesuffix(":0")),))
    assert Counter(n.op.name for n in graph.nodes)["LSTM"] == 1


@pytest.mark.slow
def test_embedded_words(saved: Any, tf: Any) -> None:
    words = tf.keras.Input((7,), dtype="int32")
    hidden = tf.keras.layers.GlobalAveragePooling1D()(tf.keras.layers.Embedding(8, 4)(words))
    folder = saved(randomised(tf.keras.Model(words, tf.keras.layers.Dense(2, activation="sigmoid")(hidden))))
    agree(folder, inputs=given(folder, (2, 7)))


def test_an_open_batch_is_one(saved: Any, tf: Any) -> None:
    model = tf.keras.Sequential([tf.keras.Input((4,), name="given"), tf.keras.layers.Dense(3)])
    folder = saved(model)
    graph = load(folder)
    assert graph.tensors[graph.inputs[0]].shape == (1, 4)
    agree(folder, inputs=given(folder, (2, 4)))


@pytest.mark.slow
def test_an_open_axis_of_a_sequence_is_asked_for(saved: Any, tf: Any) -> None:
    model = tf.keras.Sequential([tf.keras.Input((None, 4), name="given"), tf.keras.layers.Dense(3)])
    with pytest.raises(
        MaceError,
        match=r"leaves dimension 1 open; write in the deployment file[^\n]*\n.*\n  input_shapes: \[\"1,\?,4\"\]",
    ):
        load(saved(model))


@pytest.mark.slow
def test_tensors_inside_of_functions_can_be_cut_at(saved: Any, tf: Any) -> None:
    model = randomised(
        tf.keras.Sequential(
            [tf.keras.Input((4,)), *(tf.keras.layers.Dense(3, activation="relu") for _ in range(2))]
        )
    )
    folder = saved(model)
    whole = load(folder, inputs=given(folder, (2, 4)))
    inner = next(o for n in whole.nodes for o in n.outputs if o.endswith("Relu"))
    graph = agree(folder, inputs=given(folder, (2, 4)), outputs=(Port(inner),))
    assert graph.outputs == (inner,)
    rest = load(folder, inputs=(Port(inner, (2, 3)),))
    assert (rest.inputs, len(rest.nodes)) == ((inner,), len(whole.nodes) - len(graph.nodes))
