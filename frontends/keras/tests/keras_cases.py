"""Models of one layer or operation, as Keras makes them: what the layers' tests are made of."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mace_core.deployment import Model, Port
from mace_core.ir import Array, Graph, Shape
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.states import assign_states
from mace_core.testing.requirements import require
from mace_core.verify import verify
from mace_frontend_keras import Keras

Make = Callable[[Any], Callable[..., Any]]
"""keras -> the layer, or a function of the input tensors."""


@dataclass(frozen=True)
class Case:
    """What is computed of inputs of these shapes, the batch left out.

    low, high: of random inputs.
    """

    name: str
    make: Make
    shapes: Sequence[Shape]
    dtype: str = "float32"
    low: float = -2.0
    high: float = 2.0
    tolerance: float = 1e-5


@cache
def keras() -> Any:
    """Keras itself, imported once and without its notes; a test without it is skipped."""
    require(None if find_spec("keras") else "keras is not installed: pip install keras tensorflow-cpu")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what its backend warns of at import is nobody's concern here
        import keras as found
    return found


def model_of(case: Case) -> Any:
    """The case as a functional model with random weights."""
    k = keras()
    # Names start anew; collecting garbage takes longer than all the rest.
    k.utils.clear_session(free_memory=False)
    inputs = [k.Input(shape, dtype=case.dtype, name=f"in{i}") for i, shape in enumerate(case.shapes)]
    made = k.Model(inputs, case.make(k)(*inputs))
    randomise(made)
    return made


def randomise(model: Any, seed: int = 1) -> None:
    """Give every weight random numbers: those that Keras starts with hide what is mixed up."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        if weight.path.endswith("count"):
            continue
        positive = weight.path.endswith(("variance", "gamma"))
        weight.assign(
            rng.uniform(0.5 if positive else -0.6, 1.5 if positive else 0.6, weight.shape).astype(np.float32)
        )
    for layer in model._flatten_layers():
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()


def arrays(case: Case, batch: int = 1) -> dict[str, Array]:
    """Random inputs by name."""
    rng = np.random.default_rng(3)
    kind = np.dtype(case.dtype)
    results = [rng.uniform(case.low, case.high, (batch, *shape)) for shape in case.shapes]
    return {f"in{i}": (a if kind.kind == "f" else np.floor(a)).astype(kind) for i, a in enumerate(results)}


def saved(model: Any, file: Path) -> Path:
    """Write a model in the format of the suffix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of the older format
        model.save(file)
    return file


def load(file: Path, **stated: Any) -> Graph:
    """The graph that the frontend makes of a file, with the states that its sessions keep."""
    model = Model("case", (file,), **stated)
    return verify(assign_states(verify(Keras().load((file,), model, core_ops())), model))


def computed(model: Any, given: Mapping[str, Array]) -> list[Array]:
    """What Keras computes, its outputs in order."""
    k = keras()
    tensors = [k.ops.convert_to_tensor(a) for a in given.values()]
    result = model(tensors[0] if len(tensors) == 1 else tensors, training=False)
    return [k.ops.convert_to_numpy(t) for t in k.tree.flatten(result)]


def check(case: Case, folder: Path, suffix: str = ".keras", batch: int = 1) -> None:
    """Assert that Keras computes the same as the graph."""
    model = model_of(case)
    given = arrays(case, batch)
    ports = tuple(Port(name, a.shape) for name, a in given.items()) if batch > 1 else ()
    graph = load(saved(model, folder / f"case{suffix}"), inputs=ports)
    same(graph, given, computed(model, given), case.tolerance)


def same(graph: Graph, given: Mapping[str, Array], wanted: Sequence[Array], tolerance: float = 1e-5) -> None:
    """Assert that a graph computes these outputs."""
    values = execute(graph, given)
    assert len(graph.outputs) == len(wanted)
    for name, expected in zip(graph.outputs, wanted, strict=True):
        assert values[name].shape == expected.shape, (
            f"{name}: {values[name].shape}, expected {expected.shape}"
        )
        np.testing.assert_allclose(values[name], expected, rtol=tolerance, atol=tolerance, err_msg=name)


def stacked(*layers: Any, shape: tuple[int, ...] = (5, 4), dtype: str = "float32") -> Any:
    """A model of these layers one after another, its input called x."""
    k = keras()
    return k.Sequential([k.layers.Input(shape, dtype=dtype, name="x"), *layers])


def old_file(
    file: Path, model: Mapping[str, Any], weights: Mapping[str, Mapping[str, Array]], version: str = "2.9.0"
) -> Path:
    """Write a model as Keras 2 did: its configuration and, by layer and name, its weights."""
    with h5py.File(file, "w") as made:
        made.attrs["model_config"], made.attrs["keras_version"] = json.dumps(model), version
        group = made.create_group("model_weights")
        group.attrs["layer_names"] = [n.encode() for n in weights]
        for layer, arrays in weights.items():
            held = group.create_group(layer)
            held.attrs["weight_names"] = [n.encode() for n in arrays]
            for name, array in arrays.items():
                held[name] = array
    return file


def random(*shape: int, seed: int = 0) -> Array:
    """Normally distributed floats."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def given(graph: Graph) -> dict[str, Array]:
    """Random inputs of a graph by name."""
    return {n: random(*graph.tensors[n].shape, seed=i) for i, n in enumerate(graph.inputs)}
