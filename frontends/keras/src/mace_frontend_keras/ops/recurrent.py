"""Layers that run along a sequence, and layers that apply another one along it or both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import Array
from mace_frontend_keras.layer import Layer
from mace_frontend_keras.network import refs
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.activation import function_name, simple

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
"""What the recurrent ops call an op of one element, with its alpha and beta."""


@dataclass(frozen=True)
class Kind:
    """A cell: its op, its gates as Keras orders them by their places in the op's order, its activations, and how many states it has."""

    op: str
    gates: tuple[int, ...]
    activations: tuple[str, ...]
    states: int


CELLS: Mapping[str, Kind] = MappingProxyType(
    {
        "LSTMCell": Kind("LSTM", (0, 3, 1, 2), ("recurrent_activation", "activation", "activation"), 2),
        "GRUCell": Kind("GRU", (0, 1, 2), ("recurrent_activation", "activation"), 1),
        "SimpleRNNCell": Kind("RNN", (0,), ("activation",), 1),
    }
)
DEFAULTS: Mapping[str, str] = MappingProxyType({"activation": "tanh", "recurrent_activation": "sigmoid"})


@dataclass(frozen=True)
class Run:
    """What a run along a sequence made: each step [N, T, H] in the order of time, the last one [N, H], and the states [N, H]."""

    steps: str
    last: str
    states: tuple[str, ...]


def run(node: KerasNode, layer: Layer, x: str, states: Sequence[str]) -> Run:
    """Run a recurrent layer over x [N, T, I] from these states, or from zero.

    Cells on top of each other one after another.
    """
    get = layer.config.get
    node.refuse_unless(
        not get("time_major"), "it wants the time before the batch; transpose before the layer"
    )
    node.refuse_unless(
        len(node.shape(x)) == 3,
        f"it is given a tensor of rank {len(node.shape(x))}, [batch, time, features] was expected",
    )
    cell = layer.children["cell"]
    cells = list(cell.children.values()) if cell.kind == "StackedRNNCells" else [cell]
    unknown = [c.kind for c in cells if c.kind not in CELLS]
    node.refuse_unless(
        bool(cells) and not unknown, f"cells {unknown} are not supported; use LSTM, GRU or SimpleRNN"
    )
    counts = [CELLS[c.kind].states for c in cells]
    node.refuse_unless(len(states) in (0, sum(counts)), f"it is given {len(states)} states")
    kept = _begin_states(node, layer, cells, node.shape(x)[0]) if get("stateful") and not states else ()
    states = states or kept
    made = Run(x, x, ())
    ends: tuple[str, ...] = ()
    for i, one in enumerate(cells):
        own = states[sum(counts[:i]) : sum(counts[: i + 1])]
        made = _run(node, one, (made.steps, bool(get("go_backwards"))), own)
        ends = (*ends, *made.states)
    for state, end in zip(kept, ends, strict=False):  # states that the call is given are not kept
        node.builder.set_next(state, end)
    return Run(made.steps, made.last, ends)


def _begin_states(node: KerasNode, layer: Layer, cells: Sequence[Layer], batch: int) -> tuple[str, ...]:
    """Declare what a stateful layer keeps from run to run: zeros at first, for Keras saves no states."""
    remedy = "give each call a layer of its own, or make it with stateful=False"
    node.refuse_unless(
        layer.name not in node.importer.stateful, f"it is stateful and called more than once; {remedy}"
    )
    node.importer.stateful.add(layer.name)
    found = []
    for cell in cells:
        owner = layer if len(cells) == 1 else cell
        start = np.zeros((batch, node.part(node.name, cell).integer("units")), np.float32)
        found += [
            node.builder.state(f"{owner.name}/{'hc'[i]}", start) for i in range(CELLS[cell.kind].states)
        ]
    return tuple(found)


def _run(node: KerasNode, cell: Layer, given: tuple[str, bool], states: Sequence[str]) -> Run:
    """Run one cell; given: x [N, T, I], and whether it is run backwards."""
    x, backwards = given
    kind = CELLS[cell.kind]
    inner = node.part(node.name, cell)
    weights = _weights(inner, kind)
    hidden = inner.integer("units")
    batch = node.shape(x)[0]
    sequence = node.emit("Transpose", [x], {"perm": (1, 0, 2)}, tag="time-first")
    first = [
        node.emit("Reshape", [node.to_float(s)], {"shape": (1, batch, hidden)}, tag="state") for s in states
    ]
    attrs: dict[str, Any] = {
        "hidden": hidden,
        "direction": "reverse" if backwards else "forward",
        **_functions(inner, kind),
    }
    if kind.op == "GRU":
        attrs["linear_before_reset"] = bool(inner.get("reset_after", False))
    names = [node.builder.fresh(f"{node.name}/{tag}") for tag in ("steps", "h", "c")[: kind.states + 1]]
    made = node.builder.add(
        kind.op,
        [sequence, *weights, *([""] if first else []), *first],
        attrs,
        outputs=names,
        like=node.origin,
    )
    length = node.shape(x)[1]
    by_batch = node.emit("Transpose", [made[0]], {"perm": (2, 0, 1, 3)}, tag="batch-first")
    steps = node.emit("Reshape", [by_batch], {"shape": (batch, length, hidden)}, tag="all")
    ends = [node.emit("Reshape", [m], {"shape": (batch, hidden)}, tag="end") for m in made[1:]]
    return Run(steps, ends[0], tuple(ends))


