"""Makes small streaming models in their frameworks: what they compute depends on the runs before."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tflite
from keras_cases import keras, saved
from onnx import TensorProto, helper, numpy_helper
from tflite_write import Scales, Step, Value, Written, write

from mace_core.ir import DType
from mace_frontend_tensorflow.reference import tensorflow

SHAPE = (1, 5, 4)
"""Of what a run is given: a piece of a signal, [batch, time, channels]."""

TAPS = 3


def write_onnx(file: Path) -> Path:
    """Write a causal convolution that is given the last samples of the piece before: input cache, output cache_out."""
    batch, time, channels = SHAPE
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((2, channels, TAPS)).astype(np.float32) / 3
    held = {"w": weights, "first": np.array([1 - TAPS]), "end": np.array([1 << 40]), "axis": np.array([2])}
    nodes = [
        helper.make_node("Transpose", ["x"], ["signal"], perm=[0, 2, 1]),
        helper.make_node("Concat", ["cache", "signal"], ["joined"], axis=2),
        helper.make_node("Conv", ["joined", "w"], ["conv"], kernel_shape=[TAPS]),
        helper.make_node("Tanh", ["conv"], ["y"]),
        helper.make_node("Slice", ["joined", "first", "end", "axis"], ["cache_out"]),
    ]
    shapes = {
        "x": SHAPE,
        "cache": (batch, channels, TAPS - 1),
        "y": (batch, 2, time),
        "cache_out": (batch, channels, TAPS - 1),
    }
    ports = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()
    }
    initializers = [numpy_helper.from_array(array, name) for name, array in held.items()]
    ends = [ports["x"], ports["cache"]], [ports["y"], ports["cache_out"]]
    graph = helper.make_graph(nodes, "stream", *ends, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(file))
    return file


def write_saved_model(folder: Path) -> Path:
    """Write the same by TensorFlow; the last samples lie in a variable that does not begin with zeros."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it says of its own dependencies when it is loaded
        tf = tensorflow()
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((TAPS, SHAPE[2], 4)).astype(np.float32) / 3

    class Stream(tf.Module):
        def __init__(self) -> None:
            self.cache = tf.Variable(tf.ones([1, TAPS - 1, SHAPE[2]]) / 2, name="cache")

        @tf.function(input_signature=[tf.TensorSpec(SHAPE, tf.float32, name="x")])
        def serve(self, x: Any) -> dict[str, Any]:
            joined = tf.concat([self.cache.read_value(), x], 1)
            self.cache.assign(joined[:, 1 - TAPS :])
            return {"y": tf.nn.relu(tf.nn.conv1d(joined, weights, 1, "VALID"))}

    module = Stream()
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    return folder


SIGNAL, RESULT = Scales((0.01,), (4,)), Scales((0.02,), (-10,))
"""How the model of integers stores its input, and its output."""


def write_tflite(file: Path) -> Path:
    """Write the same in integers of 8 bits; an initializer gives the variable a value other than zero."""
    _, time, channels = SHAPE
    rng = np.random.default_rng(0)
    weights = rng.integers(-100, 100, (2, 1, TAPS, channels)).astype(np.int8)
    scales = Scales((0.01, 0.008), (0, 0))
    biases = Scales((0.01 * 0.01, 0.01 * 0.008), (0, 0))
    handle = Value("h", DType.I32, (), kind=tflite.TensorType.RESOURCE)
    cache, joined = (1, 1, TAPS - 1, channels), (1, 1, TAPS - 1 + time, channels)
    values = [
        Value("x", DType.I8, (1, 1, time, channels), scales=SIGNAL),
        handle,
        Value("cache", DType.I8, cache, scales=SIGNAL),
        Value("joined", DType.I8, joined, scales=SIGNAL),
        Value.constant("w", weights, scales),
        Value.constant("b", np.array([300, -500], np.int32), biases),
        Value("y", DType.I8, (1, 1, time, 2), scales=RESULT),
        Value.constant("first", np.array([0, 0, time, 0], np.int32)),
        Value.constant("size", np.array(cache, np.int32)),
        Value("last", DType.I8, cache, scales=SIGNAL),
    ]
    variable = ("VarHandleOptions", {"SharedName": "cache", "Container": ""})
    steps = [
        Step("CALL_ONCE", [], [], ("CallOnceOptions", {"InitSubgraphIndex": 1})),
        Step("VAR_HANDLE", [], ["h"], variable),
        Step("READ_VARIABLE", ["h"], ["cache"]),
        Step("CONCATENATION", ["cache", "x"], ["joined"], ("ConcatenationOptions", {"Axis": 2})),
        Step(
            "CONV_2D",
            ["joined", "w", "b"],
            ["y"],
            ("Conv2DOptions", {"Padding": 1, "StrideW": 1, "StrideH": 1}),
            version=3,
        ),
        Step("SLICE", ["joined", "first", "size"], ["last"], version=2),
        Step("ASSIGN_VARIABLE", ["h", "last"], []),
    ]
    begin = Value.constant("begin", np.full(cache, 50, np.int8), SIGNAL)
    initial = [Step("VAR_HANDLE", [], ["h"], variable), Step("ASSIGN_VARIABLE", ["h", "begin"], [])]
    main = Written(values, steps, ["x"], ["y"])
    file.write_bytes(write(main, Written([begin, handle], initial, [], [], "initial")))
    return file


def write_keras(file: Path) -> Path:
    """Write a stateful LSTM and GRU on top of each other."""
    k = keras()
    k.utils.set_random_seed(0)
    layers = [
        k.layers.Input(batch_shape=SHAPE, name="x"),
        k.layers.LSTM(6, stateful=True, return_sequences=True, name="lstm"),
        k.layers.GRU(3, stateful=True, name="gru"),
    ]
    return saved(k.Sequential(layers), file)
