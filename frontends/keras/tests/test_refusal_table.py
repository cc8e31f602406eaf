"""A table of what each layer refuses, as files of Keras 2 written by hand: no Keras is needed to read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_cases import load, old_file

from mace_core.errors import MaceError

Config = Mapping[str, Any]
IMAGE, ROWS, VECTOR = (8, 8, 3), (5, 4), (4,)
CELL = {"units": 2}
CELL_WEIGHTS = ((4, 8), (2, 8), (8,))


def write_model(
    file: Path, layer: Config, shape: tuple[int | None, ...], weights: tuple[Any, ...] = ()
) -> Path:
    """Write a Sequential model of one layer, its weights of these shapes."""
    config = {"name": "layer", **layer["config"]}
    first = {"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [None, *shape]}}
    model = {"class_name": "Sequential", "config": {"layers": [first, {**layer, "config": config}]}}
    arrays = {f"w{i}": np.ones(size, np.float32) for i, size in enumerate(weights)}
    return old_file(file, model, {"x": {}, "layer": arrays})


def layer(kind: str, **config: Any) -> Config:
    return {"class_name": kind, "config": config}


REFUSED: tuple[tuple[Config, tuple[int | None, ...], tuple[Any, ...], str], ...] = (
    (layer("Whatever"), VECTOR, (), "Whatever is not supported; cut the graph before it with output_tensors"),
    (layer("Lambda"), VECTOR, (), "it is Python code, which is never executed here"),
    (layer("Dense", dtype="int8_from_float32"), VECTOR, ((4, 2), (2,)), "it is quantized by Keras"),
    (layer("Dense", quantization_config={"a": 1}), VECTOR, ((4, 2), (2,)), "it is quantized by Keras"),
    (layer("Dense"), VECTOR, ((4, 2, 2), (2,)), "a kernel of shape [4, 2, 2]"),
    (layer("Activation", activation="nonsense"), VECTOR, (), "activation 'nonsense' is not supported"),
    (layer("Activation", activation="glu"), (3,), (), "halves of 3 elements"),
    (layer("LeakyReLU", alpha="x"), VECTOR, (), "alpha is 'x', a number was expected"),
    (layer("Softmax", axis=2), VECTOR, (), "axis 2 of a tensor of rank 2"),
    (layer("Softmax", axis=-3), VECTOR, (), "axis -3 of a tensor of rank 2"),
    (layer("Conv2D", padding="causes"), IMAGE, ((3, 3, 3, 2), (2,)), "padding 'causes'"),
    (layer("Conv2D", strides=0), IMAGE, ((3, 3, 3, 2), (2,)), "strides [0, 0], dilations [1, 1]"),
    (layer("Conv2D", dilation_rate=[1, 0]), IMAGE, ((3, 3, 3, 2), (2,)), "strides [1, 1], dilations [1, 0]"),
    (layer("Conv2D", strides=[1]), IMAGE, ((3, 3, 3, 2), (2,)), "strides is [1], for 2 axes"),
    (layer("Conv2D"), IMAGE, ((3, 3, 3), (2,)), "its kernel has shape [3, 3, 3]"),
    (layer("Conv1D"), ROWS, ((3, 4), (2,)), "its kernel has shape [3, 4]"),
    (
        layer("Conv1D", data_format="channels_first"),
        VECTOR,
        ((3, 3, 2), (2,)),
        "it is given a tensor of rank 2; it needs a batch, channels and spatial axes",
    ),
    (layer("BatchNormalization"), VECTOR, ((3,),) * 4, "its weights do not fit 4 channels"),
    (layer("BatchNormalization", axis=[2]), VECTOR, ((4,),) * 4, "axis 2 of a tensor of rank 2"),
    (layer("MaxPooling2D"), ROWS, (), "it is given 1 spatial axes, 2 were expected"),
    (layer("MaxPooling2D", pool_size=0), IMAGE, (), "a pool of [0, 0]"),
    (layer("MaxPooling2D", pool_size=[2]), IMAGE, (), "pool_size is [2], for 2 axes"),
    (layer("GlobalAveragePooling2D"), ROWS, (), "it is given a tensor of rank 3, expected 4"),
    (
        layer("AdaptiveMaxPooling2D", output_size=3),
        IMAGE,
        (),
        "[8, 8] pooled to [3, 3], which does not divide",
    ),
    (layer("Reshape", target_shape=[3]), VECTOR, (), "4 elements in a shape of [3]"),
    (layer("Reshape", target_shape=[-1, -1]), VECTOR, (), "a new shape of [-1, -1]"),
    (layer("Reshape", target_shape=[-2]), VECTOR, (), "a new shape of [-2]"),
    (layer("Permute", dims=[1, 1]), ROWS, (), "dims [1, 1] of a tensor of rank 3"),
    (layer("RepeatVector", n=0), VECTOR, (), "0 repetitions of a tensor of rank 2"),
    (layer("RepeatVector", n=2), ROWS, (), "2 repetitions of a tensor of rank 3"),
    (layer("RepeatVector", n="x"), VECTOR, (), "n is 'x', an integer was expected"),
    (layer("Cropping1D", cropping=[-1, 0]), ROWS, (), "cropping is [[-1, 0]]"),
    (layer("Cropping2D"), ROWS, (), "it is given a tensor of rank 3"),
    (layer("ZeroPadding2D", padding=[1, 2, 3]), IMAGE, (), "padding is [1, 2, 3]"),
    (layer("ZeroPadding2D"), ROWS, (), "it is given a tensor of rank 3"),
    (layer("UpSampling2D", interpolation="lanczos3"), IMAGE, (), "interpolation 'lanczos3' to [16, 16]"),
    (layer("Resizing", height=0, width=4), IMAGE, (), "interpolation 'nearest' to [0, 4]"),
    (layer("Resizing", height=4, width=4, antialias=True), IMAGE, (), "antialias; resize images before"),
    (layer("Resizing", height=4, width=4), (5,), (), "it is given a tensor of rank 2"),
    (
        layer("CenterCrop", height=9, width=4),
        IMAGE,
        (),
        "[1, 8, 8, 3] cropped to [9, 4]; images must be as large",
    ),
    (layer("CenterCrop", height=0, width=4), IMAGE, (), "[1, 8, 8, 3] cropped to [0, 4]"),
    (layer("Add"), VECTOR, (), "it joins 1 tensors"),
    (layer("Dot", axes=1), VECTOR, (), "it multiplies 1 tensors"),
    (layer("Attention"), ROWS, (), "it is given 1 tensors; a query and a value were expected"),
    (layer("LSTM", time_major=True, **CELL), ROWS, CELL_WEIGHTS, "it wants the time before the batch"),
    (layer("LSTM", **CELL), IMAGE, CELL_WEIGHTS, "it is given a tensor of rank 4, [batch, time, features]"),
    (layer("LSTM", units=3), ROWS, CELL_WEIGHTS, "its recurrent_kernel has shape [2, 8]"),
    (
        layer("LSTM", activation="exponential", **CELL),
        ROWS,
        CELL_WEIGHTS,
        "activation 'exponential' in a cell",
    ),
    (
        layer("Bidirectional", layer=layer("Dense", units=2)),
        ROWS,
        ((4, 2), (2,)) * 2,
        "it wraps Dense; use LSTM, GRU or SimpleRNN",
    ),
    (
        layer("Bidirectional", merge_mode="max", layer=layer("LSTM", **CELL)),
        ROWS,
        CELL_WEIGHTS * 2,
        "merge_mode 'max'",
    ),
    (
        layer(
            "Bidirectional",
            layer=layer("LSTM", return_sequences=True, **CELL),
            backward_layer=layer("LSTM", go_backwards=True, **CELL),
        ),
        ROWS,
        CELL_WEIGHTS * 2,
        "its two layers give different things",
    ),
    (layer("RNN", cell=layer("ConvCell")), ROWS, (), "cells ['ConvCell'] are not supported"),
)


@pytest.mark.parametrize(("layer", "shape", "weights", "problem"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_a_layer_cannot_represent_is_refused(
    layer: Config, shape: tuple[int, ...], weights: tuple[Any, ...], problem: str, tmp_path: Path
) -> None:
    file = write_model(tmp_path / "model.h5", layer, shape, weights)
    with pytest.raises(MaceError, match=re.escape(problem)) as error:
        load(file)
    assert f"model.h5: layer 'layer' ({layer['class_name']})" in str(error.value)
    assert "; " in str(error.value), "it must say what to do"


ACCEPTED: tuple[tuple[Config, tuple[int, ...], tuple[Any, ...], tuple[int, ...]], ...] = (
    (layer("Softmax", axis=-2), VECTOR, (), (1, 4)),
    (layer("Activation", activation="glu"), (2,), (), (1, 1)),
    (layer("AdaptiveMaxPooling2D", output_size=[8, 1]), IMAGE, (), (1, 8, 1, 3)),
    (layer("RepeatVector", n=1), VECTOR, (), (1, 1, 4)),
    (layer("Cropping1D", cropping=[0, 4]), ROWS, (), (1, 1, 4)),
    (layer("ZeroPadding2D", padding=[[0, 1], [2, 0]]), IMAGE, (), (1, 9, 10, 3)),
    (layer("CenterCrop", height=8, width=1), IMAGE, (), (1, 8, 1, 3)),
    (layer("Resizing", height=1, width=1), IMAGE, (), (1, 1, 1, 3)),
    (layer("LSTM", **CELL), (1, 4), CELL_WEIGHTS, (1, 2)),
    (layer("Reshape", target_shape=[-1]), VECTOR, (), (1, 4)),
)


@pytest.mark.parametrize(("layer", "shape", "weights", "result"), ACCEPTED, ids=lambda v: str(v)[:40])
def test_the_last_value_within_a_limit_is_taken(
    layer: Config, shape: tuple[int, ...], weights: tuple[Any, ...], result: tuple[int, ...], tmp_path: Path
) -> None:
    graph = load(write_model(tmp_path / "model.h5", layer, shape, weights))
    assert graph.tensors[graph.outputs[0]].shape == result


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"batch_input_shape": [None, 4], "dtype": "string"}, "input 'x' is text, which is not supported"),
        ({"batch_input_shape": [None, 4], "sparse": True}, "input 'x' is sparse or ragged"),
        ({"batch_input_shape": [None, 4], "ragged": True}, "input 'x' is sparse or ragged"),
        ({"batch_input_shape": [None, None, 4]}, "input 'x' leaves dimension 1 open"),
        ({"batch_input_shape": [None, 1 << 16, (1 << 16) + 1]}, "input 'x' has a shape of [1, 65536, 65537]"),
        ({}, "input 'x' has an unknown rank"),
        ({"batch_input_shape": [None, 0]}, "input 'x' has an unknown rank"),
    ],
)
def test_an_input_that_cannot_be_read_is_refused(config: Config, problem: str, tmp_path: Path) -> None:
    layers = [layer("InputLayer", name="x", **config), layer("ReLU", name="relu")]
    model = {"class_name": "Sequential", "config": {"layers": layers}}
    with pytest.raises(MaceError, match=re.escape(problem)):
        load(old_file(tmp_path / "model.h5", model, {"x": {}, "relu": {}}))
