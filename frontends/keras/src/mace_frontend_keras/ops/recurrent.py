"""Recurrent layers, and layers that apply another one to each step of a sequence or in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import Array
from mace_frontend_keras.layer import KerasLayer
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.activation import function_name, simple_op

ACTIVATIONS: Mapping[str, tuple[str, float | None, float | None]] = MappingProxyType(
    {
        "Relu": ("Relu", None, None),
        "Tanh": ("Tanh", None, None),
        "Sigmoid": ("Sigmoid", None, None),
        "Identity": ("Affine", 1.0, 0.0),
        "LeakyRelu": ("LeakyRelu", 0.2, None),
        "HardSigmoid": ("HardSigmoid", 0.2, 0.5),
        "Elu": ("Elu", 1.0, None),
        "Softsign": ("Softsign", None, None),
        "Softplus": ("Softplus", None, None),
    }
)
"""Op of an activation -> its name in the recurrent ops, with the alpha and beta that it needs."""


@dataclass(frozen=True)
class CellKind:
    """A kind of cell.

    gates: for each gate of the IR's op its place in Keras's weights.
    activations: the settings of its functions, in the order of the op.
    states: the number of its states.
    """

    op: str
    gates: tuple[int, ...]
    activations: tuple[str, ...]
    states: int


CELLS: Mapping[str, CellKind] = MappingProxyType(
    {
        "LSTMCell": CellKind("LSTM", (0, 3, 1, 2), ("recurrent_activation", "activation", "activation"), 2),
        "GRUCell": CellKind("GRU", (0, 1, 2), ("recurrent_activation", "activation"), 1),
        "SimpleRNNCell": CellKind("RNN", (0,), ("activation",), 1),
    }
)
DEFAULTS: Mapping[str, str] = MappingProxyType({"activation": "tanh", "recurrent_activation": "sigmoid"})


@dataclass(frozen=True)
class SequenceResults:
    """Results of a layer for a sequence: all steps [N, T, H] by time, the last one and the states [N, H]."""

    steps: str
    last: str
    states: tuple[str, ...]


def run(node: KerasNode, layer: KerasLayer, x: str, states: Sequence[str]) -> SequenceResults:
    """Run a recurrent layer over x [N, T, I] from these states, or from zero.

    Stacked cells one after another.
    """
    get = node.child_node(node.name, layer).get
    node.refuse_unless(
        not get("time_major"), "it wants the time before the batch; transpose before the layer"
    )
    node.require_consistent(
        len(node.shape(x)) == 3,
        f"it is given a tensor of rank {len(node.shape(x))}, [batch, time, features] was expected",
    )
    cell = layer.children["cell"]
    cells = list(cell.children.values()) if cell.kind == "StackedRNNCells" else [cell]
    unknown = [inner.kind for inner in cells if inner.kind not in CELLS]
    node.refuse_unless(
        bool(cells) and not unknown, f"cells {unknown} are not supported; use LSTM, GRU or SimpleRNN"
    )
    counts = [CELLS[inner.kind].states for inner in cells]
    node.require_consistent(len(states) in (0, sum(counts)), f"it is given {len(states)} states")
    lasting: tuple[str, ...] = ()
    # States that the call is given take the place of those that the layer keeps from run to run.
    if get("stateful") and not states:
        states = lasting = _begin_states(node, layer, cells, node.shape(x)[0])
    results = SequenceResults(x, x, ())
    final: tuple[str, ...] = ()
    for i, inner in enumerate(cells):
        initial = states[sum(counts[:i]) : sum(counts[: i + 1])]
        results = _run_cell(node, inner, (results.steps, bool(get("go_backwards"))), initial)
        final = (*final, *results.states)
    for state, after in zip(lasting, final, strict=False):
        node.builder.set_next(state, after)
    return SequenceResults(results.steps, results.last, final)


def _begin_states(
    node: KerasNode, layer: KerasLayer, cells: Sequence[KerasLayer], batch: int
) -> tuple[str, ...]:
    """Declare the states that a stateful layer keeps from run to run.

    Zeros at first, for Keras saves no states.
    """
    # Two calls would share the states, in an order that the graph does not state.
    remedy = "give each call a layer of its own, or make it with stateful=False"
    node.refuse_unless(
        layer.name not in node.importer.stateful, f"it is stateful and called more than once; {remedy}"
    )
    node.importer.stateful.add(layer.name)
    states = []
    for cell in cells:
        owner = layer if len(cells) == 1 else cell
        zeros = np.zeros((batch, node.child_node(node.name, cell).integer("units")), np.float32)
        for tag in "hc"[: CELLS[cell.kind].states]:
            states.append(node.builder.state(f"{owner.name}/{tag}", zeros))
    return tuple(states)


def _run_cell(
    node: KerasNode, cell: KerasLayer, sequence: tuple[str, bool], states: Sequence[str]
) -> SequenceResults:
    """Run one cell.

    sequence: x [N, T, I], and whether it is run backwards.
    """
    x, backwards = sequence
    kind = CELLS[cell.kind]
    inner = node.child_node(node.name, cell)
    weights = _weights(inner, kind)
    hidden = inner.integer("units")
    batch, length = node.shape(x)[:2]
    # The IR's ops, which are ONNX's, have the time first, and an axis of directions in states and results.
    by_time = node.emit("Transpose", [x], {"perm": (1, 0, 2)}, tag="time-first")
    shape = {"shape": (1, batch, hidden)}
    initial = [node.emit("Reshape", [node.to_float(state)], shape, tag="state") for state in states]
    attrs: dict[str, Any] = {
        "hidden": hidden,
        "direction": "reverse" if backwards else "forward",
        **_functions(inner, kind),
    }
    if kind.op == "GRU":
        # Keras 2 made a GRU as in cuDNN the default: the reset gate is applied behind the product.
        attrs["linear_before_reset"] = bool(inner.get("reset_after", False))
    names = [node.builder.fresh(f"{node.name}/{tag}") for tag in ("steps", "h", "c")[: kind.states + 1]]
    # The empty name is that of the lengths of sequences, which are all the same.
    inputs = [by_time, *weights, *(["", *initial] if initial else [])]
    output, *final = node.builder.add(kind.op, inputs, attrs, outputs=names, like=node.origin)
    by_batch = node.emit("Transpose", [output], {"perm": (2, 0, 1, 3)}, tag="batch-first")
    steps = node.emit("Reshape", [by_batch], {"shape": (batch, length, hidden)}, tag="all")
    rows = [node.emit("Reshape", [state], {"shape": (batch, hidden)}, tag="end") for state in final]
    return SequenceResults(steps, rows[0], tuple(rows))


def _weights(cell: KerasNode, kind: CellKind) -> list[str]:
    """Return the op's weights, recurrent weights and biases, added once for all calls of the cell."""

    def make() -> list[str]:
        kernel, recurrent = cell.array("kernel"), cell.array("recurrent_kernel")
        count = len(kind.gates)
        hidden = cell.integer("units")
        cell.require_consistent(
            recurrent.shape == (hidden, count * hidden),
            f"its recurrent_kernel has shape {list(recurrent.shape)}",
        )
        arrays = [_order_gates(matrix.T, kind)[None] for matrix in (kernel, recurrent)]
        if cell.has("bias"):
            bias = cell.array("bias")
            # A GRU with reset_after has a recurrent bias as well; the op has one in any case.
            pair = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
            arrays.append(np.concatenate([_order_gates(row, kind) for row in pair])[None])
        else:
            arrays.append(np.zeros((1, 2 * count * hidden), np.float32))
        return [
            cell.builder.weight(f"{cell.layer.name}/{tag}", array.astype(np.float32))
            for tag, array in zip("wrb", arrays, strict=True)
        ]

    key = (cell.layer.name, "recurrent")
    return cell.importer.add_shared_list(key, make)


