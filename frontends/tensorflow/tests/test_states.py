"""Variables that a run changes: states of the session, of the application, or begun anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.run.reference import ReferenceSession, execute
from mace_core.states import assign_states
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


def model(
    folder: Path, inputs: list[str] | None = None, outputs: list[str] | None = None, **keys: object
) -> Model:
    ports = [tuple(Port(name) for name in names or ()) for names in (inputs, outputs)]
    return Model("filter", (folder,), inputs=ports[0], outputs=ports[1], keys=keys)


def load(folder: Path, chosen: Model) -> Graph:
    """The graph of a model with the states that its sessions keep."""
    return verify(assign_states(verify(TensorFlow().load((folder,), chosen, core_ops())), chosen))


def test_variables_equal_tensorflow_over_60_runs_and_again_after_a_reset(folder: Path) -> None:
    graph = load(folder, model(folder))
    assert (graph.port_inputs, set(graph.port_outputs)) == (("x",), {"y", "n"})
    assert sorted(state.start.tolist() for state in graph.states if state.start.ndim) == [[0.5, -0.5]]
    session = ReferenceSession(graph)
    for _ in range(2):
        rng = np.random.default_rng(0)
        run = TensorFlow().recurrent((folder,), model(folder))
        assert run is not None
        for _ in range(60):
            x = {"x": rng.standard_normal(2).astype(np.float32)}
            values, expected = session.run(x), run(x)
            for name in ("y", "n"):
                np.testing.assert_allclose(values[name], expected[name], rtol=1e-5, atol=1e-6)
        assert 60.0 in [float(values[state.output]) for state in graph.states if not state.start.ndim]
        session.reset()


def test_the_application_carries_the_states_that_the_deployment_file_names(folder: Path) -> None:
    names = [state.input for state in load(folder, model(folder)).states]
    carried = load(folder, model(folder, ["x", names[0]], ["y", f"{names[0]}.next"]))
    assert carried.port_inputs == ("x", names[0])
    assert carried.port_outputs == ("y", f"{names[0]}.next")
    everything = load(folder, model(folder, states="application"))
    assert everything.port_inputs == ("x", *names)
    assert not everything.states


def test_variables_begin_anew_where_the_deployment_file_says_so(folder: Path) -> None:
    graph = load(folder, model(folder, states="reset"))
    assert graph.inputs == ("x",)
    run = TensorFlow().reference((folder,), model(folder))
    assert run is not None
    for seed in range(2):
        x = {"x": np.random.default_rng(seed).standard_normal(2).astype(np.float32)}
        values, expected = execute(graph, x), run(x)
        np.testing.assert_allclose(values["y"], expected["y"], rtol=1e-6)
        assert values["n"] == expected["n"] == 1.5


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
    with pytest.raises(
        MaceError,
        match=r"lasts from run to run, and a variable is changed inside its branches or loop; export .*\n    states: reset",
    ):
        TensorFlow().load((tmp_path / "saved",), model(tmp_path / "saved"), core_ops())


def test_batch_normalization_that_is_trained_further_keeps_no_state(
    tmp_path: Path, saved_network: Callable[..., Path]
) -> None:
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


def test_what_reads_a_variable_after_its_assignment_reads_the_new_value(tmp_path: Path, tf: Any) -> None:
    class Table(tf.Module):
        def __init__(self) -> None:
            self.table = tf.Variable([[0.5, 1.0], [2.0, 3.0]])

        @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, name="x")])
        def serve(self, x: Any) -> dict[str, Any]:
            before = tf.gather(self.table, [1])
            self.table.assign_add(tf.stack([x, x * 2]))
            rows, pairs = tf.gather(self.table, [1, 0]), tf.gather_nd(self.table, [[1, 0]])
            chosen = tf.cond(x[0] > 0, lambda: self.table * 2.0, lambda: self.table + 1.0)
            add = lambda i, sums: (i + 1, sums + tf.gather(self.table, i % 2))  # noqa: E731
            _, sums = tf.while_loop(lambda i, _: i < 3, add, [tf.constant(0), x])
            return {"before": before, "rows": rows, "pairs": pairs, "chosen": chosen, "sums": sums}

    module = Table()
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures=module.serve)
    folder = tmp_path / "saved"
    session = ReferenceSession(load(folder, model(folder)))
    run = TensorFlow().recurrent((folder,), model(folder))
    assert run is not None
    for first in (0.75, -1.5):
        x = {"x": np.array([first, 0.25], np.float32)}
        values, expected = session.run(x), run(x)
        for name, array in expected.items():
            np.testing.assert_allclose(values[name], array, rtol=1e-6, err_msg=name)
