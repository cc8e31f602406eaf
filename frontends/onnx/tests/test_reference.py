"""ONNX Runtime as the reference of a model, cut where the deployment file cuts it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

from mace_core.api import Reference
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_onnx import Onnx

X, V = normal(2, 3), normal(2, 3, seed=2)
BODY = "a = Sin(x) b = Mul(a, v) y = Cos(b)"


def reference(path: Path, inputs: str = "", outputs: str = "", **keys: object) -> Reference:
    RuntimeCase(BODY, "float[2,3] x, float[2,3] v").write(path)
    ports = [tuple(Port(name) for name in names.split()) for names in (inputs, outputs)]
    result = Onnx().reference((path,), Model("m", (path,), inputs=ports[0], outputs=ports[1], keys=keys))
    assert result is not None
    return result


A = np.sin(X)
CUTS: Mapping[tuple[str, str], dict[str, Array]] = {
    ("", ""): {"y": np.cos(A * V)},
    ("", "y"): {"y": np.cos(A * V)},
    ("x v", "y"): {"y": np.cos(A * V)},
    ("v x", ""): {"y": np.cos(A * V)},
    ("", "a"): {"a": A},
    ("", "y a"): {"y": np.cos(A * V), "a": A},
    ("x v", "b"): {"b": A * V},
    ("b", ""): {"y": np.cos(V)},
    ("b", "y"): {"y": np.cos(V)},
    ("a v", "b"): {"b": X * V},
    ("x", "a"): {"a": A},
}


@pytest.mark.parametrize(("inputs", "outputs"), CUTS)
def test_reference_is_cut_where_the_model_is(inputs: str, outputs: str, tmp_path: Path) -> None:
    values = {"x": X, "v": V, "a": X, "b": V}
    run = reference(tmp_path / "m.onnx", inputs, outputs)
    actual = run({name: values[name] for name in inputs.split() or ("x", "v")})
    assert list(actual) == list(CUTS[inputs, outputs])
    for name, expected in CUTS[inputs, outputs].items():
        np.testing.assert_allclose(actual[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("inputs", "outputs"), [("", ""), ("x", ""), ("", "b"), ("x", "b"), ("b", "y")])
def test_inputs_that_always_have_a_value_are_given_by_the_reference(
    inputs: str, outputs: str, tmp_path: Path
) -> None:
    run = reference(tmp_path / "m.onnx", inputs, outputs, input_values={"v": 2.0})
    actual = run({"b": X} if inputs == "b" else {"x": X})
    real = X if inputs == "b" else np.sin(X) * 2
    expected = real if outputs == "b" else np.cos(real)
    np.testing.assert_allclose(next(iter(actual.values())), expected, rtol=1e-5, atol=1e-6)


def test_what_onnx_runtime_refuses_is_said(tmp_path: Path) -> None:
    RuntimeCase("y = Odd(x)", "float[2] x").write(tmp_path / "m.onnx")
    with pytest.raises(MaceError, match="ONNX Runtime refuses it: ") as error:
        Onnx().reference((tmp_path / "m.onnx",), Model("m", (tmp_path / "m.onnx",)))
    assert str(error.value).endswith("; validate against stored data instead")


def test_quantized_products_that_share_a_zero_point_have_a_reference(tmp_path: Path) -> None:
    """ONNX Runtime 1.32 cannot make them precise and refuses the model."""
    weights = {name: (normal(6, 6, seed=seed) * 40).astype(np.int8) for seed, name in ((3, "w"), (4, "k"))}
    constants = {"s": np.float32(0.02), "z": np.uint8(128), "c": np.full(6, 0.01, np.float32), **weights}
    body = """
        q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z)
        v = DequantizeLinear<axis=1>(w, c, p) b = MatMul(a, v)
        r = QuantizeLinear(b, s, z) d = DequantizeLinear(r, s, z)
        u = DequantizeLinear<axis=1>(k, c, p) y = MatMul(d, u)"""
    path = tmp_path / "m.onnx"
    RuntimeCase(body, "float[2,6] x", {**constants, "p": np.zeros(6, np.int8)}).write(path)

    def quantize(values: Array) -> Array:
        return np.clip(np.round(values / 0.02), -128, 127) * 0.02

    # Inputs on the steps themselves are rounded one way only.
    x = np.round(normal(2, 6) / 0.02) * np.float32(0.02)
    expected = quantize(quantize(x) @ (weights["w"] * 0.01)) @ (weights["k"] * 0.01)
    model = Model("m", (path,))
    for run in (Onnx().reference((path,), model), Onnx().fast_reference((path,), model)):
        assert run is not None
        assert run.runtime.startswith("ONNX Runtime ")
        # Two steps of 0.02 in between that were rounded the other way, times the largest weight.
        np.testing.assert_allclose(
            run({"x": x})["y"], expected, atol=0.04 * np.abs(weights["k"]).max() * 0.01
        )


def test_reference_multiplies_floats_by_dequantized_weights(tmp_path: Path) -> None:
    """ONNX Runtime's optimizer makes MatMulNBits of both, which by default rounds the floats to eight bits."""
    integers = np.random.default_rng(1).integers(0, 255, (32, 16)).astype(np.uint8)
    constants = {"w": integers, "s": np.float32(0.01), "z": np.uint8(120)}
    case = RuntimeCase("d = DequantizeLinear(w, s, z) y = MatMul(x, d)", "float[3,32] x", constants)
    x = normal(3, 32)
    case.write(tmp_path / "m.onnx")
    run = Onnx().reference((tmp_path / "m.onnx",), Model("m", (tmp_path / "m.onnx",)))
    assert run is not None
    expected = x @ ((integers.astype(np.float64) - 120) * 0.01)
    np.testing.assert_allclose(run({"x": x})["y"], expected, rtol=0, atol=1e-6 * np.abs(expected).max())
