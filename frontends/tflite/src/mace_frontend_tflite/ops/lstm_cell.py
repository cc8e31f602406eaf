"""One direction of an LSTM layer: as the IR's own op, or step by step.

The IR's op computes floats and has neither a projection, nor layer normalization, nor a coupled input gate.
A layer with any of these, and a quantized one, is translated step by step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.ir import DType, Quant, Storage
from mace_frontend_tflite.fused_activation import is_within
from mace_frontend_tflite.node import TfliteNode

GATES = ("input", "forget", "cell", "output")
GATE = Storage(DType.I16, Quant.of(2.0**-12))
ACTIVATED = Storage(DType.I16, Quant.of(2.0**-15))
"""How LiteRT's integer kernel stores the input of a gate's function (Q3.12) and its result (Q0.15).

Source: tensorflow/lite/kernels/lstm_eval.cc, CalculateLstmGateInteger8x8_16.
"""

STEP_NODES = 30
"""About as many nodes as a step is translated to: enough to refuse a long sequence before it takes memory."""


@dataclass(frozen=True)
class InputNumbers:
    """The number of the first input of each kind; gates follow each other as input, forget, cell, output.

    norms: of layer normalization; None where there is none.
    """

    weights: int
    recurrent: int
    peepholes: int
    biases: int
    projection: int
    hidden: int
    cell: int
    norms: int | None = None


@dataclass(frozen=True)
class Clips:
    """Bounds of the cell's state and of the projection; 0 for none."""

    cell: float
    projection: float


@dataclass(frozen=True)
class Storages:
    """How a quantized layer stores its intermediate results; None in a layer of floats.

    gate: sums of a gate.  activated: results of a gate's function.  cell: the cell's state.
    hidden: the hidden state before the projection.  state: the hidden state, which is the layer's output.
    """

    gate: Storage | None
    activated: Storage | None
    cell: Storage | None
    hidden: Storage | None
    state: Storage | None

    @classmethod
    def of(cls, node: TfliteNode, places: InputNumbers) -> Storages:
        """Return them by the node's state and intermediate tensors; RefusedError if those do not say it."""
        if node.storage() is None:
            return cls(None, None, None, None, None)
        cell, inner = node.info(places.cell), node.operator.intermediates
        node.require_consistent(
            cell.quant is not None and cell.dtype is DType.I16 and len(inner) > 4,
            "it does not say how its state is stored",
        )
        node.require_consistent(inner[4] >= 0, "it does not say how its hidden state is stored")
        assert cell.quant is not None
        state = node.storage()
        hidden = state
        # The fifth intermediate tensor is the hidden state before the projection (lstm.cc); without one it is
        # the state.
        if node.has(places.projection):
            hidden = Storage(DType.I8, node.graph.tensors[inner[4]].quant or Quant.of(1.0))
        return cls(GATE, ACTIVATED, Storage(DType.I16, cell.quant), hidden, state)


