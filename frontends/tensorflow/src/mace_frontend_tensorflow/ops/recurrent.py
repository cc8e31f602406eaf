"""Recurrent cells and layers that are one operator, their weights in TensorFlow's order of gates.

Operands and formulas: tensorflow/core/ops/rnn_ops.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler

STEPS = 4096
"""Time steps of a layer that is written out."""


class _Lstm:
    """One LSTM cell: which gates lie where in its weights, what bounds its state and which peepholes it has."""

    def __init__(self, node: TensorFlowNode, first: int, order: str) -> None:
        self.node, self.order = node, order
        self.weights, self.bias = node.input(first), node.input(first + 4)
        peephole = node.attr("use_peephole", False)
        self.peepholes = (
            dict(zip("ifo", (node.input(first + 1 + i) for i in range(3)), strict=True)) if peephole else {}
        )
        self.width = node.builder.shape(self.weights)[-1] // 4
        self.clip = node.attr("cell_clip", 0.0 if node.op == "BlockLSTMV2" else 3.0)
        self.forget = node.attr("forget_bias", 1.0) if order == "icfo" else 0.0

    def step(self, x: str, state: str, hidden: str) -> dict[str, str]:
        """All that one step computes, by the names of the operator's outputs; tensors are [batch, width]."""
        node = self.node
        together = node.emit("Concat", [x, hidden], {"axis": 1}, tag="together")
        total = node.emit("MatMul", [together, self.weights, self.bias], tag="total")
        parts = node.emit_all("Split", [total], {"axis": 1, "sizes": (self.width,) * 4}, count=4, tag="gates")
        driven = dict(zip(self.order, parts, strict=True))
        made = {
            "i": self._gate("i", driven["i"], state),
            "ci": node.emit("Tanh", [driven["c"]], tag="candidate"),
        }
        forget = driven["f"]
        if self.forget:
            forget = node.emit(
                "Add", [forget, node.add_constant(self.forget, DType.F32, "forget-bias")], tag="forget"
            )
        made["f"] = self._gate("f", forget, state)
        kept = node.emit("Mul", [state, made["f"]], tag="kept")
        new = node.emit("Add", [kept, node.emit("Mul", [made["ci"], made["i"]], tag="added")], tag="state")
        if self.clip > 0:
            new = node.emit("Clip", [new], {"min": -self.clip, "max": self.clip}, tag="state")
        made["cs"], made["o"] = new, self._gate("o", driven["o"], new)
        made["co"] = node.emit("Tanh", [new], tag="squashed")
        made["h"] = node.emit("Mul", [made["o"], made["co"]], tag="hidden")
        return made

    def _gate(self, name: str, driven: str, state: str) -> str:
        if name in self.peepholes:
            seen = self.node.emit("Mul", [state, self.peepholes[name]], tag="peephole")
            driven = self.node.emit("Add", [driven, seen], tag="seen")
        return self.node.emit("Sigmoid", [driven], tag=f"{name}-gate")


OUTPUTS = ("i", "cs", "f", "o", "ci", "co", "h")


def _cell(node: TensorFlowNode) -> Sequence[Held]:
    """LSTMBlockCell(x, state, hidden, weights, 3 peepholes, bias)."""
    made = _Lstm(node, 3, "icfo").step(node.input(0), node.input(1), node.input(2))
    return [made[name] for name in OUTPUTS]


def _layer(node: TensorFlowNode) -> Sequence[Held]:
    """BlockLSTM(length, x, state, hidden, weights, 3 peepholes, bias): sequences are [time, batch, width], zeros behind the length."""
    time, batch, width = node.shape(1)
    length = node.integer(0, "length")
    node.refuse_unless(0 < time <= STEPS and 0 <= length <= time, f"{length} of {time} steps")
    cell = _Lstm(node, 4, "icfo" if node.op == "BlockLSTM" else "ifco")
    state, hidden = node.input(2), node.input(3)
    steps: dict[str, list[str]] = {name: [] for name in OUTPUTS}
    for now in range(length):
        cut = {"starts": (now, 0, 0), "sizes": (1, batch, width), "steps": (1, 1, 1)}
        row = node.emit("Slice", [node.input(1)], cut, tag="now")
        made = cell.step(node.reshape(row, (batch, width)), state, hidden)
        state, hidden = made["cs"], made["h"]
        for name, tensor in made.items():
            steps[name].append(node.reshape(tensor, (1, *node.builder.shape(tensor)), "step"))
    return [_joined(node, steps[name], (time, batch, cell.width)) for name in OUTPUTS]


def _joined(node: TensorFlowNode, steps: list[str], shape: tuple[int, int, int]) -> str:
    """A sequence of steps, zeros where there are too few."""
    missing = shape[0] - len(steps)
    if missing:
        one = node.add_constant(np.zeros((1, 1, 1), np.float32), tag="zero")
        steps = [*steps, node.emit("Expand", [one], {"shape": (missing, *shape[1:])}, tag="rest")]
    return steps[0] if len(steps) == 1 else node.emit("Concat", steps, {"axis": 0}, tag="sequence")


def _gru_cell(node: TensorFlowNode) -> Sequence[Held]:
    """GRUBlockCell(x, hidden, weights of reset and update, weights of candidate, their biases).

    Outputs r, u, c, h.
    """
    x, hidden, *weights = node.inputs()
    node.refuse_unless(len(weights) == 4, f"{len(weights)} weights; export the model again")
    width = node.shape(1)[-1]
    together = node.emit("Concat", [x, hidden], {"axis": 1}, tag="together")
    total = node.emit("MatMul", [together, weights[0], weights[2]], tag="total")
    opened = node.emit("Sigmoid", [total], tag="gates")
    reset, update = node.emit_all(
        "Split", [opened], {"axis": 1, "sizes": (width, width)}, count=2, tag="gates"
    )
    again = node.emit("Concat", [x, node.emit("Mul", [reset, hidden], tag="reset")], {"axis": 1}, tag="again")
    candidate = node.emit(
        "Tanh", [node.emit("MatMul", [again, weights[1], weights[3]], tag="drive")], tag="candidate"
    )
    difference = node.emit("Sub", [hidden, candidate], tag="difference")
    new = node.emit("Add", [node.emit("Mul", [update, difference], tag="share"), candidate], tag="hidden")
    return [reset, update, candidate, new]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("BlockLSTM", "BlockLSTMV2"), _layer),
        "GRUBlockCell": _gru_cell,
        "LSTMBlockCell": _cell,
    }
)
