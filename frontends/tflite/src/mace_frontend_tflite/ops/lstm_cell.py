"""One direction of an LSTM layer: as the IR's own op, or step by step."""

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
"""How TensorFlow Lite stores what goes into a gate's function and what comes out."""

STEP_NODES = 30
"""About as many nodes as a step is written out to."""


@dataclass(frozen=True)
class Places:
    """Numbers of the first inputs of each kind, gates in the order input, forget, cell, output (tensorflow/lite/kernels).

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
    """How a quantized layer stores what it computes on the way; None in one of floats."""

    gate: Storage | None
    activated: Storage | None
    cell: Storage | None
    hidden: Storage | None
    state: Storage | None

    @classmethod
    def of(cls, node: TfliteNode, places: Places) -> Storages:
        """From the node's state and intermediate tensors."""
        if node.storage() is None:
            return cls(None, None, None, None, None)
        cell, inner = node.info(places.cell), node.operator.intermediates
        node.refuse_unless(
            cell.quant is not None and cell.dtype is DType.I16 and len(inner) > 4,
            "it does not say how its state is stored",
        )
        node.refuse_unless(inner[4] >= 0, "it does not say how its hidden state is stored")
        assert cell.quant is not None
        state = node.storage()
        hidden = (
            Storage(DType.I8, node.graph.tensors[inner[4]].quant or Quant.of(1.0))
            if node.has(places.projection)
            else state
        )
        return cls(GATE, ACTIVATED, Storage(DType.I16, cell.quant), hidden, state)


@dataclass(frozen=True)
class Direction:
    """A layer's inputs of one direction."""

    node: TfliteNode
    places: Places
    clips: Clips

    def run(self, x: str) -> str:
        """All hidden states [time, batch, units] for a sequence [time, batch, inputs]."""
        node, places = self.node, self.places
        node.refuse_unless(
            all(node.has(places.weights + g) and node.has(places.recurrent + g) for g in (1, 2, 3)),
            "gates are missing",
        )
        plain = node.has(places.weights) and not node.has(places.projection) and not self._has_norms()
        if plain and node.storage() is None:
            return self._as_one(x)
        node.refuse_unless(
            not self._has_norms() or node.storage() is None, "layer normalization of quantized gates"
        )
        return self._unrolled(x)

    def _has_norms(self) -> bool:
        return self.places.norms is not None and self.node.has(self.places.norms + 1)

    def _as_one(self, x: str) -> str:
        """The IR's own op: gates in the order input, output, forget, cell.

        Peepholes input, output, forget.
        """
        node, places, order = self.node, self.places, (0, 3, 1, 2)
        w, r = (
            self._stacked([node.input(first + g) for g in order])
            for first in (places.weights, places.recurrent)
        )
        hidden = node.tensor(r).shape[-1]
        nothing = node.add_constant(np.zeros(hidden, np.float32), tag="no-bias")
        biases = [node.input(places.biases + g) or nothing for g in order]
        b = self._stacked([*biases, *(nothing,) * 4])
        states = [self._state(index) for index in (places.hidden, places.cell)]
        at_zero = all(s in node.builder.weights for s in states)
        rows = (
            []
            if at_zero
            else [
                node.emit("Reshape", [s], {"shape": (1, *node.tensor(s).shape)}, tag="state") for s in states
            ]
        )
        p = (
            self._stacked([node.input(places.peepholes + i) for i in (0, 2, 1)])
            if node.has(places.peepholes + 1)
            else ""
        )
        inputs = [x, w, r, b, "", *(rows or ("", "")), p]
        attrs = {"hidden": hidden, "cell_clip": self.clips.cell}
        y, *ends = node.emit_tagged("LSTM", inputs, attrs, ("sequence", "hidden", "cell"))
        time, _, batch, _ = node.tensor(y).shape
        for index, end in zip((places.hidden, places.cell), ends, strict=True):
            node.set_state(index, end)
        return node.emit("Reshape", [y], {"shape": (time, batch, hidden)}, tag="states")

    def _stacked(self, parts: Sequence[str]) -> str:
        whole = self.node.emit("Concat", parts, {"axis": 0}, tag="gates")
        return self.node.emit("Reshape", [whole], {"shape": (1, *self.node.tensor(whole).shape)}, tag="gates")

    def _state(self, index: int) -> str:
        """A state before the first step: what the graph is cut at, or zeros."""
        return self.node.stored(index)

    def _unrolled(self, x: str) -> str:
        """Step by step, each intermediate result stored as TensorFlow Lite stores it."""
        node = self.node
        time, batch, inputs = node.tensor(x).shape
        node.refuse_unless(
            node.importer.has_room_for(time * STEP_NODES), f"{time} steps are too many to be written out"
        )
        how = Storages.of(node, self.places)
        rows = node.emit("Reshape", [x], {"shape": (time * batch, inputs)}, tag="rows")
        gates = [g for g in range(4) if node.has(self.places.weights + g)]
        driven = {g: self._driven(g, rows, how) for g in gates}
        hidden, state = self._state(self.places.hidden), self._state(self.places.cell)
        cell = _Cell(self, how, {g: node.permuted(self.places.recurrent + g, (1, 0)) for g in gates})
        made = []
        for step in range(time):
            now = {g: _rows(node, driven[g], step * batch, batch) for g in gates}
            hidden, state = cell.step(now, hidden, state)
            made.append(
                node.emit("Reshape", [hidden], {"shape": (1, *node.tensor(hidden).shape)}, tag="step")
            )
        node.set_state(self.places.hidden, hidden)
        node.set_state(self.places.cell, state)
        return node.emit("Concat", made, {"axis": 0}, tag="sequence", storage=how.state)

    def _driven(self, gate: int, rows: str, how: Storages) -> str:
        """What the sequence puts into a gate, at all times at once."""
        node, places = self.node, self.places
        weights = node.permuted(places.weights + gate, (1, 0))
        bias = (
            [node.input(places.biases + gate)]
            if node.has(places.biases + gate) and not self._has_norms()
            else []
        )
        return node.emit("MatMul", [rows, weights, *bias], tag=f"{GATES[gate]}-driven", storage=how.gate)


