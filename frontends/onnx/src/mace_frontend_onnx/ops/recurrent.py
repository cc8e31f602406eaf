"""LSTM, GRU and RNN: the IR has them as ONNX does, time first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler

STATES = (5, 6)
"""The inputs that hold initial states; LSTM has two."""

INPUTS: Mapping[str, int] = MappingProxyType({"LSTM": 8, "GRU": 6, "RNN": 6})
FLAGS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"LSTM": {"coupled": "input_forget"}, "GRU": {"linear_before_reset": "linear_before_reset"}, "RNN": {}}
)
"""The IR's names of the yes-or-no attributes and ONNX's."""


def _recurrent(node: OnnxNode) -> Sequence[Held]:
    attrs = {
        "hidden": node.attr("hidden_size") or node.shape(2)[-1],
        "direction": node.attr("direction"),
        "activations": _activations(node),
        "alphas": tuple(node.attr("activation_alpha") or ()),
        "betas": tuple(node.attr("activation_beta") or ()),
        "clip": node.attr("clip") or 0.0,
        **{ours: bool(node.attr(theirs)) for ours, theirs in FLAGS[node.op].items()},
    }
    inputs = [node.input(i) for i in range(min(node.count, INPUTS[node.op]))]
    while not inputs[-1]:
        inputs.pop()
    if node.opset < 14 or not node.attr("layout"):
        return node.done(node.op, inputs, attrs)
    return _batch_first(node, inputs, attrs)


def _activations(node: OnnxNode) -> tuple[str, ...]:
    """As given; the default ones, which the IR knows as well, are left out."""
    given = [
        str(name)
        for proto in node.proto.attribute
        if proto.name == "activations"
        for name in node.attr("activations")
    ]
    return tuple(given)


def _batch_first(node: OnnxNode, inputs: list[str], attrs: Mapping[str, object]) -> Sequence[Held]:
    """Transpose around it: x [batch, time, in], states [batch, directions, hidden], y [batch, time, directions, hidden]."""
    for i in (0, *STATES):
        if i < len(inputs) and inputs[i]:
            inputs[i] = node.emit("Transpose", [inputs[i]], {"perm": (1, 0, 2)}, tag="time-first")
    made = node.emit_all(node.op, inputs, attrs, count=len(node.builder.ops[node.op].outputs))
    perms = ((2, 0, 1, 3), (1, 0, 2), (1, 0, 2))
    pairs = list(zip(made, perms, strict=False))[: len(node.proto.output)]
    return [node.emit("Transpose", [t], {"perm": perm}, tag="batch-first") for t, perm in pairs]


def _dynamic_lstm(node: OnnxNode) -> Sequence[Held]:
    """ONNX Runtime's LSTM with weights of eight bits, as the LSTM of the real weights.

    Its activations are not rounded here.
    """
    inputs = [
        node.input(0),
        *(_real_weights(node, i, 8 + 2 * (i - 1)) for i in (1, 2)),
        *(node.input(i) for i in range(3, 8)),
    ]
    while not inputs[-1]:
        inputs.pop()
    attrs = {
        "hidden": node.attr("hidden_size") or node.shape(2)[1],
        "direction": node.attr("direction") or "forward",
        "activations": tuple(node.attr("activations") or ()),
        "alphas": tuple(node.attr("activation_alpha") or ()),
        "betas": tuple(node.attr("activation_beta") or ()),
        "clip": node.attr("clip") or 0.0,
        "coupled": bool(node.attr("input_forget")),
    }
    place = f"{node.importer.location}: node {node.name!r} ({node.op})"
    node.builder.notes.append(
        f"{place}: computed with real activations; ONNX Runtime rounds them to eight bits in every step"
    )
    return node.done("LSTM", inputs, attrs)


def _real_weights(node: OnnxNode, index: int, scale: int) -> str:
    """Weights [directions, in, gates] as the IR has them, [directions, gates, in].

    Inputs `scale` and the next give scale and zero.
    """
    scales = node.constant(scale, "scale").astype(np.float32)
    zeros = (
        node.constant(scale + 1, "zero point").astype(np.float32)
        if node.has(scale + 1)
        else np.zeros_like(scales)
    )
    columns = [a.reshape(len(a), 1, -1) for a in (scales, zeros)]

    def real(stored: Array) -> Array:
        return np.ascontiguousarray(
            ((stored.astype(np.float32) - columns[1]) * columns[0]).transpose(0, 2, 1)
        )

    node.refuse_unless(
        node.array_is_constant(index),
        f"its weights (input {index}) are computed at run time; export them as constants",
    )
    return node.derived(index, "real", real)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {**dict.fromkeys(INPUTS, _recurrent), "com.microsoft::DynamicQuantizeLSTM": _dynamic_lstm}
)
