"""LSTM, GRU and RNN: the IR has them as ONNX does, time first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler

STATES = (5, 6)
"""The inputs that hold initial states; LSTM has two."""

INPUTS: Mapping[str, int] = MappingProxyType({"LSTM": 8, "GRU": 6, "RNN": 6})
FLAGS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"LSTM": {"coupled": "input_forget"}, "GRU": {"linear_before_reset": "linear_before_reset"}, "RNN": {}}
)
"""The IR's names of boolean attributes -> ONNX's."""


def _recurrent(node: OnnxNode) -> Sequence[Result]:
    attrs = {
        # hidden_size is optional; recurrent weights are [directions, gates * hidden, hidden].
        "hidden": node.attr("hidden_size") or node.shape(2)[-1],
        "direction": node.attr("direction"),
        "activations": _activations(node),
        "alphas": tuple(node.attr("activation_alpha") or ()),
        "betas": tuple(node.attr("activation_beta") or ()),
        "clip": node.attr("clip") or 0.0,
        **{ours: bool(node.attr(theirs)) for ours, theirs in FLAGS[node.op].items()},
    }
    inputs = _without_absent_end([node.input(i) for i in range(min(node.input_count, INPUTS[node.op]))])
    # LSTM, GRU, RNN: `layout` exists from operator set 14 on; 1 puts the batch first.
    if node.opset < 14 or not node.attr("layout"):
        return node.done(node.op, inputs, attrs)
    return _batch_first(node, inputs, attrs)


def _without_absent_end(inputs: Sequence[str]) -> list[str]:
    """Return the inputs without absent ones at the end, which the IR does not list."""
    present = list(inputs)
    while not present[-1]:
        present.pop()
    return present


def _activations(node: OnnxNode) -> tuple[str, ...]:
    """Return the activations that the node states; () for ONNX's defaults, which are the IR's as well."""
    # Not by `attr` alone: RNN's default in ONNX lists two, also for a single direction.
    if any(attribute.name == "activations" for attribute in node.proto.attribute):
        return tuple(map(str, node.attr("activations")))
    return ()


def _batch_first(node: OnnxNode, inputs: list[str], attrs: Mapping[str, object]) -> Sequence[Result]:
    """Surround the op by transposes.

    x [batch, time, in], states [batch, directions, hidden], y [batch, time, directions, hidden].
    """
    for i in (0, *STATES):
        if i < len(inputs) and inputs[i]:
            inputs[i] = node.emit("Transpose", [inputs[i]], {"perm": (1, 0, 2)}, tag="time-first")
    outputs = node.emit_all(node.op, inputs, attrs, count=len(node.builder.ops[node.op].outputs))
    # The IR's y is [time, directions, batch, hidden], its states [directions, batch, hidden].
    perms = ((2, 0, 1, 3), (1, 0, 2), (1, 0, 2))
    pairs = list(zip(outputs, perms, strict=False))[: len(node.proto.output)]
    return [node.emit("Transpose", [t], {"perm": perm}, tag="batch-first") for t, perm in pairs]


def _dynamic_lstm(node: OnnxNode) -> Sequence[Result]:
    """Express ONNX Runtime's LSTM with weights of eight bits by the LSTM of the real weights."""
    # DynamicQuantizeLSTM: inputs 8 and 9 are scale and zero point of W (input 1), 10 and 11 those of R (input
    # 2).
    weights = [_real_weights(node, 1, 8), _real_weights(node, 2, 10)]
    inputs = _without_absent_end([node.input(0), *weights, *(node.input(i) for i in range(3, 8))])
    attrs = {
        # Here the recurrent weights are [directions, hidden, gates * hidden].
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
    """Return 8-bit weights [directions, in, gates * hidden] as real ones [directions, gates * hidden, in].

    scale: the number of the input with the scales; the next one has the zero points.
    """
    scales = node.constant(scale, "scale").astype(np.float32)
    zeros = np.zeros_like(scales)
    if node.has(scale + 1):
        zeros = node.constant(scale + 1, "zero point").astype(np.float32)
    # One for each direction, or one for each of its columns.
    scales, zeros = (array.reshape(len(array), 1, -1) for array in (scales, zeros))

    def dequantize(integers: Array) -> Array:
        real = (integers.astype(np.float32) - zeros) * scales
        return np.ascontiguousarray(real.transpose(0, 2, 1))

    problem = f"its weights (input {index}) are computed at run time"
    node.refuse_unless(node.is_constant(index), f"{problem}; export them as constants")
    return node.derive_constant(index, "real", dequantize)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {**dict.fromkeys(INPUTS, _recurrent), "com.microsoft::DynamicQuantizeLSTM": _dynamic_lstm}
)
