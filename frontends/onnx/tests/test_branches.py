"""Branches that inputs decide: fixed by the deployment file, read only where they are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from mace_core.deployment import Model, Port, load_deployment
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.pipeline import load as load_model
from mace_core.registry import Registry
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx

RATES = """<ir_version: 8, opset_import: ["" : 13]> g (float[2,3] x, int64 rate, float[2,3] state) => (float[a,b] y) {
  wide = Constant<value=int64 {16000}>()
  is_wide = Equal(rate, wide)
  before = Thing(state)
  y = If (is_wide) <
    then_branch = t () => (float[2,3] a) { n = Neg(x) z = Constant<value=float {0}>() s = ReduceSum<keepdims=0>(z) b = Greater(z, s)
      nb = Not(b) zero = Cast<to=9>(z) c = Not(zero)
      a = If (c) < then_branch = tt () => (float[2,3] p) { p = Exp(n) }, else_branch = ee () => (float[2,3] q) { q = Other(n) } > },
    else_branch = e () => (float[2,3] b) { b = Missing(before) } >
}"""


def save(folder: Path, text: str = RATES) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


def load(path: Path, values: dict[str, Any], inputs: tuple[Port, ...] = ()) -> Graph:
    return verify(
        Onnx().load((path,), Model("m", (path,), inputs=inputs, keys={"input_values": values}), core_ops())
    )


def fault(path: Path, values: dict[str, Any], inputs: tuple[Port, ...] = ()) -> str:
    with pytest.raises(MaceError) as error:
        load(path, values, inputs)
    return str(error.value)


def test_a_branch_that_is_not_taken_is_not_read(tmp_path: Path) -> None:
    graph = load(save(tmp_path), {"rate": 16000})
    assert [n.op.name for n in graph.nodes] == ["Neg", "Exp"]
    assert "rate" not in graph.inputs
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(execute(graph, {"x": x, "state": x})["y"], np.exp(-x), rtol=1e-6)


def test_faults_of_the_taken_branch_and_of_what_it_reads_are_told(tmp_path: Path) -> None:
    text = fault(save(tmp_path), {"rate": 8000})
    assert "ai.onnx::Thing" in text
    assert "ai.onnx::Other" not in text
    whole = fault(save(tmp_path), {})
    assert "ai.onnx::Thing" in whole


VALUES = '<ir_version: 8, opset_import: ["" : 13]> g (float[N,2] x, float[N,2] w, int32[3] i, bool flag) => (float[a,b] y) '
BODY = "{ f = Cast<to=1>(i) s = ReduceSum<keepdims=0>(f) t = Cast<to=1>(flag) a = Mul(x, w) b = Mul(a, s) y = Add(b, t) }"


def test_values_take_the_shape_and_type_of_their_inputs(tmp_path: Path) -> None:
    graph = load(save(tmp_path, VALUES + BODY), {"w": [1, 2.5], "i": 2, "flag": True})
    assert graph.inputs == ("x",)
    assert execute(graph, {"x": np.ones((1, 2), np.float32)})["y"].tolist() == [[7, 16]]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rat": 1}, "no tensor 'rat' for the deployment file's input; did you mean 'rate'?"),
        ({"rate": 0.5}, "input_values: 'rate': 0.5 is no value of int64"),
        ({"rate": 1 << 70}, "is no value of int64"),
        ({"x": [1, 2]}, "input_values: 'x': 2 numbers for shape [2,3]"),
        ({"x": [[1, 2]]}, "is no value of float32"),
    ],
)
def test_values_that_do_not_fit(values: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert said in fault(save(tmp_path), values)


def test_an_input_is_fixed_or_stated(tmp_path: Path) -> None:
    assert "is in input_values and in input_tensors" in fault(save(tmp_path), {"rate": 1}, (Port("rate"),))


def test_the_framework_gets_the_values_too(tmp_path: Path) -> None:
    path = save(tmp_path, VALUES + BODY)
    model = Model("m", (path,), keys={"input_values": {"w": [1, 2.5], "i": 2, "flag": True}})
    run = Onnx().reference((path,), model)
    assert run is not None
    assert run({"x": np.ones((1, 2), np.float32)})["y"].tolist() == [[7, 16]]


def test_from_the_deployment_file(tmp_path: Path) -> None:
    save(tmp_path, VALUES + BODY)
    text = "library_name: l\nmodels:\n  m:\n    model_file_path: m.onnx\n    input_values: {w: [1, 2.5], i: 2, flag: true}\n"
    (tmp_path / "d.yml").write_text(text)
    (model,) = load_deployment(tmp_path / "d.yml").models
    assert load_model(model, Registry.load()).inputs == ("x",)
    (tmp_path / "d.yml").write_text(text.replace("2.5]", "a]"))
    with pytest.raises(MaceError, match="write a number, true, false, or a list of them"):
        load_deployment(tmp_path / "d.yml")


def test_other_frontends_refuse_it(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(b"")
    model = Model("m", (tmp_path / "m.tflite",), "tflite", keys={"input_values": {"x": 1}})
    with pytest.raises(MaceError, match="the frontend 'tflite' does not support it"):
        load_model(model, Registry.load())


def test_a_branch_may_give_a_tensor_from_around_it(tmp_path: Path) -> None:
    """The branch has no node, so that only its list of outputs says that the tensor is needed."""
    text = """<ir_version: 8, opset_import: ["" : 13]> g (float[2,3] x, bool c) => (float[a,b] y) {
      a = Neg(x)
      y = If (c) < then_branch = t () => (float[2,3] o) { o = Exp(x) }, else_branch = e () => (float[2,3] a) { } >
    }"""
    graph = load(save(tmp_path, text), {})
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    for chosen, expected in ((True, np.exp(x)), (False, -x)):
        values = execute(graph, {"x": x, "c": np.asarray(chosen)})
        np.testing.assert_allclose(values["y"], expected, rtol=1e-6)


def test_a_name_inside_of_a_branch_hides_the_same_name_around_it(tmp_path: Path) -> None:
    """The outer node of that name is not needed, so that its unknown operator is no fault."""
    text = """<ir_version: 8, opset_import: ["" : 13]> g (float[2,3] x, bool c) => (float[a,b] y) {
      n = Unknown(x)
      y = If (c) < then_branch = t () => (float[2,3] o) { n = Neg(x) o = Exp(n) },
                   else_branch = e () => (float[2,3] p) { p = Neg(x) } >
    }"""
    assert "Exp" in [node.op.name for node in load(save(tmp_path, text), {}).nodes]
