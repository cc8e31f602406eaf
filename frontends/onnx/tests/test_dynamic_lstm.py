"""ONNX Runtime's LSTM with weights of eight bits, beside ONNX Runtime itself and the formula of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx

STEPS, WIDTH, HIDDEN = 7, 6, 5


def round_to_bytes(numbers: Array) -> Array:
    """Return the real numbers of a tensor that ONNX Runtime quantizes to uint8 (GetQuantizationParameter of core/util)."""
    low, high = np.float32(min(0, numbers.min())), np.float32(max(0, numbers.max()))
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return (np.clip(np.rint(numbers.astype(np.float32) / scale) + zero, 0, 255) - zero) * scale


def compute_lstm(
    x: Array, constants: Mapping[str, Array], direction: int, store: Callable[[Array], Array]
) -> Array:
    """Return what an LSTM of one direction gives in each step.  store: what becomes of activations before a product."""
    real = {
        name: (constants[name][direction].astype(np.float64) - constants[f"{name}z"][direction])
        * constants[f"{name}s"][direction]
        for name in "wr"
    }
    bias = constants["b"][direction].reshape(2, -1).sum(0)
    h, cell, outputs = np.zeros(HIDDEN), np.zeros(HIDDEN), []
    # All steps of x share a scale, because ONNX Runtime multiplies them at once; each h has one of its own.
    for step in store(x[:, 0])[:: -1 if direction else 1] @ real["w"] + bias:
        i, o, f, c = np.split(step + store(h) @ real["r"], 4)
        cell = cell / (1 + np.exp(-f)) + np.tanh(c) / (1 + np.exp(-i))
        h = np.tanh(cell) / (1 + np.exp(-o))
        outputs.append(h)
    return np.stack(outputs[:: -1 if direction else 1])


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_column", [False, True])
def test_dynamic_lstm(direction: str, per_column: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    directions = 2 if direction == "bidirectional" else 1
    scales = (directions, 4 * HIDDEN) if per_column else (directions,)
    zeros = np.zeros(scales, np.int8) if per_column else np.full(scales, 3, np.int8)
    # Seven bits: without VNNI, ONNX Runtime adds pairs of products in 16 bits, which saturate with weights of eight
    # (its page on quantization, "U8S8"), and then it is no oracle.
    constants = {
        "w": rng.integers(-63, 64, (directions, WIDTH, 4 * HIDDEN)).astype(np.int8),
        "r": rng.integers(-63, 64, (directions, HIDDEN, 4 * HIDDEN)).astype(np.int8),
        "b": rng.normal(0, 0.3, (directions, 8 * HIDDEN)).astype(np.float32),
        "ws": rng.uniform(0.006, 0.012, scales).astype(np.float32),
        "wz": zeros,
        "rs": rng.uniform(0.006, 0.012, scales).astype(np.float32),
        "rz": zeros,
    }
    names = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    attrs = {"hidden_size": HIDDEN, "direction": direction}
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y", "h", "c"], domain="com.microsoft", **attrs)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "h", "c")]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, 1, WIDTH])
    graph = helper.make_graph(
        [node], "g", [given], ends, [numpy_helper.from_array(a, n) for n, a in constants.items()]
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    read = verify(Onnx().load((path,), Model("m", (path,)), core_ops()))
    assert "rounds them to eight bits" in read.notes[0]
    run = Onnx().reference((path,), Model("m", (path,)))
    assert run is not None
    x = {"x": rng.normal(0, 1, (STEPS, 1, WIDTH)).astype(np.float32)}
    actual, expected = execute(read, x), run(x)
    for name in ("y", "h", "c"):
        # Half a step of x, 4 / 255, through weights of about 0.3.
        assert np.abs(actual[name] - expected[name]).max() < 0.02, name
        assert np.corrcoef(actual[name].reshape(-1), expected[name].reshape(-1))[0, 1] > 0.999
    # The rounded activations are the only difference, so each side is near its own formula.
    for i in range(directions):
        number = i + (direction == "reverse")
        one = {name: array[i : i + 1].repeat(2, 0) for name, array in constants.items()}
        for outputs, store in ((actual, np.asarray), (expected, round_to_bytes)):
            formula = compute_lstm(x["x"], one, number, store)
            np.testing.assert_allclose(outputs["y"][:, i, 0], formula, rtol=0, atol=1e-6)
    # Without the attribute the hidden size is that of the recurrent weights.
    model = onnx.load(path)
    model.graph.node[0].attribute.remove(helper.make_attribute("hidden_size", HIDDEN))
    path.write_bytes(model.SerializeToString())
    same = execute(verify(Onnx().load((path,), Model("m", (path,)), core_ops())), x)
    np.testing.assert_array_equal(same["y"], actual["y"])
    (weights,) = (tensor for tensor in model.graph.initializer if tensor.name == "r")
    given = helper.make_tensor_value_info("r", TensorProto.INT8, weights.dims)
    model.graph.initializer.remove(weights)
    model.graph.input.append(given)
    path.write_bytes(model.SerializeToString())
    problem = r"its weights \(input 2\) are computed at run time; export them as constants"
    with pytest.raises(MaceError, match=problem):
        Onnx().load((path,), Model("m", (path,)), core_ops())
