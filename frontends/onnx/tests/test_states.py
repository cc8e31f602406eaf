"""States of ONNX models: inputs and outputs that the deployment file pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mace_core.deployment import Model, load_deployment
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.pipeline import read
from mace_core.registry import Registry
from mace_core.run.framework import Framework, FrameworkSession
from mace_core.run.reference import ReferenceSession
from mace_core.states import assign_states
from mace_core.verify import verify

CHANNELS, LENGTH, TAPS = 3, 4, 3
RUNS = 60


def stream(file: Path, start: float | None = None) -> Path:
    """Write a causal convolution over a signal in pieces: the last samples of a piece stand before the next one.

    start: the value of the cache that the file holds for runs where nobody gives another.
    """
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((CHANNELS, CHANNELS, 1, TAPS)).astype(np.float32) / 4
    held = [
        numpy_helper.from_array(weights, "w"),
        numpy_helper.from_array(np.array([-TAPS + 1], np.int64), "first"),
    ]
    held += [
        numpy_helper.from_array(np.array([1 << 40], np.int64), "end"),
        numpy_helper.from_array(np.array([3], np.int64), "axis"),
    ]
    cache = (1, CHANNELS, 1, TAPS - 1)
    if start is not None:
        held.append(numpy_helper.from_array(np.full(cache, start, np.float32), "cache"))
    nodes = [
        helper.make_node("Concat", ["cache", "x"], ["joined"], axis=3),
        helper.make_node("Conv", ["joined", "w"], ["conv"], kernel_shape=[1, TAPS]),
        helper.make_node("Relu", ["conv"], ["y"]),
        helper.make_node("Slice", ["joined", "first", "end", "axis"], ["cache_out"]),
    ]
    ends = {"x": (1, CHANNELS, 1, LENGTH), "cache": cache, "y": (1, CHANNELS, 1, LENGTH), "cache_out": cache}
    described = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends.items()
    }
    inputs, outputs = [described["x"], described["cache"]], [described["y"], described["cache_out"]]
    graph = helper.make_graph(nodes, "stream", inputs, outputs, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(file))
    return file


def deployed(file: Path, *lines: str) -> Model:
    """The model of a deployment file with these lines beside `states`."""
    text = [
        "library_name: streams",
        "models:",
        "  stream:",
        f"    model_file_path: {file}",
        "    states: {cache: cache_out}",
    ]
    path = file.with_suffix(".yml")
    path.write_text("\n".join([*text, *(f"    {line}" for line in lines)]) + "\n")
    return load_deployment(path).models[0]


def loaded(model: Model) -> Graph:
    return verify(assign_states(verify(read(model, Registry.load())), model))


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("input_tensors: [x]", "output_tensors: [y]"),
        ("input_tensors: [cache, x]", "input_data_formats: [NHWC, NHWC]", "output_tensors: [cache_out, y]"),
    ],
    ids=["nothing else", "the other ports", "all ports"],
)
def test_paired_states_equal_the_framework_over_60_runs_and_again_after_a_reset(
    lines: tuple[str, ...], tmp_path: Path
) -> None:
    model = deployed(stream(tmp_path / "stream.onnx"), *lines)
    framework = FrameworkSession(Framework.of(model, Registry.load()))
    session = ReferenceSession(loaded(model))
    assert (session.graph.port_inputs, session.graph.port_outputs) == (("x",), ("y",))
    rng = np.random.default_rng(1)
    for _ in range(2):
        for _ in range(RUNS):
            x = {"x": rng.standard_normal((1, CHANNELS, 1, LENGTH)).astype(np.float32)}
            inputs = {"x": x["x"].transpose(0, 2, 3, 1)} if "NHWC" in str(lines) else x
            np.testing.assert_allclose(session.run(x)["y"], framework.run(inputs)["y"], rtol=1e-5, atol=1e-5)
        session.reset()
        framework.reset()


def test_a_state_begins_with_the_value_that_the_file_holds(tmp_path: Path) -> None:
    model = deployed(stream(tmp_path / "stream.onnx", start=0.5), "input_tensors: [x, cache]")
    graph = loaded(model)
    (state,) = graph.states
    assert np.unique(state.start).tolist() == [0.5]
    framework = FrameworkSession(Framework.of(model, Registry.load()))
    x = {"x": np.ones((1, CHANNELS, 1, LENGTH), np.float32)}
    session = ReferenceSession(graph)
    for _ in range(3):
        np.testing.assert_allclose(session.run(x)["y"], framework.run(x)["y"], rtol=1e-5, atol=1e-5)


def test_pairs_that_are_no_ports_are_refused(tmp_path: Path) -> None:
    file = stream(tmp_path / "stream.onnx")
    model = deployed(file)
    with pytest.raises(MaceError, match="'memory' is no input of the model; name one of x, cache"):
        read(Model("stream", (file,), keys={"states": {"memory": "cache_out"}}), Registry.load())
    with pytest.raises(MaceError, match=r"cache:f32\[1, 3, 1, 2\] cannot become y:f32\[1, 3, 1, 4\]"):
        read(Model("stream", model.files, keys={"states": {"cache": "y"}}), Registry.load())
