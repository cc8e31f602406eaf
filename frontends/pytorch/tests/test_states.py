"""Buffers that an exported program changes when it runs: states of the graph."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytorch_cases import load, model_of, saved, torch

from mace_core.errors import MaceError
from mace_core.run.reference import ReferenceSession
from mace_frontend_pytorch import PyTorch
from mace_frontend_pytorch.states import name_states, read_starts, write_starts

SHAPES = {"x": (1, 4)}


def cache_of_steps() -> Any:
    """A module that keeps its last three inputs, and how many it has seen."""
    t = torch()

    class Steps(t.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = t.nn.Parameter(t.arange(4.0))
            self.register_buffer("steps", t.full((1, 3, 4), 0.5))
            self.register_buffer("count", t.tensor(2.0), persistent=False)
            self.register_buffer("offset", t.ones(4))

        def forward(self, x):  # type: ignore[no-untyped-def]
            self.steps.copy_(t.cat([self.steps[:, 1:], x[:, None]], 1))
            self.count += 1
            return self.steps.mean(1) * self.weight + self.offset, self.count * 2

    return Steps()


@pytest.mark.slow
def test_states_equal_torch_from_run_to_run_and_after_a_reset(tmp_path: Path) -> None:
    file = saved(cache_of_steps(), SHAPES, tmp_path / "model.pt2")
    model = model_of(file, SHAPES)
    graph = load(model)
    assert graph.port_inputs == ("x",)
    assert graph.port_outputs == ("output0", "output1")
    starts = {state.input: state.start.tolist() for state in graph.states}
    assert starts == {"steps": np.full((1, 3, 4), 0.5).tolist(), "count": 2.0}
    session, rng = ReferenceSession(graph), np.random.default_rng(0)
    for _ in range(2):
        run, once = PyTorch().recurrent((file,), model), PyTorch().reference((file,), model)
        assert run is not None
        assert once is not None
        session.reset()
        for step in range(4):
            x = {"x": rng.standard_normal((1, 4)).astype(np.float32)}
            values, expected = session.run(x), run(x)
            for name in graph.port_outputs:
                np.testing.assert_allclose(values[name], expected[name], rtol=1e-6)
            assert (float(expected["output1"]), float(once(x)["output1"])) == (2.0 * (3 + step), 6.0)


@pytest.mark.slow
def test_a_model_with_states_of_unknown_shape_takes_it_from_the_deployment_file(tmp_path: Path) -> None:
    t = torch()

    class Total(t.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", t.zeros(3))

        def forward(self, x):  # type: ignore[no-untyped-def]
            self.total += x.sum(0)
            return self.total * x

    dynamic = {"x": {0: t.export.Dim("rows")}}
    file = saved(Total(), {"x": (5, 3)}, tmp_path / "model.pt2", dynamic)
    graph = load(model_of(file, {"x": (2, 3)}))
    session = ReferenceSession(graph)
    ones = {"x": np.ones((2, 3), np.float32)}
    assert [float(session.run(ones)["output"][0, 0]) for _ in range(3)] == [2.0, 4.0, 6.0]
    with pytest.raises(MaceError, match="input 'x' of a model that changes its buffers has an unknown shape"):
        load(model_of(file, {}))


def test_a_state_has_a_name_of_its_own() -> None:
    assert name_states(("cache", "x"), ("x", "x_", "output")) == ["cache", "x__"]
    assert name_states(("x", "x_"), ("x",)) == ["x_", "x__"]
    assert name_states(("cache",), ("x", "cache.next")) == ["cache_"]


def test_a_state_may_be_named_as_an_argument_of_numpy(tmp_path: Path) -> None:
    starts = {"file": np.ones(2, np.float32), "allow_pickle": np.zeros(3, np.int64), "arr_0": np.ones(())}
    write_starts(tmp_path / "model.onnx", starts)
    read = read_starts(tmp_path / "model.onnx")
    assert {name: array.tolist() for name, array in read.items()} == {
        name: array.tolist() for name, array in starts.items()
    }