@dataclass(frozen=True)
class Direction:
    """One direction of a layer."""

    node: TfliteNode
    places: InputNumbers
    clips: Clips

    def run(self, x: str) -> str:
        """Add the layer.

        Return all hidden states [time, batch, units] for a sequence [time, batch, inputs].
        """
        node, places = self.node, self.places
        node.require_consistent(
            all(node.has(places.weights + g) and node.has(places.recurrent + g) for g in (1, 2, 3)),
            "its gates are missing",
        )
        # A cell may lack the input gate, and with it that gate's normalization.
        gates = range(0 if node.has(places.weights) else 1, 4)
        node.require_consistent(
            len({self._has_norm(gate) for gate in gates}) == 1, "only some of its gates are normalized"
        )
        plain = node.has(places.weights) and not node.has(places.projection) and not self._has_norm(1)
        if plain and node.storage() is None:
            return self._add_op(x)
        node.require_supported(
            not self._has_norm(1) or node.storage() is None, "it has layer normalization of quantized gates"
        )
        return self._add_steps(x)

    def _has_norm(self, gate: int) -> bool:
        return self.places.norms is not None and self.node.has(self.places.norms + gate)

    def _add_op(self, x: str) -> str:
        """Add the IR's own op, which is ONNX's.

        Its gates have the order input, output, forget, cell, its peepholes input, output, forget.
        """
        node, places, order = self.node, self.places, (0, 3, 1, 2)
        w, r = (
            self._stack([node.input(first + g) for g in order])
            for first in (places.weights, places.recurrent)
        )
        hidden = node.tensor(r).shape[-1]
        nothing = node.add_constant(np.zeros(hidden, np.float32), tag="no-bias")
        biases = [node.input(places.biases + g) or nothing for g in order]
        b = self._stack([*biases, *(nothing,) * 4])
        states = [self._state(index) for index in (places.hidden, places.cell)]
        initial = ["", ""]
        # Constant states are zeros, with which the op begins by itself.
        if not all(state in node.builder.weights for state in states):
            shapes = [{"shape": (1, *node.tensor(state).shape)} for state in states]
            initial = [
                node.emit("Reshape", [state], shape, tag="state")
                for state, shape in zip(states, shapes, strict=True)
            ]
        p = ""
        if node.has(places.peepholes + 1):
            p = self._stack([node.input(places.peepholes + i) for i in (0, 2, 1)])
        inputs = [x, w, r, b, "", *initial, p]
        attrs = {"hidden": hidden, "cell_clip": self.clips.cell}
        y, *final = node.emit_tagged("LSTM", inputs, attrs, ("sequence", "hidden", "cell"))
        time, _, batch, _ = node.tensor(y).shape
        for index, state in zip((places.hidden, places.cell), final, strict=True):
            node.set_state(index, state)
        return node.emit("Reshape", [y], {"shape": (time, batch, hidden)}, tag="states")

    def _stack(self, parts: Sequence[str]) -> str:
        gates = self.node.emit("Concat", parts, {"axis": 0}, tag="gates")
        return self.node.emit("Reshape", [gates], {"shape": (1, *self.node.tensor(gates).shape)}, tag="gates")

    def _state(self, index: int) -> str:
        """Return a state before the first step: an input at which the graph is cut, or zeros."""
        return self.node.stored_input(index)

    def _add_steps(self, x: str) -> str:
        """Add the layer step by step, each intermediate result stored as LiteRT stores it."""
        node = self.node
        time, batch, inputs = node.tensor(x).shape
        node.require_supported(
            node.importer.has_room_for(time * STEP_NODES), f"its {time} steps are too many to be written out"
        )
        storages = Storages.of(node, self.places)
        rows = node.emit("Reshape", [x], {"shape": (time * batch, inputs)}, tag="rows")
        gates = [g for g in range(4) if node.has(self.places.weights + g)]
        # The inputs of all times are multiplied at once: one large product is faster than one for each step.
        inputs_of = {g: self._project_inputs(g, rows, storages) for g in gates}
        hidden, state = self._state(self.places.hidden), self._state(self.places.cell)
        cell = _Cell(
            self, storages, {g: node.transpose_input(self.places.recurrent + g, (1, 0)) for g in gates}
        )
        hidden_states = []
        for step in range(time):
            step_inputs = {g: _slice_rows(node, inputs_of[g], step * batch, batch) for g in gates}
            hidden, state = cell.step(step_inputs, hidden, state)
            shape = (1, *node.tensor(hidden).shape)
            hidden_states.append(node.emit("Reshape", [hidden], {"shape": shape}, tag="step"))
        node.set_state(self.places.hidden, hidden)
        node.set_state(self.places.cell, state)
        return node.emit("Concat", hidden_states, {"axis": 0}, tag="sequence", storage=storages.state)

    def _project_inputs(self, gate: int, rows: str, storages: Storages) -> str:
        """Return the products of the sequence with a gate's weights, with the bias, at all times at once."""
        node, places = self.node, self.places
        inputs = [rows, node.transpose_input(places.weights + gate, (1, 0))]
        # With layer normalization the bias is added behind it.
        if node.has(places.biases + gate) and not self._has_norm(gate):
            inputs.append(node.input(places.biases + gate))
        return node.emit("MatMul", inputs, tag=f"{GATES[gate]}-driven", storage=storages.gate)


