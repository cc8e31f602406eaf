"""The quantized operators of ONNX Runtime (com.microsoft): which op of the IR computes them, with which attributes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from mace_core.deployment import Model
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx

SHAPE = (2, 3, 4, 5)
SCALES = {"s": 0.0513, "t": 0.0971, "u": 0.0207}
"""Not multiples of each other, so that few results lie at a half."""
ZEROS = {"p": 120, "q": 100, "r": 130}
CONSTANTS = {name: np.float32(scale) for name, scale in SCALES.items()} | {
    name: np.uint8(zero) for name, zero in ZEROS.items()
}


def load(path: Path, body: str) -> Graph:
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> '
        f"g (uint8[2,3,4,5] x, uint8[2,3,4,5] v) => (uint8[a,b,c,d] y) {{ y = com.microsoft.{body} }}"
    )
    model = onnx.parser.parse_model(text)
    for name, value in CONSTANTS.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    path.write_bytes(model.SerializeToString())
    return verify(Onnx().load((path,), Model("m", (path,)), core_ops()))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("body", "compute"),
    [
        ("QLinearAdd(x, s, p, v, t, q, u, r)", lambda a, b: a + b),
        ("QLinearMul(x, s, p, v, t, q, u, r)", lambda a, b: a * b),
        ("QLinearSigmoid(x, s, p, u, r)", lambda a, b: sigmoid(a)),
        ("QLinearLeakyRelu<alpha=0.3>(x, s, p, u, r)", lambda a, b: np.where(a > 0, a, 0.3 * a)),
        ("QLinearLeakyRelu(x, s, p, u, r)", lambda a, b: np.where(a > 0, a, 0.01 * a)),
        ("QLinearSoftmax<opset=13>(x, s, p, u, r)", lambda a, b: softmax(a)),
        ("QLinearGlobalAveragePool(x, s, p, u, r)", lambda a, b: a.mean((2, 3), keepdims=True)),
        (
            "QLinearGlobalAveragePool<channels_last=1>(x, s, p, u, r)",
            lambda a, b: a.mean((1, 2), keepdims=True),
        ),
        ("QLinearConcat<axis=1>(u, r, x, s, p, v, t, q)", lambda a, b: np.concatenate((a, b), 1)),
    ],
)
def test_quantized_operator_against_its_formula(body: str, compute: object, tmp_path: Path) -> None:
    assert callable(compute)
    rng = np.random.default_rng(0)
    x, v = (rng.integers(90, 140, SHAPE).astype(np.uint8) for _ in range(2))
    y = execute(load(tmp_path / "m.onnx", body), {"x": x, "v": v})["y"]
    real = compute((x.astype(np.float64) - 120) * 0.0513, (v.astype(np.float64) - 100) * 0.0971)
    expected = np.clip(np.round(real / 0.0207) + 130, 0, 255)
    assert y.shape == expected.shape
    # A quotient near a half may round either way in single precision.
    assert np.abs(y.astype(int) - expected).max() <= 1
    assert (y == expected).mean() > 0.9