def _rows(node: TfliteNode, tensor: str, first: int, count: int) -> str:
    width = node.tensor(tensor).shape[1]
    return node.emit(
        "Slice", [tensor], {"starts": (first, 0), "sizes": (count, width), "steps": (1, 1)}, tag="now"
    )


@dataclass(frozen=True)
class _Cell:
    """One step of the layer. recurrent: the weights of each gate, turned."""

    of: Direction
    how: Storages
    recurrent: Mapping[int, str]

    def step(self, driven: Mapping[int, str], hidden: str, state: str) -> tuple[str, str]:
        """Return the new hidden and cell state."""
        node, how, most = self.of.node, self.how, self.of.clips.cell
        forget = self._gate(1, driven[1], hidden, state)
        candidate = self._gate(2, driven[2], hidden, "")
        if 0 in driven:
            admitted = self._gate(0, driven[0], hidden, state)
        else:
            one = node.add_constant(np.float32(1), tag="one")
            admitted = node.emit("Sub", [one, forget], tag="admitted", storage=how.activated)
        kept = node.emit("Mul", [state, forget], tag="kept", storage=how.cell)
        added = node.emit("Mul", [admitted, candidate], tag="added", storage=how.cell)
        new = node.emit("Add", [kept, added], tag="cell", storage=how.cell)
        if most and not is_within(how.cell, -most, most):
            new = node.emit("Clip", [new], {"min": -most, "max": most}, tag="cell", storage=how.cell)
        shown = self._gate(3, driven[3], hidden, new)
        squashed = node.emit("Tanh", [new], tag="squashed", storage=how.activated)
        return self._projected(node.emit("Mul", [shown, squashed], tag="hidden", storage=how.hidden)), new

    def _gate(self, gate: int, driven: str, hidden: str, state: str) -> str:
        node, how, places = self.of.node, self.how, self.of.places
        again = node.emit("MatMul", [hidden, self.recurrent[gate]], tag="recurrent", storage=how.gate)
        total = node.emit("Add", [driven, again], tag=GATES[gate], storage=how.gate)
        peephole = places.peepholes + (0, 1, -1, 2)[gate]
        if state and node.has(peephole):
            seen = node.emit("Mul", [state, node.input(peephole)], tag="seen")
            total = node.emit("Add", [total, seen], tag="peephole", storage=how.gate)
        if places.norms is not None and node.has(places.norms + gate):
            inputs = [total, node.input(places.norms + gate), node.input(places.biases + gate)]
            total = node.emit("LayerNorm", inputs, {"axis": -1, "epsilon": 1e-8}, tag="norm")
        return node.emit(
            "Tanh" if gate == 2 else "Sigmoid", [total], tag=f"{GATES[gate]}-gate", storage=how.activated
        )

    def _projected(self, hidden: str) -> str:
        node, how, place = self.of.node, self.how, self.of.places.projection
        if not node.has(place):
            return hidden
        bias = [node.input(place + 1)] if node.has(place + 1) else []
        most = self.of.clips.projection or np.inf
        limits = {"low": -most, "high": most}
        return node.emit(
            "MatMul",
            [hidden, node.permuted(place, (1, 0)), *bias],
            limits,
            tag="projected",
            storage=how.state,
        )
