"""Every frontend tells the names of a model's own inputs and outputs, in the order in which it reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from manifest import MODELS

from mace_core.deployment import Model
from mace_core.pipeline import read
from mace_core.registry import Registry
from mace_core.testing.requirements import require

FILES = (
    ("onnx2c_mnist/model.onnx",),
    ("mlperf_ic/ic_int8.tflite",),
    ("mlperf_ic/ic_frozen.pb",),
    ("ultraface_rfb/*.prototxt", "ultraface_rfb/*.caffemodel"),
)


@pytest.mark.parametrize("patterns", FILES, ids=lambda patterns: patterns[0])
def test_names_are_those_of_the_graph(patterns: tuple[str, ...]) -> None:
    files = tuple(path for pattern in patterns for path in sorted(MODELS.glob(pattern))[:1])
    require(None if len(files) == len(patterns) else f"{MODELS}/{patterns[0]} is not there")
    registry, model = Registry.load(), Model("m", files)
    names = registry.frontend(model).port_names(files)
    graph = read(model, registry)
    assert names == (graph.inputs, graph.outputs)


@pytest.mark.exhaustive
def test_a_keras_model(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    file = tmp_path / "m.keras"
    keras.Model([a, b], keras.layers.Add(name="sum")([b, a])).save(file)
    registry, model = Registry.load(), Model("m", (file,))
    graph = read(model, registry)
    assert (
        registry.frontend(model).port_names((file,))
        == (graph.inputs, graph.outputs)
        == (("a", "b"), ("sum",))
    )
