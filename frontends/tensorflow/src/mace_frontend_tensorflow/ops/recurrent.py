"""Recurrent cells and layers that are one operator.

Operands and formulas: tensorflow/core/ops/rnn_ops.cc. Layers are unrolled step by step instead of imported as
the IR's LSTM, because every gate and state of each step is an output, and cells clip their states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.values import OptionalValue

MAX_STEPS = 4096
"""Steps of a layer: each adds a dozen nodes."""


class _Lstm:
    """An LSTM cell.

    order: the gates in the order in which they lie in the weights: input (i), forget (f), output (o),
    candidate (c).
    weights, bias: tensors for the input and the hidden state side by side.
    peepholes: weights by gate, for those that also see the state.
    width: elements of the state of one sample.
    clip: the bound of the state's magnitude; 0 for none.
    forget: what is added to the forget gate.
    """

    def __init__(self, node: TensorFlowNode, first: int, order: str) -> None:
        self.node, self.order = node, order
        self.weights, self.bias = node.input(first), node.input(first + 4)
        self.peepholes: dict[str, str] = {}
        if node.attr("use_peephole", False):
            self.peepholes = {gate: node.input(first + 1 + i) for i, gate in enumerate("ifo")}
        self.width = node.builder.shape(self.weights)[-1] // 4
        # The second version of the layer changed the order of the gates, dropped the bias of the forget gate
        # and turned clipping off unless it is asked for.
        self.clip = node.attr("cell_clip", 0.0 if node.op == "BlockLSTMV2" else 3.0)
        self.forget = node.attr("forget_bias", 1.0) if order == "icfo" else 0.0

    def step(self, x: str, state: str, hidden: str) -> dict[str, str]:
        """Add one step; return its results [batch, width] by the names of the operator's outputs."""
        node = self.node
        operand = node.emit("Concat", [x, hidden], {"axis": 1}, tag="together")
        total = node.emit("MatMul", [operand, self.weights, self.bias], tag="total")
        parts = node.emit_all("Split", [total], {"axis": 1, "sizes": (self.width,) * 4}, count=4, tag="gates")
        sums = dict(zip(self.order, parts, strict=True))
        outputs = {
            "i": self._gate("i", sums["i"], state),
            "ci": node.emit("Tanh", [sums["c"]], tag="candidate"),
        }
        forget = sums["f"]
        if self.forget:
            bias = node.add_constant(self.forget, DType.F32, "forget-bias")
            forget = node.emit("Add", [forget, bias], tag="forget")
        outputs["f"] = self._gate("f", forget, state)
        remembered = node.emit("Mul", [state, outputs["f"]], tag="kept")
        added = node.emit("Mul", [outputs["ci"], outputs["i"]], tag="added")
        state = node.emit("Add", [remembered, added], tag="state")
        if self.clip > 0:
            state = node.emit("Clip", [state], {"min": -self.clip, "max": self.clip}, tag="state")
        # The output gate sees the state after the step, the others the one before (lstm_ops.h).
        outputs["cs"], outputs["o"] = state, self._gate("o", sums["o"], state)
        outputs["co"] = node.emit("Tanh", [state], tag="squashed")
        outputs["h"] = node.emit("Mul", [outputs["o"], outputs["co"]], tag="hidden")
        return outputs

    def _gate(self, name: str, total: str, state: str) -> str:
        if name in self.peepholes:
            seen = self.node.emit("Mul", [state, self.peepholes[name]], tag="peephole")
            total = self.node.emit("Add", [total, seen], tag="seen")
        return self.node.emit("Sigmoid", [total], tag=f"{name}-gate")


OUTPUTS = ("i", "cs", "f", "o", "ci", "co", "h")


def _cell(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a LSTMBlockCell(x, state, hidden, weights, 3 peepholes, bias)."""
    outputs = _Lstm(node, 3, "icfo").step(node.input(0), node.input(1), node.input(2))
    return [outputs[name] for name in OUTPUTS]


def _layer(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a BlockLSTM(length, x, state, hidden, weights, 3 peepholes, bias).

    Sequences are [time, batch, width]; results behind the length are zeros.
    """
    time, batch, width = node.shape(1)
    length = node.integer(0, "length")
    node.refuse_unless(
        0 < time <= MAX_STEPS and 0 <= length <= time,
        f"it has {length} of {time} steps; the maximum is {MAX_STEPS}",
    )
    cell = _Lstm(node, 4, "icfo" if node.op == "BlockLSTM" else "ifco")
    state, hidden = node.input(2), node.input(3)
    steps: dict[str, list[str]] = {name: [] for name in OUTPUTS}
    for step in range(length):
        attrs = {"starts": (step, 0, 0), "sizes": (1, batch, width), "steps": (1, 1, 1)}
        row = node.emit("Slice", [node.input(1)], attrs, tag="now")
        outputs = cell.step(node.reshape(row, (batch, width)), state, hidden)
        state, hidden = outputs["cs"], outputs["h"]
        for name, tensor in outputs.items():
            steps[name].append(node.reshape(tensor, (1, *node.builder.shape(tensor)), "step"))
    return [_concat_steps(node, steps[name], (time, batch, cell.width)) for name in OUTPUTS]


def _concat_steps(node: TensorFlowNode, steps: list[str], shape: tuple[int, int, int]) -> str:
    """Return a sequence of this shape made of its first steps, zeros behind them."""
    missing = shape[0] - len(steps)
    if missing:
        zero = node.add_constant(np.zeros((1, 1, 1), np.float32), tag="zero")
        steps = [*steps, node.emit("Expand", [zero], {"shape": (missing, *shape[1:])}, tag="rest")]
    return steps[0] if len(steps) == 1 else node.emit("Concat", steps, {"axis": 0}, tag="sequence")


def _gru_cell(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a GRUBlockCell(x, hidden, weights of reset and update, weights of candidate, their biases).

    Outputs are the reset gate, the update gate, the candidate and the hidden state.
    """
    x, hidden, *weights = node.inputs()
    node.refuse_unless(len(weights) == 4, f"it has {len(weights)} weights and biases; it needs 4")
    width = node.shape(1)[-1]
    operand = node.emit("Concat", [x, hidden], {"axis": 1}, tag="together")
    total = node.emit("MatMul", [operand, weights[0], weights[2]], tag="total")
    gates = node.emit("Sigmoid", [total], tag="gates")
    reset, update = node.emit_all(
        "Split", [gates], {"axis": 1, "sizes": (width, width)}, count=2, tag="gates"
    )
    # The reset gate acts on the state before the product, as in the paper; cuDNN's GRU has it behind.
    remembered = node.emit("Mul", [reset, hidden], tag="reset")
    operand = node.emit("Concat", [x, remembered], {"axis": 1}, tag="again")
    total = node.emit("MatMul", [operand, weights[1], weights[3]], tag="drive")
    candidate = node.emit("Tanh", [total], tag="candidate")
    # u * h + (1 - u) * c with one product less.
    difference = node.emit("Sub", [hidden, candidate], tag="difference")
    share = node.emit("Mul", [update, difference], tag="share")
    return [reset, update, candidate, node.emit("Add", [share, candidate], tag="hidden")]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("BlockLSTM", "BlockLSTMV2"), _layer),
        "GRUBlockCell": _gru_cell,
        "LSTMBlockCell": _cell,
    }
)
