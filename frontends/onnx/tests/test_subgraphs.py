"""Functions of a model, and the graphs that nodes hold, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx
from mace_frontend_onnx.importer import OnnxImporter

HEAD = '<ir_version: 9, opset_import: ["" : 17, "acme" : 1]> g'
DOMAIN = '<domain: "acme", opset_import: ["" : 17, "acme" : 1]>'
X = np.float32([-2, -0.5, 0.25, 3])


def write(path: Path, body: str, *functions: str, outputs: str = "float[N] y") -> None:
    text = f"{HEAD} (float[4] x) => ({outputs}) {{ {body} }} " + " ".join(f"{DOMAIN} {f}" for f in functions)
    model = onnx.parser.parse_model(text)
    for output in model.graph.output:
        output.ClearField("type")
    path.write_bytes(model.SerializeToString())


def load(path: Path) -> Graph:
    return verify(Onnx().load((path,), Model("m", (path,)), core_ops()))


LEAKY = "F <alpha> (a) => (b) { b = LeakyRelu<alpha: float = @alpha>(a) }"
BRANCH = (
    "H <alpha> (a) => (b) { z = Constant<value = float {0.0}>() s = ReduceSum<keepdims=0>(a) c = Greater(s, z) "
    "b = If(c)<then_branch = t () => (float[4] o) { o = LeakyRelu<alpha: float = @alpha>(a) }, "
    "else_branch = e () => (float[4] p) { p = Neg(a) }> }"
)
CASES = {
    "attribute": ("y = acme.F<alpha=0.3>(x)", (LEAKY,)),
    "attribute left out": ("y = acme.F(x)", (LEAKY,)),
    "attribute by default": (
        "y = acme.F(x)",
        ("F <alpha: float = 0.2> (a) => (b) { b = LeakyRelu<alpha: float = @alpha>(a) }",),
    ),
    "attribute instead of the default": (
        "y = acme.F<alpha=0.4>(x)",
        ("F <alpha: float = 0.2> (a) => (b) { b = LeakyRelu<alpha: float = @alpha>(a) }",),
    ),
    "attribute of another name": (
        "y = acme.F<slope=0.4>(x)",
        ("F <slope> (a) => (b) { b = LeakyRelu<alpha: float = @slope>(a) }",),
    ),
    "attribute in a branch": ("y = acme.H<alpha=0.3>(x)", (BRANCH,)),
    "function in a function": (
        "y = acme.G(x)",
        (LEAKY, "G (a) => (b) { c = acme.F<alpha=0.1>(a) d = Neg(c) b = acme.F<alpha=0.5>(d) }"),
    ),
    "called twice": ("a = acme.F<alpha=0.3>(x) y = acme.F<alpha=0.6>(a)", (LEAKY,)),
    "same names inside and around": (
        "b = Sin(x) a = acme.G(b) y = Add(a, b)",
        ("G (a) => (b) { c = Cos(a) b = Neg(c) }",),
    ),
    "constant inside": (
        "y = acme.G(x)",
        ("G (a) => (b) { c = Constant<value = float[4] {1.0,2.0,3.0,4.0}>() b = Mul(a, c) }",),
    ),
    "second input absent": ("y = acme.G(x)", ("G (a, l) => (b) { b = Clip(a, l) }",)),
    "input as output": ("y = acme.G(x)", ("G (a) => (b) { b = Identity(a) }",)),
}


@pytest.mark.parametrize("name", CASES)
def test_functions_compute_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write(path, CASES[name][0], *CASES[name][1])
    run = Onnx().reference((path,), Model("m", (path,)))
    assert run is not None
    for x in (X, -X):
        np.testing.assert_allclose(
            execute(load(path), {"x": x})["y"], run({"x": x})["y"], rtol=1e-5, atol=1e-6
        )


def test_a_function_of_the_model_comes_before_an_operator(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write(path, "y = acme.Sin(x)", "Sin (a) => (b) { b = Neg(a) }")
    np.testing.assert_array_equal(execute(load(path), {"x": X})["y"], -X)


def test_a_call_may_list_fewer_outputs(tmp_path: Path) -> None:
    """ONNX Runtime refuses that."""
    path = tmp_path / "m.onnx"
    write(path, "y = acme.G(x)", "G (a) => (b, c) { b = Neg(a) c = Cos(a) }")
    np.testing.assert_array_equal(execute(load(path), {"x": X})["y"], -X)


@pytest.mark.parametrize(("depth", "fits"), [(64, True), (65, False)])
def test_functions_nest_up_to_a_depth(depth: int, fits: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    calls = [f"F{i} (a) => (b) {{ b = acme.F{i + 1}(a) }}" for i in range(depth - 1)]
    write(path, "y = acme.F0(x)", *calls, f"F{depth - 1} (a) => (b) {{ b = Neg(a) }}")
    if fits:
        assert [node.op.name for node in load(path).nodes] == ["Neg"]
        return
    with pytest.raises(
        MaceError, match="functions call each other more than 64 deep; export the model again"
    ):
        load(path)


def test_names_inside_begin_with_that_of_the_call(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write(path, *("y = acme.G(x)", "G (a) => (b) { c = Cos(a) b = Neg(c) }"))
    cos, neg = load(path).nodes
    assert (cos.outputs, neg.outputs) == (("G_0/c",), ("y",))
    assert (cos.name, neg.name) == ("G_0/Cos_0", "G_0/Neg_1")
    assert cos.sources == neg.sources == ("G_0",)


@pytest.mark.parametrize(
    ("body", "functions", "message"),
    [
        ("y = acme.G(x)", ("G (a) => (b) { b = acme.Odd(a) }",), "operator acme::Odd is not supported"),
        (
            "y = acme.G(x)",
            ("G (a) => (b) { c = Unsqueeze(a, a) b = Sin(c) }",),
            "node 'G_0/Unsqueeze_0' (Unsqueeze): its axes (input 1) is computed at run time",
        ),
    ],
)
def test_faults_inside_are_told_with_their_place(
    body: str, functions: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    write(path, body, *functions)
    with pytest.raises(MaceError) as error:
        load(path)
    assert message in str(error.value)


@pytest.mark.parametrize(("calls", "fits"), [(4, True), (5, False)])
def test_nodes_of_all_functions_together_are_limited(
    calls: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = OnnxImporter.limits
    assert (limits.depth, limits.nodes) == (64, 10_000)
    monkeypatch.setattr(OnnxImporter, "limits", replace(limits, nodes=12))
    names = "xabcdefgh"[: calls + 1]
    steps = " ".join(f"{to} = acme.G({start})" for start, to in pairwise(names))
    path = tmp_path / "m.onnx"
    write(path, f"{steps} y = Neg({names[-1]})", "G (a) => (b) { c = Sin(a) d = Cos(c) b = Neg(d) }")
    if fits:
        assert len(load(path).nodes) == 3 * calls + 1
        return
    with pytest.raises(MaceError, match="its functions, branches and unrolled loops have more than 12 nodes"):
        load(path)
