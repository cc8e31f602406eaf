"""Recurrent layers with every optional input and both orders of axes, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
TIME, BATCH, WIDTH, HIDDEN = 5, 2, 3, 4


def layer(
    op: str, attributes: str = "", given: str = "w, r", opset: int = 14, outputs: str = ""
) -> RuntimeCase:
    """Return a layer; given: its inputs besides x, g and e the initial states."""
    gates, directions = GATES[op], 2 if "bidirectional" in attributes else 1
    constants = {
        "w": normal(directions, gates * HIDDEN, WIDTH),
        "r": normal(directions, gates * HIDDEN, HIDDEN, seed=2),
        "b": normal(directions, 2 * gates * HIDDEN, seed=3),
        "l": np.array([5, 3], np.int32),
        "g": normal(directions, BATCH, HIDDEN, seed=4),
        "e": normal(directions, BATCH, HIDDEN, seed=5),
        "p": normal(directions, 3 * HIDDEN, seed=6),
    }
    shape = [TIME, BATCH, WIDTH]
    if "layout=1" in attributes:
        shape = [BATCH, TIME, WIDTH]
        constants |= {name: constants[name].swapaxes(0, 1) for name in "ge"}
    names = [name.strip() for name in given.split(",")]
    stored = {name: np.ascontiguousarray(constants[name]) for name in names if name}
    made = outputs or ("y h c" if op == "LSTM" else "y h")
    body = f"{made.replace(' ', ', ')} = {op}<{attributes or f'hidden_size={HIDDEN}'}>(x, {given})"
    return RuntimeCase(body, f"float{str(shape).replace(' ', '')} x", stored, opset, outputs=made)


CASES = {
    **{op: layer(op) for op in GATES},
    **{f"{op} with bias": layer(op, given="w, r, b") for op in GATES},
    **{f"{op} of lengths": layer(op, given="w, r, b, l") for op in GATES},
    **{f"{op} from a state": layer(op, given="w, r, b, , g") for op in ("GRU", "RNN")},
    "LSTM from states": layer("LSTM", given="w, r, b, , g, e"),
    "LSTM with peepholes": layer("LSTM", given="w, r, , , , , p"),
    "LSTM clipped": layer("LSTM", "hidden_size=4, clip=0.3"),
    "LSTM coupled": layer("LSTM", "hidden_size=4, input_forget=1"),
    "LSTM backwards": layer("LSTM", 'hidden_size=4, direction="reverse"', "w, r, b"),
    "LSTM with activations": layer("LSTM", 'hidden_size=4, activations=["HardSigmoid","Relu","Tanh"]'),
    "GRU before reset": layer("GRU", "hidden_size=4, linear_before_reset=1", "w, r, b"),
    "GRU with parameters": layer(
        "GRU",
        'hidden_size=4, activations=["HardSigmoid","Tanh"], activation_alpha=[0.3], activation_beta=[0.4]',
    ),
    "RNN both ways": layer("RNN", 'hidden_size=4, direction="bidirectional"', "w, r, b, , g"),
    "RNN of another activation": layer("RNN", 'hidden_size=4, activations=["Sigmoid"]'),
    "LSTM both ways": layer("LSTM", 'hidden_size=4, direction="bidirectional"', "w, r, b, , g, e"),
    "its state alone": RuntimeCase(
        "u, y = GRU<hidden_size=4>(x, w, r)",
        "float[5,2,3] x",
        {"w": normal(1, 12, 3), "r": normal(1, 12, 4, seed=2)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_layer_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    CASES[name].check(tmp_path / "m.onnx", rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("outputs", ["y", "y h"])
@pytest.mark.parametrize("op", GATES)
def test_batch_first_is_the_transposed_layer(op: str, outputs: str, tmp_path: Path) -> None:
    """ONNX Runtime refuses layout=1."""
    given = {"LSTM": "w, r, b, , g, e, p", "GRU": "w, r, b, , g", "RNN": "w, r, b, , g"}[op]
    x = normal(BATCH, TIME, WIDTH, seed=9)
    first, last = (
        layer(op, f"hidden_size=4{layout}", given, outputs=outputs) for layout in (", layout=1", "")
    )
    batch = RuntimeCase(first.body, first.ports, first.constants, 14, outputs=outputs, values={"x": x})
    time = RuntimeCase(
        last.body, last.ports, last.constants, 14, outputs=outputs, values={"x": x.swapaxes(0, 1)}
    )
    actual, expected = (made.compute(tmp_path / "m.onnx") for made in (batch, time))
    np.testing.assert_allclose(actual["y"], expected["y"].transpose(2, 0, 1, 3), rtol=1e-6)
    if "h" in outputs:
        np.testing.assert_allclose(actual["h"], expected["h"].swapaxes(0, 1), rtol=1e-6)


def test_all_states_of_an_lstm_come_batch_first(tmp_path: Path) -> None:
    x = normal(BATCH, TIME, WIDTH, seed=9)
    first, last = (layer("LSTM", f"hidden_size=4{layout}", "w, r") for layout in (", layout=1", ""))
    batch = RuntimeCase(first.body, first.ports, first.constants, 14, outputs="y h c", values={"x": x})
    time = RuntimeCase(
        last.body, last.ports, last.constants, 14, outputs="y h c", values={"x": x.swapaxes(0, 1)}
    )
    actual, expected = (made.compute(tmp_path / "m.onnx") for made in (batch, time))
    for name in "hc":
        assert actual[name].shape == (BATCH, 1, HIDDEN)
        np.testing.assert_allclose(actual[name], expected[name].swapaxes(0, 1), rtol=1e-6)


@pytest.mark.parametrize(("opset", "op"), [(13, "LSTM"), (7, "LSTM")])
def test_hidden_size_is_that_of_the_recurrent_weights(opset: int, op: str, tmp_path: Path) -> None:
    result = layer(op, 'direction="forward"', opset=opset)
    assert result.load(tmp_path / "m.onnx").tensors["y"].shape == (TIME, 1, BATCH, HIDDEN)