def _slice_rows(node: TfliteNode, tensor: str, first: int, count: int) -> str:
    width = node.tensor(tensor).shape[1]
    attrs = {"starts": (first, 0), "sizes": (count, width), "steps": (1, 1)}
    return node.emit("Slice", [tensor], attrs, tag="now")


@dataclass(frozen=True)
class _Cell:
    """One step of the layer.

    recurrent: number of a gate -> its recurrent weights, transposed.
    """

    direction: Direction
    storages: Storages
    recurrent: Mapping[int, str]

    def step(self, inputs: Mapping[int, str], hidden: str, state: str) -> tuple[str, str]:
        """Add one step; return the hidden state and the state of the cell after it.

        inputs: number of a gate -> the products of this step's input with the gate's weights.
        """
        node, storages, limit = self.direction.node, self.storages, self.direction.clips.cell
        forget = self._gate(1, inputs[1], hidden, state)
        candidate = self._gate(2, inputs[2], hidden, "")
        if 0 in inputs:
            admitted = self._gate(0, inputs[0], hidden, state)
        else:
            # Without weights of an input gate it is coupled to the forget gate (CIFG): what is forgotten is
            # replaced.
            one = node.add_constant(np.float32(1), tag="one")
            admitted = node.emit("Sub", [one, forget], tag="admitted", storage=storages.activated)
        remembered = node.emit("Mul", [state, forget], tag="kept", storage=storages.cell)
        added = node.emit("Mul", [admitted, candidate], tag="added", storage=storages.cell)
        cell = node.emit("Add", [remembered, added], tag="cell", storage=storages.cell)
        if limit and not is_within(storages.cell, -limit, limit):
            bounds = {"min": -limit, "max": limit}
            cell = node.emit("Clip", [cell], bounds, tag="cell", storage=storages.cell)
        # The output gate alone sees the cell's state after this step through its peephole.
        output = self._gate(3, inputs[3], hidden, cell)
        squashed = node.emit("Tanh", [cell], tag="squashed", storage=storages.activated)
        hidden = node.emit("Mul", [output, squashed], tag="hidden", storage=storages.hidden)
        return self._project(hidden), cell

    def _gate(self, gate: int, inputs: str, hidden: str, state: str) -> str:
        """Return a gate's result.  state: the cell's, for a peephole; "" for none."""
        node, storages, places = self.direction.node, self.storages, self.direction.places
        weights = self.recurrent[gate]
        recurrent = node.emit("MatMul", [hidden, weights], tag="recurrent", storage=storages.gate)
        total = node.emit("Add", [inputs, recurrent], tag=GATES[gate], storage=storages.gate)
        peephole = places.peepholes + (0, 1, -1, 2)[gate]
        if state and node.has(peephole):
            seen = node.emit("Mul", [state, node.input(peephole)], tag="seen")
            total = node.emit("Add", [total, seen], tag="peephole", storage=storages.gate)
        if places.norms is not None and node.has(places.norms + gate):
            operands = [total, node.input(places.norms + gate), node.input(places.biases + gate)]
            # The kernel's kNormalizationConstant (MeanStddevNormalization in portable_tensor_utils.cc).
            total = node.emit("LayerNorm", operands, {"axis": -1, "epsilon": 1e-8}, tag="norm")
        function = "Tanh" if gate == 2 else "Sigmoid"
        return node.emit(function, [total], tag=f"{GATES[gate]}-gate", storage=storages.activated)

    def _project(self, hidden: str) -> str:
        node, place = self.direction.node, self.direction.places.projection
        if not node.has(place):
            return hidden
        inputs = [hidden, node.transpose_input(place, (1, 0))]
        if node.has(place + 1):
            inputs.append(node.input(place + 1))
        limit = self.direction.clips.projection or np.inf
        bounds = {"low": -limit, "high": limit}
        return node.emit("MatMul", inputs, bounds, tag="projected", storage=self.storages.state)
