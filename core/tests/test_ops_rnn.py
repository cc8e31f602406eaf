"""The references and shape inferences of RNN, GRU and LSTM, against ONNX's own test data and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mace_core.ir import DType, Tensor
from mace_core.ops import core_ops
from mace_core.ops.op import Op, OpError
from mace_core.ops.rnn import ACTIVATIONS

GATES: Mapping[str, int] = {"RNN": 1, "GRU": 3, "LSTM": 4}
ATTRIBUTE_NAMES: Mapping[str, str] = {
    "hidden": "hidden_size",
    "alphas": "activation_alpha",
    "betas": "activation_beta",
    "coupled": "input_forget",
}


def infer(op: Op, arrays: list[Any], attrs: Mapping[str, Any]) -> list[tuple[DType, tuple[int, ...]]]:
    tensors = [None if a is None else Tensor(f"t{i}", DType.of(a), a.shape) for i, a in enumerate(arrays)]
    return list(op.infer(tensors, attrs))


def test_onnx_cases(onnx_cases: Callable[..., list[Any]]) -> None:
    get_attribute_value = pytest.importorskip("onnx.helper").get_attribute_value
    ours = {theirs: name for name, theirs in ATTRIBUTE_NAMES.items()}
    cases = onnx_cases(GATES)
    assert len(cases) > 10
    for case in cases:
        node = case.model.graph.node[0]
        op = core_ops()[node.op_type]
        given = {ours.get(a.name, a.name): get_attribute_value(a) for a in node.attribute}
        given = {k: v.decode() if isinstance(v, bytes) else v for k, v in given.items()}
        if given.pop("layout", 0):
            continue
        attrs = op.complete(given)
        for inputs, expected in case.data_sets:
            actual = op.compute(inputs, attrs)
            assert infer(op, inputs, attrs) == [(DType.of(f), f.shape) for f in actual]
            named = [f for f, name in zip(actual, node.output, strict=False) if name]
            for array, right in zip(named, expected, strict=True):
                np.testing.assert_allclose(array, right, rtol=1e-6, atol=1e-6, err_msg=case.name)


def random_inputs(op: str, direction: str, missing: tuple[str, ...] = ()) -> list[Any]:
    """T = 5, B = 3, I = 4, H = 6; sequences of lengths 5, 2 and 4."""
    rng = np.random.default_rng(3)
    gates, count = GATES[op], 2 if direction == "bidirectional" else 1

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    given = {
        "x": normal(5, 3, 4),
        "w": normal(count, gates * 6, 4),
        "r": normal(count, gates * 6, 6),
        "b": normal(count, 2 * gates * 6),
        "lengths": np.array([5, 2, 4], np.int32),
        "h0": normal(count, 3, 6),
    }
    if op == "LSTM":
        given |= {"c0": normal(count, 3, 6), "p": normal(count, 18)}
    return [None if name in missing else array for name, array in given.items()]


def by_onnxruntime(op: str, arrays: list[Any], attrs: Mapping[str, Any]) -> list[Any]:
    runtime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    outputs = ["y", "yh", "yc"][: 3 if op == "LSTM" else 2]
    given = {ATTRIBUTE_NAMES.get(k, k): int(v) if isinstance(v, bool) else v for k, v in attrs.items()}
    node = helper.make_node(op, names, outputs, **given)
    fed = {name: a for name, a in zip(names, arrays, strict=True) if name}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in fed.items()
    ]
    results = [helper.make_tensor_value_info(n, 1, None) for n in outputs]
    model = helper.make_model(
        helper.make_graph([node], op, inputs, results), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, fed))


AFFINE = ("Affine", "LeakyRelu", "Softsign")
ELU = ("HardSigmoid", "ScaledTanh", "Elu")
OPTIONS: tuple[tuple[str, str, dict[str, Any], tuple[str, ...]], ...] = (
    ("RNN", "forward", {}, ()),
    ("RNN", "reverse", {}, ("b", "h0")),
    ("RNN", "bidirectional", {"clip": 0.5}, ()),
    ("RNN", "bidirectional", {"activations": ("Relu", "Softplus")}, ("lengths",)),
    ("RNN", "forward", {"activations": ("ThresholdedRelu",), "alphas": (0.7,)}, ()),
    ("GRU", "forward", {}, ()),
    ("GRU", "reverse", {"linear_before_reset": True}, ()),
    ("GRU", "bidirectional", {"clip": 0.5}, ("b",)),
    (
        "GRU",
        "forward",
        {"activations": ("HardSigmoid", "LeakyRelu"), "alphas": (0.3, 0.1), "betas": (0.4,)},
        (),
    ),
    ("LSTM", "forward", {}, ("b", "lengths", "h0", "c0", "p")),
    ("LSTM", "reverse", {}, ()),
    ("LSTM", "bidirectional", {}, ("lengths",)),
    ("LSTM", "bidirectional", {"clip": 0.4}, ()),
    ("LSTM", "forward", {"coupled": True}, ("p",)),
    ("LSTM", "forward", {"activations": AFFINE, "alphas": (0.3, 0.1), "betas": (0.2,)}, ()),
    ("LSTM", "forward", {"activations": ELU, "alphas": (0.3, 0.9, 0.8), "betas": (0.4, 0.7)}, ()),
)


@pytest.mark.parametrize(("name", "direction", "options", "missing"), OPTIONS)
def test_options_as_onnxruntime(
    name: str, direction: str, options: dict[str, Any], missing: tuple[str, ...]
) -> None:
    arrays = random_inputs(name, direction, missing)
    inputs = {"hidden": 6, "direction": direction, **options}
    op = core_ops()[name]
    actual = op.compute(arrays, op.complete(inputs))
    for array, right in zip(actual, by_onnxruntime(name, arrays, inputs), strict=True):
        np.testing.assert_allclose(array, right, rtol=2e-5, atol=2e-6)


def test_steps_beyond_the_length_change_nothing() -> None:
    op = core_ops()["LSTM"]
    attrs = op.complete({"hidden": 6, "direction": "bidirectional"})
    whole = op.compute(random_inputs("LSTM", "bidirectional"), attrs)
    cut = random_inputs("LSTM", "bidirectional")
    cut[0], cut[4] = cut[0][:2], None
    short = op.compute(cut, attrs)
    np.testing.assert_allclose(whole[0][:2, :, 1], short[0][:, :, 1], rtol=1e-6)
    assert not whole[0][2:, :, 1].any()
    for a, b in zip(whole[1:], short[1:], strict=True):
        np.testing.assert_allclose(a[:, 1], b[:, 1], rtol=1e-6)


def test_no_step_leaves_the_initial_state() -> None:
    op = core_ops()["GRU"]
    arrays = random_inputs("GRU", "forward")
    arrays[4] = np.zeros(3, np.int32)
    y, yh = op.compute(arrays, op.complete({"hidden": 6}))
    assert not y.any()
    np.testing.assert_array_equal(yh, arrays[5])


WRONG: tuple[tuple[dict[int, Any], dict[str, Any], str], ...] = (
    ({}, {"hidden": 0}, "hidden is 0"),
    ({}, {"hidden": 5}, r"t1 has shape \[1, 24, 4\], expected \[1, 20, 4\]"),
    ({}, {"direction": "sideways"}, "sideways"),
    ({}, {"direction": "bidirectional"}, r"expected \[2, 24, 4\]"),
    ({}, {"clip": -1.0}, "clip is -1"),
    ({}, {"activations": ("Tanh",)}, "1 activations, expected 3"),
    ({}, {"activations": ("Tanh", "Tanh", "Sine")}, "'Sine' is unknown"),
    ({}, {"alphas": ("a",)}, "numbers"),
    ({0: np.zeros((5, 3), np.float32)}, {}, "time, batch, input"),
    ({0: np.zeros((5, 3, 4), np.int32)}, {}, "but x of i32"),
    ({3: np.zeros((1, 24), np.float32)}, {}, r"expected \[1, 48\]"),
    ({4: np.zeros(3, np.int64)}, {}, "must be i32"),
    ({4: np.zeros(5, np.int32)}, {}, r"expected \[3\]"),
    ({5: np.zeros((1, 3, 6), np.float64)}, {}, "f64"),
    ({6: np.zeros((3, 6), np.float32)}, {}, r"expected \[1, 3, 6\]"),
    ({7: np.zeros((1, 24), np.float32)}, {}, r"expected \[1, 18\]"),
)


@pytest.mark.parametrize(("change", "given", "text"), WRONG, ids=[w[2] for w in WRONG])
def test_inference_refuses(change: dict[int, Any], given: dict[str, Any], text: str) -> None:
    arrays = [change.get(i, a) for i, a in enumerate(random_inputs("LSTM", "forward"))]
    op = core_ops()["LSTM"]
    with pytest.raises(OpError, match=text):
        infer(op, arrays, op.complete({"hidden": 6, **given}))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Relu", [0, 0, 0, 0.5, 2]),
        ("Affine", [-5, -2, 1, 2.5, 7]),
        ("LeakyRelu", [-6, -3, 0, 0.5, 2]),
        ("ThresholdedRelu", [0, 0, 0, 0, 0]),
        ("HardSigmoid", [0, 0, 1, 1, 1]),
        ("Elu", [3 * np.expm1(-2), 3 * np.expm1(-1), 0, 0.5, 2]),
        ("Softsign", [-2 / 3, -1 / 2, 0, 1 / 3, 2 / 3]),
    ],
)
def test_activations_at_their_limits(name: str, expected: list[float]) -> None:
    x = np.array([-2, -1, 0, 0.5, 2])
    actual = replace(ACTIVATIONS[name], alpha=3.0, beta=1.0)(x)
    np.testing.assert_allclose(actual, expected, atol=1e-12)


def test_what_is_at_the_threshold_is_not_above_it() -> None:
    x = np.array([-1, 0.5, 0.75])
    assert replace(ACTIVATIONS["ThresholdedRelu"], alpha=0.5)(x).tolist() == [0, 0, 0.75]
