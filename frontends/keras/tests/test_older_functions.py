"""Functions of TensorFlow in models of Keras 2, which are layers there, beside TensorFlow itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_cases import keras, load, old_file, random, same
from test_older_files import old_layer, old_model, source

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.json_types import Json, JsonValue

X = random(1, 3, 4)
PLACES = np.array([[-1, 0, 2, 5]], np.int32)
HUGE = np.array([[2**30 + 1, -(2**30), 2**31 - 1, -8, 7]], np.int32)
ENDS = np.array([[1e-7, 1e-4, -0.5, 80, -300, 1e6, 1e10]], np.float32)

Settings = Mapping[str, JsonValue | Array]
"""Arguments of a function by name."""


@dataclass(frozen=True)
class Function:
    """A function of TensorFlow, called with a tensor and settings.

    file: the settings as a file has them where they are tensors there.  parts: how many tensors it returns.
    """

    name: str
    settings: Settings = field(default_factory=dict)
    x: Array = field(default_factory=lambda: X)
    file: Json = field(default_factory=dict)
    parts: int = 1

    @property
    def label(self) -> str:
        return ",".join((self.name, *(f"{k}={v}" for k, v in self.settings.items())))

    def save(self, file: Path) -> Path:
        call = [["x", 0, 0, {**self.settings, **self.file, "name": None}]]
        head = source("x", *self.x.shape[1:])
        head["config"]["dtype"] = str(self.x.dtype)
        layers = [head, old_layer("TFOpLambda", "y", call, function=self.name)]
        results = [["y", 0, place] for place in range(self.parts)]
        return old_file(file, old_model("m", layers, [["x", 0, 0]], results), {})

    def expected(self) -> Any:
        keras()
        import tensorflow

        result: Callable[..., Any] = tensorflow
        for part in self.name.split("."):
            result = getattr(result, part)
        return result(self.x, **self.settings)


FUNCTIONS = (
    Function("math.cumsum"),
    Function("math.cumsum", {"axis": 1, "exclusive": True}),
    Function("math.cumsum", {"axis": -1, "reverse": True}),
    Function("math.argmax"),
    Function("math.argmax", {"axis": 1, "output_type": "int32"}),
    Function("math.argmin", {"axis": -1}),
    Function("gather", {"indices": [0]}),
    Function("gather", {"indices": [2, 0], "axis": 1}),
    Function("compat.v1.gather", {"indices": [2, 0], "axis": -1}),
    Function("nn.leaky_relu"),
    Function("nn.leaky_relu", {"alpha": 0.4}),
    Function("nn.gelu"),
    Function("nn.gelu", {"approximate": True}),
    Function("nn.silu", {"beta": 0.5}),
    Function("math.l2_normalize"),
    Function("math.l2_normalize", {"axis": -1}, 1e-6 * X),
    Function("math.l2_normalize", {"axis": -1, "epsilon": 0.1}, np.float32(0.1) * X),
    Function("one_hot", {"depth": 3}, PLACES),
    Function("one_hot", {"depth": 3, "on_value": 2.0, "off_value": -1.0, "axis": 1}, PLACES),
    Function("math.log1p", {}, ENDS[:, [0, 1, 2, 3, 5, 6]]),
    Function("math.expm1", {}, ENDS[:, :5]),
    Function("math.floordiv", {"y": 7}, HUGE),
    Function("split", {"num_or_size_splits": [1, -1], "axis": 1}, parts=2),
    Function("clip_by_value", {"clip_value_min": 1.0, "clip_value_max": 0.0}),
    Function("linalg.matmul", {"b": X, "adjoint_b": True}, X, {"b": ["x", 0, 0]}),
    Function("math.reduce_max", {"axis": [1], "keepdims": True}),
    Function("nn.softmax", {"axis": 1}),
)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.label)
def test_function(function: Function, tmp_path: Path) -> None:
    """The defaults of functions are TensorFlow's, not those of the operations of Keras 3."""
    expected = function.expected()
    parts = expected if isinstance(expected, list) else [expected]
    graph = load(function.save(tmp_path / "old.h5"))
    same(graph, {"x": function.x}, [np.asarray(part) for part in parts], 1e-6)
    assert [graph.tensors[name].dtype.numpy for name in graph.outputs] == [p.numpy().dtype for p in parts]


@pytest.mark.parametrize(
    ("function", "unread"),
    [
        (Function("gather", {"indices": [[1, 0]], "axis": 1, "batch_dims": 1}), "batch_dims"),
        (Function("math.reduce_sum", {"axis": 1, "of_the_future": 2}), "of_the_future"),
    ],
    ids=lambda f: f.label if isinstance(f, Function) else f,
)
def test_argument_that_nothing_reads_is_refused(function: Function, unread: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=f"layer 'y' .*: it is given {unread}"):
        load(function.save(tmp_path / "old.h5"))
