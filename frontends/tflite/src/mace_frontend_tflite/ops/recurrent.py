"""Recurrent layers over whole sequences. A state that the file keeps between runs begins every run with zeros here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import tflite

from mace_core.ir import DType, Quant, Storage
from mace_frontend_tflite.node import Node
from mace_frontend_tflite.ops import Handler
from mace_frontend_tflite.ops.activation import FUSED, LIMITS

GATES = ("input", "forget", "cell", "output")
WEIGHTS, RECURRENT, PEEPHOLES, BIASES, PROJECTION, CELL_STATE, NORMS = 1, 5, 9, 12, 16, 19, 20
"""Numbers of the first inputs of each kind (UnidirectionalSequenceLSTM in tensorflow/lite/kernels)."""

GATE = Storage(DType.I16, Quant.of(2.0**-12))
ACTIVATED = Storage(DType.I16, Quant.of(2.0**-15))
"""How TensorFlow Lite stores what goes into a gate's function and what comes out."""


def _lstm(node: Node) -> Sequence[str]:
    options = node.options("UnidirectionalSequenceLSTMOptions")
    node.refuse_unless(options.FusedActivationFunction() == tflite.ActivationFunctionType.TANH, "a cell activation other than tanh")
    node.refuse_unless(all(node.has(WEIGHTS + g) for g in (1, 2, 3)), "gates are missing")
    x = node.input(0)
    if not options.TimeMajor():
        x = node.emit("Transpose", [x], {"perm": (1, 0, 2)}, tag="time-first")
    plain = node.has(WEIGHTS) and not any(node.has(i) for i in (PROJECTION, NORMS + 1, PEEPHOLES))
    if plain and node.storage() is None:
        y = _as_one(node, x, float(options.CellClip()))
    else:
        node.refuse_unless(not node.has(NORMS + 1) or node.storage() is None, "layer normalization of quantized gates")
        y = _unrolled(node, x, Clips(float(options.CellClip()), float(options.ProjClip())))
    return node.done("Identity" if options.TimeMajor() else "Transpose", [y], {} if options.TimeMajor() else {"perm": (1, 0, 2)})


def _as_one(node: Node, x: str, clip: float) -> str:
    """The IR's own op: gates in the order input, output, forget, cell."""
    order = (0, 3, 1, 2)
    w, r = (_stacked(node, first, order) for first in (WEIGHTS, RECURRENT))
    hidden = node.tensor(r).shape[-1]
    biases = [node.input(BIASES + g) or node.weight(np.zeros(hidden, np.float32), tag="no-bias") for g in order]
    flat = node.emit("Concat", [*biases, node.weight(np.zeros(4 * hidden, np.float32), tag="no-bias")], {"axis": 0}, tag="bias")
    b = node.emit("Reshape", [flat], {"shape": (1, 8 * hidden)}, tag="bias")
    y = node.emit("LSTM", [x, w, r, b], {"hidden": hidden, "cell_clip": clip}, tag="sequence")
    time, _, batch, _ = node.tensor(y).shape
    return node.emit("Reshape", [y], {"shape": (time, batch, hidden)}, tag="states")


def _stacked(node: Node, first: int, order: Sequence[int]) -> str:
    whole = node.emit("Concat", [node.input(first + g) for g in order], {"axis": 0}, tag="gates")
    return node.emit("Reshape", [whole], {"shape": (1, *node.tensor(whole).shape)}, tag="gates")


@dataclass(frozen=True)
class Clips:
    """Bounds of the cell's state and of the projection; 0 for none."""

    cell: float
    projection: float


@dataclass(frozen=True)
class Storages:
    """How a quantized layer stores what it computes on the way; None in one of floats."""

    gate: Storage | None
    activated: Storage | None
    cell: Storage | None
    hidden: Storage | None
    state: Storage | None

    @classmethod
    def of(cls, node: Node) -> Storages:
        """From the node's state and intermediate tensors."""
        if node.storage() is None:
            return cls(None, None, None, None, None)
        cell, inner = node.info(CELL_STATE), node.operator.intermediates
        node.refuse_unless(cell.quant is not None and cell.dtype is DType.I16 and len(inner) > 4, "it does not say how its state is stored")
        hidden = node.graph.tensors[inner[4]]
        assert cell.quant is not None
        quant = hidden.quant or Quant.of(1.0)
        return cls(GATE, ACTIVATED, Storage(DType.I16, cell.quant), Storage(DType.I8, quant), node.storage())


def _unrolled(node: Node, x: str, clips: Clips) -> str:
    """Step by step, each intermediate result stored as TensorFlow Lite stores it."""
    time, batch, inputs = node.tensor(x).shape
    how = Storages.of(node)
    rows = node.emit("Reshape", [x], {"shape": (time * batch, inputs)}, tag="rows")
    gates = [g for g in range(4) if node.has(WEIGHTS + g)]
    driven = {g: _driven(node, g, rows, how) for g in gates}
    cell = Cell(node, how, clips)
    hidden, state = cell.start(batch)
    made = []
    for step in range(time):
        now = {g: _rows(node, driven[g], step * batch, batch) for g in gates}
        hidden, state = cell.step(now, hidden, state)
        made.append(node.emit("Reshape", [hidden], {"shape": (1, *node.tensor(hidden).shape)}, tag="step"))
    return node.emit("Concat", made, {"axis": 0}, tag="sequence", storage=how.state)