def _order_gates(matrix: Array, kind: CellKind) -> Array:
    """Return rows of gates in the op's order."""
    parts = np.split(matrix, len(kind.gates))
    return np.concatenate([parts[i] for i in kind.gates])


def _functions(cell: KerasNode, kind: CellKind) -> dict[str, Any]:
    """Return the attributes of the op that state its activation functions."""
    names, alphas, betas = [], [], []
    for key in kind.activations:
        setting = cell.get(key, DEFAULTS[key])
        op, attrs = simple_op(cell, function_name(setting)) or ("", {})
        known = op in ACTIVATIONS
        cell.refuse_unless(known, f"activation {setting!r} in a cell; use tanh, sigmoid or relu")
        name, alpha, beta = ACTIVATIONS[op]
        names.append(name)
        # As in ONNX the lists have no entry for a function without the parameter.
        alphas += [] if alpha is None else [float(attrs.get("alpha", alpha))]
        betas += [] if beta is None else [beta]
    return {"activations": tuple(names), "alphas": tuple(alphas), "betas": tuple(betas)}


def _sequence_and_states(node: KerasNode) -> tuple[str, list[str]]:
    """Return the sequence, and the initial states: listed with the sequence, or given as `initial_state`."""
    argument = node.call.args[0] if node.call.args else node.keyword("sequences") or []
    x, *states = node.tensors(argument)
    others = node.call.args[1:2] or [node.keyword("initial_state")]
    return node.to_float(x), states or node.tensors(others)


