"""Variables that a run changes: refused with the lines that carry them, or begun anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_tensorflow import TensorFlow


def filter_of(tf: Any) -> Any:
    """A recurrent filter: its state moves towards what it is given, and a counter goes up by one."""

    class Filter(tf.Module):
        def __init__(self) -> None:
            self.state = tf.Variable([0.5, -0.5], name="state")
            self.count = tf.Variable(0.0, name="count")
            self.gain = tf.Variable(0.25, name="gain")

        @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, name="x")])
        def serve(self, x: Any) -> dict[str, Any]:
            before = self.state.read_value()
            self.state.assign(before + self.gain * (x - before))
            self.count.assign_add(1.0)
            return {"y": self.state * 2.0, "n": self.count + before[0]}

    return Filter()


@pytest.fixture
def folder(tmp_path: Path, tf: Any) -> Path:
    module = filter_of(tf)
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures=module.serve)
    return tmp_path / "saved"


def model(folder: Path, inputs: list[str] | None = None, outputs: list[str] | None = None, **keys: object) -> Model:
    ports = [tuple(Port(name) for name in names or ()) for names in (inputs, outputs)]
    return Model("filter", (folder,), inputs=ports[0], outputs=ports[1], keys=keys)


def test_states_carried_as_the_refusal_says_equal_tensorflow_over_60_runs(folder: Path) -> None:
    with pytest.raises(MaceError) as refusal:
        TensorFlow().load((folder,), model(folder), core_ops())
    text = str(refusal.value)
    assert "keeps 2 states from run to run" in text
    assert "(float32 [2], at first an array that the model file holds)" in text
    keys = yaml.safe_load(text.split("write\n")[1].split("\nor, ", maxsplit=1)[0])
    chosen = model(folder, keys["input_tensors"], keys["output_tensors"])
    graph = verify(TensorFlow().load((folder,), chosen, core_ops()))
    run, states = TensorFlow().recurrent((folder,), chosen), dict(TensorFlow().starts((folder,), chosen))
    assert run is not None
    assert sorted(state.tolist() for state in states.values() if state.ndim) == [[0.5, -0.5]]
    rng = np.random.default_rng(0)
    for _ in range(60):
        x = {"x": rng.standard_normal(2).astype(np.float32)}
        values, wanted = execute(graph, {**x, **states}), run(x)
        for name in ("y", "n"):
            np.testing.assert_allclose(values[name], wanted[name], rtol=1e-5, atol=1e-6)
        states = {name: values[f"{name}.next"] for name in states}
    assert 60.0 in [float(state) for state in states.values() if not state.ndim]


def test_variables_begin_anew_where_the_deployment_file_says_so(folder: Path) -> None:
    graph = verify(TensorFlow().load((folder,), model(folder, states="reset"), core_ops()))
    run = TensorFlow().reference((folder,), model(folder))
    assert run is not None
    for seed in range(2):
        x = {"x": np.random.default_rng(seed).standard_normal(2).astype(np.float32)}
        values, wanted = execute(graph, x), run(x)
        np.testing.assert_allclose(values["y"], wanted["y"], rtol=1e-6)
        assert values["n"] == wanted["n"] == 1.5


def test_a_variable_changed_in_a_loop_is_refused(tmp_path: Path, tf: Any) -> None:
    class Loop(tf.Module):
        def __init__(self) -> None:
            self.total = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
        def serve(self, x: Any) -> Any:
            for _ in tf.range(3):
                self.total.assign_add(x)
            return x + self.total

    module = Loop()
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures=module.serve)
    with pytest.raises(MaceError, match="cannot be an input, since it lies inside a branch, loop or function"):
        TensorFlow().load((tmp_path / "saved",), model(tmp_path / "saved"), core_ops())


def test_batch_normalization_that_is_trained_further_keeps_no_state(tmp_path: Path, saved_network: Callable[..., Path]) -> None:
    """What inference reads is not what training writes."""
    folder = saved_network(tmp_path)
    TensorFlow().load((folder,), model(folder), core_ops())


@pytest.fixture
def saved_network(tf: Any) -> Callable[..., Path]:
    def save(folder: Path) -> Path:
        class Norm(tf.Module):
            def __init__(self) -> None:
                self.mean = tf.Variable([0.0, 0.0])

            @tf.function(input_signature=[tf.TensorSpec([3, 2], tf.float32, name="x")])
            def serve(self, x: Any) -> Any:
                mean = tf.reduce_mean(x, 0)
                self.mean.assign_sub(0.1 * (self.mean - mean))
                return x - mean

        module = Norm()
        tf.saved_model.save(module, str(folder / "saved"), signatures=module.serve)
        return folder / "saved"

    return save
