"""Outputs that no node computes for themselves: an input, a constant, a view of either, one that is listed twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from mace_core.deployment import load_deployment
from mace_core.generation import generate
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.job import Job
from mace_core.registry import Registry
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.compile import program
from mace_core.run.runners import Native
from mace_core.run.validate import validate
from mace_core.run.validation_job import ValidationJob
from mace_core.testing.compiled import compile_graphs, host
from mace_target_cpu import Cpu

W = np.arange(6, dtype=np.float32).reshape(2, 3) + 1


def graph(outputs: tuple[str, ...]) -> Graph:
    """Inputs x and unread, a constant w, views of all, y = relu(x), and a view of y."""
    builder = Builder("outputs")
    x, unread = builder.input("x", DType.F32, (2, 3)), builder.input("unread", DType.F32, (3,))
    w = builder.weight("w", W)
    builder.add("Relu", [x], outputs=["y"])
    for source, name in ((x, "x_view"), ("y", "y_view"), (unread, "unread_view")):
        builder.add("Reshape", [source], {"shape": (builder.tensors[source].elements,)}, outputs=[name])
    assert w == "w"
    result = builder.finish(["x", "unread", "y", "x_view", "y_view", "unread_view"])
    return Graph(
        result.name,
        result.nodes,
        {**result.tensors, "w": builder.tensors["w"]},
        {"w": builder.weights["w"]},
        result.inputs,
        outputs,
    )


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "outputs",
    [
        ("y", "y"),
        ("x", "y"),
        ("y", "x", "x"),
        ("unread", "unread_view", "x_view", "y_view", "y"),
        ("w", "w", "y"),
        ("y_view", "y", "y_view"),
        ("x",),
    ],
)
def test_every_output_is_written(outputs: tuple[str, ...], tmp_path: Path) -> None:
    model = compile_graphs(Cpu(), [graph(outputs)], tmp_path)["outputs"]
    x, unread = np.array([[-1, 2, -3], [4, -5, 6]], np.float32), np.array([7, 8, 9], np.float32)
    y = np.maximum(x, 0)
    expected = {
        "x": x,
        "unread": unread,
        "y": y,
        "x_view": x.ravel(),
        "y_view": y.ravel(),
        "unread_view": unread,
        "w": W,
    }
    assert [t.name for t in model.outputs] == list(outputs)
    actual = model.run({"x": x, "unread": unread})
    assert set(actual) == set(outputs)
    # Of two outputs of one name the last counts, which was the one that nobody wrote.
    for name, array in actual.items():
        np.testing.assert_array_equal(array, expected[name].reshape(array.shape), err_msg=name)


@pytest.mark.slow
def test_a_library_and_its_validation(tmp_path: Path) -> None:
    """A file whose outputs are an input, a constant, a result and a view of the input."""
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "unread")]
    outputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [2, 3]), ("w", [2, 3]), ("y", [2, 3]), ("v", [6]))
    ]
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Reshape", ["x", "shape"], ["v"])]
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(np.array([6], np.int64), "shape")]
    model = helper.make_model(helper.make_graph(nodes, "outputs", inputs, outputs, weights), ir_version=8)
    model.opset_import[0].version = 13
    onnx.save(model, tmp_path / "outputs.onnx")
    file = tmp_path / "outputs.yml"
    file.write_text(
        yaml.safe_dump(
            {"library_name": "outputs", "models": {"outputs": {"model_file_path": "outputs.onnx"}}}
        )
    )
    registry = Registry.load()
    deployment = load_deployment(file)
    result = generate(Job(deployment, registry.select("host")[0]), registry)
    programs = tmp_path / "builds" / "bin" / "host"
    for name in ("mace_run", "mace_benchmark"):
        program(name, result.sources, host(), programs, ("-O0",))
    built = BuiltLibrary(programs, Native(), result.report)
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(1, 2, 3)
    actual = built.run("outputs", {"x": x, "unread": x})
    expected = {"x": x, "w": W[None], "y": np.maximum(x, 0), "v": x.reshape(1, 6)}
    assert set(actual) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)
    assert validate(ValidationJob(built, deployment.models[0], registry)).passed