def _driven(node: Node, gate: int, rows: str, how: Storages) -> str:
    """What the sequence puts into a gate, at all times at once."""
    weights = node.permuted(WEIGHTS + gate, (1, 0))
    norm = node.has(NORMS + gate)
    bias = [node.input(BIASES + gate)] if node.has(BIASES + gate) and not norm else []
    return node.emit("MatMul", [rows, weights, *bias], tag=f"{GATES[gate]}-driven", storage=how.gate)


def _rows(node: Node, tensor: str, first: int, count: int) -> str:
    width = node.tensor(tensor).shape[1]
    return node.emit("Slice", [tensor], {"starts": (first, 0), "sizes": (count, width), "steps": (1, 1)}, tag="now")


@dataclass(frozen=True)
class Cell:
    """One step of the layer."""

    node: Node
    how: Storages
    clips: Clips

    def start(self, batch: int) -> tuple[str, str]:
        """Hidden and cell state of zeros."""
        node = self.node
        states = []
        for index, storage in ((CELL_STATE - 1, self.how.state), (CELL_STATE, self.how.cell)):
            width = node.info(index).shape[-1]
            zero = storage.quant.zero_point[0] if storage else 0
            array = np.full((batch, width), zero, storage.dtype.numpy if storage else np.float32)
            states.append(node.weight(array, storage and storage.quant, tag="zeros"))
        return states[0], states[1]

    def step(self, driven: Mapping[int, str], hidden: str, state: str) -> tuple[str, str]:
        """Return the new hidden and cell state."""
        node, how = self.node, self.how
        forget = self._gate(1, driven, hidden, state, "Sigmoid")
        candidate = self._gate(2, driven, hidden, "", "Tanh")
        if 0 in driven:
            admitted = self._gate(0, driven, hidden, state, "Sigmoid")
        else:
            admitted = node.emit("Sub", [node.weight(np.float32(1), tag="one"), forget], storage=how.activated)
        kept = node.emit("Mul", [state, forget], tag="kept", storage=how.cell)
        added = node.emit("Mul", [admitted, candidate], tag="added", storage=how.cell)
        new = node.emit("Add", [kept, added], tag="cell", storage=how.cell)
        if self.clips.cell and not node.clamped(new, -self.clips.cell, self.clips.cell):
            new = node.emit("Clip", [new], {"min": -self.clips.cell, "max": self.clips.cell}, tag="cell", storage=how.cell)
        shown = self._gate(3, driven, hidden, new, "Sigmoid")
        squashed = node.emit("Tanh", [new], tag="squashed", storage=how.activated)
        return self._projected(node.emit("Mul", [shown, squashed], tag="hidden", storage=how.hidden)), new

    def _gate(self, gate: int, driven: Mapping[int, str], hidden: str, state: str, function: str) -> str:
        node, how = self.node, self.how
        again = node.emit("MatMul", [hidden, node.permuted(RECURRENT + gate, (1, 0))], tag="recurrent", storage=how.gate)
        total = node.emit("Add", [driven[gate], again], tag=GATES[gate], storage=how.gate)
        peephole = PEEPHOLES + (0, 1, -1, 2)[gate]
        if state and gate != 2 and node.has(peephole):
            total = node.emit("Add", [total, node.emit("Mul", [state, node.input(peephole)])], tag="peephole", storage=how.gate)
        if node.has(NORMS + gate):
            total = node.emit(
                "LayerNorm", [total, node.input(NORMS + gate), node.input(BIASES + gate)], {"axis": -1, "epsilon": 1e-8}, tag="norm"
            )
        return node.emit(function, [total], tag=f"{GATES[gate]}-gate", storage=how.activated)

    def _projected(self, hidden: str) -> str:
        node, how = self.node, self.how
        if not node.has(PROJECTION):
            return hidden if how.hidden == how.state else node.emit("Quantize", [hidden], tag="state", storage=how.state)
        bias = [node.input(PROJECTION + 1)] if node.has(PROJECTION + 1) else []
        most = self.clips.projection or np.inf
        return node.emit("MatMul", [hidden, node.permuted(PROJECTION, (1, 0)), *bias], {"low": -most, "high": most}, storage=how.state)


def _rnn(node: Node) -> Sequence[str]:
    """UNIDIRECTIONAL_SEQUENCE_RNN(x, weights, recurrent weights, bias, state)."""
    options = node.options("SequenceRNNOptions")
    return _simple(node, bool(options.TimeMajor()), options.FusedActivationFunction())


def _simple(node: Node, time_major: bool, function: int) -> Sequence[str]:
    x = node.input(0)
    if not time_major:
        x = node.emit("Transpose", [x], {"perm": (1, 0, 2)}, tag="time-first")
    hidden = node.shape(2)[-1]
    w, r = (node.emit("Reshape", [node.input(i)], {"shape": (1, *node.shape(i))}, tag="weights") for i in (1, 2))
    zeros = node.weight(np.zeros(hidden, np.float32), tag="no-bias")
    b = node.emit("Reshape", [node.emit("Concat", [node.input(3), zeros], {"axis": 0})], {"shape": (1, 2 * hidden)}, tag="bias")
    name = FUSED.get(function) or ("Relu" if LIMITS.get(function) == LIMITS[tflite.ActivationFunctionType.RELU] else "")
    node.refuse_unless(bool(name) and node.storage() is None, "its activation, or its quantization")
    y = node.emit("RNN", [x, w, r, b], {"hidden": hidden, "activations": (name,)}, tag="sequence")
    time, _, batch, _ = node.tensor(y).shape
    states = node.emit("Reshape", [y], {"shape": (time, batch, hidden)}, tag="states")
    return [states] if time_major else node.done("Transpose", [states], {"perm": (1, 0, 2)})


HANDLERS: Mapping[str, Handler] = MappingProxyType({"UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm, "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn})
