"""LSTM and RNN, whose second bottom says where a sequence goes on (1) and where the next one begins (0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array
from mace_frontend_caffe.node import CaffeNode
from mace_frontend_caffe.ops import Handler

MOST_STEPS = 256
"""Steps of a sequence that are written out one by one."""


@dataclass(frozen=True)
class _Sequence:
    """steps, batch, hidden: sizes. goes_on: [steps, batch, 1]. bias: of all its sums."""

    steps: int
    batch: int
    hidden: int
    goes_on: str
    bias: Array


def _sequence(node: CaffeNode, gates: int) -> _Sequence:
    p, (steps, batch, *_) = node.layer.recurrent_param, node.shape()
    node.refuse_unless(
        node.shape(1) == (steps, batch),
        f"its second bottom has shape {list(node.shape(1))}; it needs [{steps}, {batch}]",
    )
    node.refuse_unless(
        steps <= MOST_STEPS and p.num_output > 0,
        f"{steps} steps of {p.num_output} numbers; at most {MOST_STEPS}",
    )
    bias = node.fitted(1, "bias", (gates * int(p.num_output),))
    goes_on = node.emit("Reshape", [node.input(1)], {"shape": (steps, batch, 1)}, tag="goes-on")
    return _Sequence(steps, batch, int(p.num_output), goes_on, bias)


def _states(node: CaffeNode, run: _Sequence, count: int) -> tuple[list[str], str]:
    """What the states are at the start, and the static input; "" if there is none."""
    exposed = count if node.layer.recurrent_param.expose_hidden else 0
    node.refuse_unless(node.count in (2 + exposed, 3 + exposed), f"it has {node.count} bottoms")
    static = node.input(2) if node.count == 3 + exposed else ""
    shape = (run.batch, run.hidden)
    if exposed:
        return [
            node.emit("Reshape", [node.input(node.count - count + i)], {"shape": shape}) for i in range(count)
        ], static
    return [node.add_float(np.zeros(shape), "start")] * count, static


def _driven(node: CaffeNode, run: _Sequence, static: str) -> list[str]:
    """What the inputs add to the sums at every step, each [batch, sums]."""
    depth, rows = prod(node.shape()[2:]), run.bias.size
    x = node.emit("Reshape", [node.input()], {"shape": (run.steps, run.batch, depth)}, tag="rows")
    weights = node.add_float(node.fitted(0, "input weights", (rows, depth)).T, "input-weights")
    sums = node.emit("MatMul", [x, weights, node.add_float(run.bias, "bias")], tag="driven")
    if static:
        wide = prod(node.builder.shape(static)[1:])
        once = node.emit("Reshape", [static], {"shape": (run.batch, wide)})
        own = node.add_float(node.fitted(2, "static weights", (rows, wide)).T, "static-weights")
        sums = node.emit("Add", [sums, node.emit("MatMul", [once, own])])
    return _steps(node, sums, run)


def _steps(node: CaffeNode, x: str, run: _Sequence) -> list[str]:
    """A tensor [steps, batch, n] as [batch, n] of every step."""
    parts = node.emit_all("Split", [x], {"axis": 0, "sizes": (1,) * run.steps}, count=run.steps)
    return [node.emit("Reshape", [part], {"shape": node.builder.shape(x)[1:]}) for part in parts]


def _told(node: CaffeNode, run: _Sequence, made: Sequence[str], last: Sequence[str]) -> list[str]:
    """The tops: what was made at every step, and the last states if they are asked for."""
    rows = [node.emit("Reshape", [step], {"shape": (1, *node.builder.shape(step))}) for step in made]
    tops = [node.done_top(0, "Concat", rows, {"axis": 0})]
    for i, state in enumerate(last[: len(node.layer.top) - 1], 1):
        tops.append(node.done_top(i, "Reshape", [state], {"shape": (1, run.batch, run.hidden)}))
    return tops


def _lstm(node: CaffeNode) -> Sequence[str]:
    """Gates in the order i, f, o, g.

    C = goes_on * f * c + i * g, h = o * tanh(c) (J. Donahue et al., "LRCN", 2015).
    """
    run = _sequence(node, 4)
    (h, c), static = _states(node, run, 2)
    driven = _driven(node, run, static)
    w = node.add_float(
        node.fitted(3 if static else 2, "hidden weights", (4 * run.hidden, run.hidden)).T, "hidden-weights"
    )
    made = []
    for x, goes_on in zip(driven, _steps(node, run.goes_on, run), strict=True):
        sums = node.emit("Add", [x, node.emit("MatMul", [node.emit("Mul", [goes_on, h]), w])])
        gates, g = node.emit_all("Split", [sums], {"axis": 1, "sizes": (3 * run.hidden, run.hidden)}, count=2)
        opened = node.emit("Sigmoid", [gates])
        i, f, o = node.emit_all("Split", [opened], {"axis": 1, "sizes": (run.hidden,) * 3}, count=3)
        kept = node.emit("Mul", [node.emit("Mul", [goes_on, f]), c])
        c = node.emit("Add", [kept, node.emit("Mul", [i, node.emit("Tanh", [g])])])
        h = node.emit("Mul", [o, node.emit("Tanh", [c])])
        made.append(h)
    return _told(node, run, made, (h, c))


def _rnn(node: CaffeNode) -> Sequence[str]:
    """States h = tanh(x + W goes_on * h), and of each tanh(V h + b)."""
    run = _sequence(node, 1)
    (h,), static = _states(node, run, 1)
    driven = _driven(node, run, static)
    at = 3 if static else 2
    w = node.add_float(node.fitted(at, "hidden weights", (run.hidden, run.hidden)).T, "hidden-weights")
    v = node.add_float(node.fitted(at + 1, "output weights", (run.hidden, run.hidden)).T, "output-weights")
    b = node.add_float(node.fitted(at + 2, "output bias", (run.hidden,)), "output-bias")
    made = []
    for x, goes_on in zip(driven, _steps(node, run.goes_on, run), strict=True):
        h = node.emit(
            "Tanh", [node.emit("Add", [x, node.emit("MatMul", [node.emit("Mul", [goes_on, h]), w])])]
        )
        made.append(node.emit("Tanh", [node.emit("MatMul", [h, v, b])]))
    return _told(node, run, made, (h,))


HANDLERS: Mapping[str, Handler] = MappingProxyType({"LSTM": _lstm, "RNN": _rnn})