def _weights(cell: KerasNode, kind: Kind) -> list[str]:
    """The op's w, r and b."""

    def make() -> list[str]:
        kernel, recurrent = cell.array("kernel"), cell.array("recurrent_kernel")
        count = len(kind.gates)
        hidden = cell.integer("units")
        cell.refuse_unless(
            recurrent.shape == (hidden, count * hidden),
            f"its recurrent_kernel has shape {list(recurrent.shape)}",
        )
        made = [_gates(m.T, kind)[None] for m in (kernel, recurrent)]
        if cell.has("bias"):
            bias = cell.array("bias")
            pair = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
            made.append(np.concatenate([_gates(b, kind) for b in pair])[None])
        else:
            made.append(np.zeros((1, 2 * count * hidden), np.float32))
        return [
            cell.builder.weight(f"{cell.layer.name}/{tag}", a.astype(np.float32))
            for tag, a in zip("wrb", made, strict=True)
        ]

    key = (cell.layer.name, "recurrent")
    return cell.importer.shared_list(key, make)


def _gates(matrix: Array, kind: Kind) -> Array:
    """Rows of gates in the op's order."""
    parts = np.split(matrix, len(kind.gates))
    return np.concatenate([parts[i] for i in kind.gates])


def _functions(cell: KerasNode, kind: Kind) -> dict[str, Any]:
    names, alphas, betas = [], [], []
    for key in kind.activations:
        setting = cell.get(key, DEFAULTS[key])
        found = simple(cell, function_name(setting))
        known = ACTIVATIONS.get(found[0]) if found else None
        cell.refuse_unless(
            known is not None and found is not None,
            f"activation {setting!r} in a cell; use tanh, sigmoid or relu",
        )
        assert known is not None
        assert found is not None
        names.append(known[0])
        alphas += [] if known[1] is None else [float(found[1].get("alpha", known[1]))]
        betas += [] if known[2] is None else [known[2]]
    return {"activations": tuple(names), "alphas": tuple(alphas), "betas": tuple(betas)}


def _given(node: KerasNode) -> tuple[str, list[str]]:
    """The sequences, and the states that the run starts with: behind them, or as `initial_state`."""
    given = node.call.args[0] if node.call.args else node.call.kwargs.get("sequences", [])
    x, *states = [node.importer.tensor(ref) for ref in refs(given)]
    more = node.call.args[1:2] or [node.call.kwargs.get("initial_state")]
    return node.to_float(x), states or [node.importer.tensor(ref) for ref in refs(more)]


def _flipped(node: KerasNode, steps: str) -> str:
    shape = node.shape(steps)
    last = (0, shape[1] - 1, *(0 for _ in shape[2:]))
    return node.emit(
        "Slice",
        [steps],
        {"starts": last, "sizes": shape, "steps": (1, -1, *(1 for _ in shape[2:]))},
        tag="flipped",
    )


def _recurrent(node: KerasNode) -> Sequence[str]:
    """A layer that goes backwards gives its steps in the order in which it makes them."""
    x, states = _given(node)
    made = run(node, node.layer, x, states)
    whole = _flipped(node, made.steps) if node.get("go_backwards", False) else made.steps
    result = whole if node.get("return_sequences", False) else made.last
    return node.named([result, *(made.states if node.get("return_state", False) else ())])


MERGES: Mapping[str, str] = MappingProxyType({"sum": "Add", "mul": "Mul", "ave": "Add", "concat": "Concat"})


def _bidirectional(node: KerasNode) -> Sequence[str]:
    """Both ways; the steps of both in the order of time."""
    x, states = _given(node)
    parts = [node.layer.children[f"{way}_layer"] for way in ("forward", "backward")]
    node.refuse_unless(
        all("cell" in part.children for part in parts),
        f"it wraps {parts[0].kind}; use LSTM, GRU or SimpleRNN",
    )
    settings = [
        (p.config.get("return_sequences"), p.config.get("return_state"), bool(p.config.get("go_backwards")))
        for p in parts
    ]
    node.refuse_unless(settings[0][:2] == settings[1][:2], "its two layers give different things")
    half = len(states) // 2
    runs = [run(node, part, x, states[i * half : (i + 1) * half]) for i, part in enumerate(parts)]
    if settings[0][0]:
        first = _flipped(node, runs[0].steps) if settings[0][2] else runs[0].steps
        second = runs[1].steps if settings[1][2] else _flipped(node, runs[1].steps)
    else:
        first, second = runs[0].last, runs[1].last
    ends = [state for made in runs for state in made.states] if settings[0][1] else []
    return node.named([*_merged(node, first, second), *ends])


def _merged(node: KerasNode, first: str, second: str) -> list[str]:
    mode = node.layer.config.get("merge_mode", "concat")
    if mode is None:
        return [first, second]
    node.refuse_unless(mode in MERGES, f"merge_mode {mode!r}")
    made = node.emit(
        MERGES[mode],
        [first, second],
        {"axis": len(node.shape(first)) - 1} if mode == "concat" else {},
        tag="both",
    )
    return [node.emit("Mul", [made, node.add_float(0.5)])] if mode == "ave" else [made]


def _time_distributed(node: KerasNode) -> Sequence[str]:
    """A layer on each step: the steps become part of the batch."""
    x = node.input()
    shape = node.shape(x)
    node.refuse_unless(len(shape) >= 2, f"it is given a tensor of rank {len(shape)}")
    rows = node.emit("Reshape", [x], {"shape": (prod(shape[:2]), *shape[2:])}, tag="rows")
    made = node.inner("layer", [rows])
    names = [node.builder.fresh(node.name if i == 0 else f"{node.name}:{i}") for i in range(len(made))]
    return [
        node.builder.add(
            "Reshape", [m], {"shape": (*shape[:2], *node.shape(m)[1:])}, outputs=[name], like=node.origin
        )[0]
        for m, name in zip(made, names, strict=True)
    ]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "RNN"), _recurrent),
        "Bidirectional": _bidirectional,
        "TimeDistributed": _time_distributed,
    }
)
