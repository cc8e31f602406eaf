"""How a node sees its inputs: quantized tensors that it moves or computes with, attributes, names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from runtime_cases import RuntimeCase

from mace_core.importer import RefusedError
from mace_frontend_onnx import translate
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import CARRIERS, STRING_CARRIERS, OnnxNode, attribute_value, to_text
from mace_frontend_onnx.ops import handlers

SCALES = {"s": np.float32(0.02), "z": np.uint8(128), "t": np.float32(0.03), "k": np.uint8(100)}
X = "float[1,4,4,4] x"


def quantized(body: str, **constants: object) -> RuntimeCase:
    """A model of q, the quantized input; body: nodes from q to a quantized r."""
    text = f"q = QuantizeLinear(x, s, z) {body} y = DequantizeLinear(r, s, z)"
    return RuntimeCase(text, X, SCALES | constants)


MOVED = {
    "Transpose": quantized("r = Transpose<perm=[0,3,1,2]>(q)"),
    "Reshape": quantized("r = Reshape(q, n)", n=[4, 16]),
    "Flatten": quantized("r = Flatten(q)"),
    "Squeeze": quantized("r = Squeeze(q, n)", n=[0]),
    "Unsqueeze": quantized("r = Unsqueeze(q, n)", n=[0]),
    "Slice": quantized("r = Slice(q, n, m)", n=[0, 1], m=[1, 3]),
    "Split": quantized("r, u = Split<axis=1>(q)"),
    "Gather": quantized("r = Gather<axis=1>(q, n)", n=[2, 0]),
    "Expand": quantized("r = Expand(q, n)", n=[2, 4, 4, 4]),
    "Tile": quantized("r = Tile(q, n)", n=[1, 2, 1, 1]),
    "MaxPool": quantized("r = MaxPool<kernel_shape=[2,2]>(q)"),
    "DepthToSpace": quantized("r = DepthToSpace<blocksize=2>(q)"),
    "SpaceToDepth": quantized("r = SpaceToDepth<blocksize=2>(q)"),
    "Concat": quantized("r = Concat<axis=1>(q, q)"),
    "Identity": quantized("r = Identity(q)"),
}


@pytest.mark.parametrize("name", MOVED)
def test_quantized_elements_are_moved_as_they_are(name: str, tmp_path: Path) -> None:
    assert name in CARRIERS
    graph = MOVED[name].load(tmp_path / "m.onnx")
    ops = [node.op.name for node in graph.nodes]
    assert [op for op in ops if op in ("Quantize", "Dequantize", "Div", "Round", "Cast")] == [
        "Quantize",
        "Dequantize",
    ]
    # ONNX Runtime rounds halves alike but fuses some of these into float kernels: a step apart at most.
    MOVED[name].check(tmp_path / "m.onnx", atol=0.0201)


def test_operators_that_move_are_listed() -> None:
    assert set(MOVED) == CARRIERS
    assert {"Concat", "MaxPool", "Split"} == CARRIERS - STRING_CARRIERS


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ("y = Cast<to=6>(q)", np.int32),
        ("c = Cast<to=6>(q) y = Add(c, c)", np.int32),
        ("p = QuantizeLinear(x, t, k) y = Concat<axis=1>(q, p)", np.uint8),
        ("y = ReduceMax(q)", np.uint8),
    ],
)
def test_who_computes_gets_the_integers(body: str, output: type, tmp_path: Path) -> None:
    case = RuntimeCase(f"q = QuantizeLinear(x, s, z) {body}", X, SCALES, 18)
    case.check(tmp_path / "m.onnx")
    assert case.compute(tmp_path / "m.onnx")["y"].dtype == output


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        (helper.make_attribute("a", "text"), "text"),
        (helper.make_attribute("a", b"bytes"), "bytes"),
        (helper.make_attribute("a", ["x", "y"]), ("x", "y")),
        (helper.make_attribute("a", 3), 3),
        (helper.make_attribute("a", [3, 4]), (3, 4)),
        (helper.make_attribute("a", 0.5), 0.5),
        (helper.make_attribute("a", [0.5, 1.5]), (0.5, 1.5)),
    ],
)
def test_attributes_are_values_of_python(attribute: onnx.AttributeProto, value: object) -> None:
    result = attribute_value(attribute)
    assert (type(result), result) == (type(value), value)


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert [to_text(b"a\xff"), to_text("b"), to_text(np.str_("c"))] == ["a\ufffd", "b", "c"]


def test_outputs_that_the_ir_has_besides_get_names(tmp_path: Path) -> None:
    """An LSTM has three outputs in the IR; the node lists one, and skips one."""
    constants = {"w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    one = RuntimeCase("y = LSTM<hidden_size=2>(x, w, r)", "float[2,1,3] x", constants).load(
        tmp_path / "m.onnx"
    )
    assert one.nodes[-1].outputs == ("y", "LSTM_0/unused1", "LSTM_0/unused2")
    skipped = RuntimeCase(", , y = LSTM<hidden_size=2>(x, w, r)", "float[2,1,3] x", constants)
    assert skipped.load(tmp_path / "m.onnx").nodes[-1].outputs == ("LSTM_0/unused0", "LSTM_0/unused1", "y")


def test_only_what_is_stored_is_a_constant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real numbers of a dequantized constant are known as well, to those handlers that ask for them."""
    body = "c = DequantizeLinear(n, s, z) y = Pad(x, p, c)"
    constants = {"s": np.float32(0.02), "z": np.uint8(128), "n": np.uint8(131), "p": [0] * 8}
    nodes: list[OnnxNode] = []

    def keep(node: OnnxNode) -> str | Sequence[Result]:
        nodes.append(node)
        return handle(node)

    handle = handlers()["Pad"]
    monkeypatch.setattr(translate, "handlers", lambda: {**handlers(), "Pad": keep})
    RuntimeCase(body, X, constants).load(tmp_path / "m.onnx")
    (node,) = nodes
    assert [(node.is_constant(i), node.array(i) is not None) for i in range(3)] == [
        (False, False),
        (True, True),
        (False, False),
    ]
    assert node.real_constant(2, "value") == pytest.approx(0.06)
    for index in (0, 2):
        with pytest.raises(RefusedError, match="is computed at run time"):
            node.constant(index, "value")