def _reverse_time(node: KerasNode, steps: str) -> str:
    """Return steps [N, T, ...] in reversed order."""
    shape = node.shape(steps)
    starts = (0, shape[1] - 1, *(0 for _ in shape[2:]))
    reverse = (1, -1, *(1 for _ in shape[2:]))
    attrs = {"starts": starts, "sizes": shape, "steps": reverse}
    return node.emit("Slice", [steps], attrs, tag="flipped")


def _recurrent(node: KerasNode) -> Sequence[str]:
    x, states = _sequence_and_states(node)
    results = run(node, node.layer, x, states)
    output = results.last
    if node.get("return_sequences", False):
        # A layer that goes backwards returns its steps in the order in which it computes them.
        output = _reverse_time(node, results.steps) if node.get("go_backwards", False) else results.steps
    return node.done_all([output, *(results.states if node.get("return_state", False) else ())])


MERGES: Mapping[str, str] = MappingProxyType({"sum": "Add", "mul": "Mul", "ave": "Add", "concat": "Concat"})


def _bidirectional(node: KerasNode) -> Sequence[str]:
    """Add a layer in both directions; the steps of both in the order of time."""
    x, states = _sequence_and_states(node)
    layers = [node.layer.children[f"{direction}_layer"] for direction in ("forward", "backward")]
    node.refuse_unless(
        all("cell" in layer.children for layer in layers),
        f"it wraps {layers[0].kind}; use LSTM, GRU or SimpleRNN",
    )
    keys = ("return_sequences", "return_state")
    nodes = [node.child_node(node.name, layer) for layer in layers]
    forward, backward = ([inner.get(key) for key in keys] for inner in nodes)
    node.require_consistent(forward == backward, "its two layers give different things")
    half = len(states) // 2
    halves = (states[:half], states[half : 2 * half])
    results = [run(node, layer, x, initial) for layer, initial in zip(layers, halves, strict=True)]
    returns_steps, returns_states = forward
    outputs = [result.last for result in results]
    if returns_steps:
        # Keras reverses what its second layer returns, and a layer that goes backwards returns reversed
        # steps.
        outputs = [result.steps for result in results]
        if nodes[0].get("go_backwards"):
            outputs[0] = _reverse_time(node, outputs[0])
        if not nodes[1].get("go_backwards"):
            outputs[1] = _reverse_time(node, outputs[1])
    final = [*results[0].states, *results[1].states] if returns_states else []
    return node.done_all([*_merge_directions(node, *outputs), *final])


def _merge_directions(node: KerasNode, first: str, second: str) -> list[str]:
    """Return the outputs of both directions as the layer merges them."""
    # Without a merge there are two outputs, which `get` cannot tell from an absent setting.
    mode = None if node.layer.config.get("merge_mode", "") is None else node.get("merge_mode", "concat")
    if mode is None:
        return [first, second]
    node.require_supported(mode in MERGES, f"it has merge_mode {mode!r}")
    attrs = {"axis": len(node.shape(first)) - 1} if mode == "concat" else {}
    merged = node.emit(MERGES[mode], [first, second], attrs, tag="both")
    return [node.emit("Mul", [merged, node.add_float(0.5)])] if mode == "ave" else [merged]


def _time_distributed(node: KerasNode) -> Sequence[str]:
    """Add a layer on each step: the steps become part of the batch."""
    x = node.input()
    shape = node.shape(x)
    node.require_consistent(len(shape) >= 2, f"it is given a tensor of rank {len(shape)}")
    rows = node.emit("Reshape", [x], {"shape": (prod(shape[:2]), *shape[2:])}, tag="rows")
    outputs: list[str] = []
    for i, result in enumerate(node.apply_child("layer", [rows])):
        name = node.builder.fresh(node.name if i == 0 else f"{node.name}:{i}")
        attrs = {"shape": (*shape[:2], *node.shape(result)[1:])}
        outputs += node.builder.add("Reshape", [result], attrs, outputs=[name], like=node.origin)
    return outputs


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "RNN"), _recurrent),
        "Bidirectional": _bidirectional,
        "TimeDistributed": _time_distributed,
    }
)
