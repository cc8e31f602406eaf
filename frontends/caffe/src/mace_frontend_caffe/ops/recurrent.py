"""LSTM and RNN, whose second bottom says where sequences continue (1) and where new ones begin (0).

The steps are written out one by one, because that bottom is known at run time alone: ops of the IR for whole
sequences take lengths. It multiplies the state of the step before, so that a sequence that begins sees a
state of 0.
The weights are those of the InnerProduct layers that Caffe makes of a recurrent layer, one behind the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array
from mace_frontend_caffe.node import CUT_BEFORE, CaffeNode
from mace_frontend_caffe.ops import Handler

MAX_STEPS = 256
"""Steps of a sequence: an LSTM adds a dozen nodes for each."""


@dataclass(frozen=True)
class _SequenceShape:
    """What the handlers of both layers know of their sequences.

    steps, batch, hidden: sizes.
    continues: the second bottom as a tensor [steps, batch, 1].
    bias: of all gates, one behind the other.
    """

    steps: int
    batch: int
    hidden: int
    continues: str
    bias: Array


def _read_sequence(node: CaffeNode, gates: int) -> _SequenceShape:
    parameters, (steps, batch, *_) = node.layer.recurrent_param, node.shape()
    hidden = int(parameters.num_output)
    node.refuse_unless(
        node.shape(1) == (steps, batch),
        f"its second bottom has shape {list(node.shape(1))}; it needs [{steps}, {batch}]",
    )
    node.refuse_unless(hidden > 0, "its num_output is 0")
    node.refuse_unless(steps <= MAX_STEPS, f"it has {steps} steps; the maximum is {MAX_STEPS}", CUT_BEFORE)
    bias = node.shaped_blob(1, "bias", (gates * hidden,))
    continues = node.emit("Reshape", [node.input(1)], {"shape": (steps, batch, 1)}, tag="goes-on")
    return _SequenceShape(steps, batch, hidden, continues, bias)


def _read_states(node: CaffeNode, sequence: _SequenceShape, count: int) -> tuple[list[str], str]:
    """Return the states at the start, and the static input; "" if there is none.

    With `expose_hidden` the states are the last bottoms. A static input is a third bottom, the same at every
    step.
    """
    exposed = count if node.layer.recurrent_param.expose_hidden else 0
    bottoms = node.bottom_count
    node.refuse_unless(
        bottoms in (2 + exposed, 3 + exposed),
        f"it has {bottoms} bottoms; it needs {2 + exposed}, or {3 + exposed} with a static input",
    )
    static = node.input(2) if bottoms == 3 + exposed else ""
    shape = (sequence.batch, sequence.hidden)
    if not exposed:
        return [node.add_float(np.zeros(shape), "start")] * count, static
    states = [node.input(bottoms - count + i) for i in range(count)]
    return [node.emit("Reshape", [state], {"shape": shape}) for state in states], static


def _sum_inputs(node: CaffeNode, sequence: _SequenceShape, static: str) -> list[str]:
    """Return what the inputs and the bias add to the gates at every step, each [batch, gates * hidden].

    One product for all steps is faster than one for each; only the state's product must wait for the step
    before.
    """
    depth, rows = prod(node.shape()[2:]), sequence.bias.size
    shape = (sequence.steps, sequence.batch, depth)
    x = node.emit("Reshape", [node.input()], {"shape": shape}, tag="rows")
    weights = node.add_float(node.shaped_blob(0, "input weights", (rows, depth)).T, "input-weights")
    sums = node.emit("MatMul", [x, weights, node.add_float(sequence.bias, "bias")], tag="driven")
    if static:
        static_depth = prod(node.builder.shape(static)[1:])
        row = node.emit("Reshape", [static], {"shape": (sequence.batch, static_depth)})
        blob = node.shaped_blob(2, "static weights", (rows, static_depth))
        static_weights = node.add_float(blob.T, "static-weights")
        sums = node.emit("Add", [sums, node.emit("MatMul", [row, static_weights])])
    return _split_steps(node, sums, sequence)


def _split_steps(node: CaffeNode, x: str, sequence: _SequenceShape) -> list[str]:
    """Return a tensor [steps, batch, n] as a tensor [batch, n] for every step."""
    sizes = (1,) * sequence.steps
    parts = node.emit_all("Split", [x], {"axis": 0, "sizes": sizes}, count=sequence.steps)
    return [node.emit("Reshape", [part], {"shape": node.builder.shape(x)[1:]}) for part in parts]


def _add_tops(
    node: CaffeNode, sequence: _SequenceShape, results: Sequence[str], last: Sequence[str]
) -> list[str]:
    """Add the tops: the results of all steps, and the last states as far as the layer has tops for them."""
    rows = [node.emit("Reshape", [step], {"shape": (1, *node.builder.shape(step))}) for step in results]
    tops = [node.done_top(0, "Concat", rows, {"axis": 0})]
    shape = (1, sequence.batch, sequence.hidden)
    for i, state in enumerate(last[: len(node.layer.top) - 1], 1):
        tops.append(node.done_top(i, "Reshape", [state], {"shape": shape}))
    return tops


def _lstm(node: CaffeNode) -> Sequence[str]:
    """Add c = continues * f * c + i * g and h = o * tanh(c) for each step.

    The gates stand in the order i, f, o, g, where PyTorch and ONNX have others (lstm_unit_layer.cpp; J.
    Donahue et al., "Long-term Recurrent Convolutional Networks", 2015).
    """
    sequence = _read_sequence(node, 4)
    hidden = sequence.hidden
    (h, c), static = _read_states(node, sequence, 2)
    sums_of_inputs = _sum_inputs(node, sequence, static)
    # The static weights, if there are any, lie between those of the input and those of the state.
    blob = node.shaped_blob(3 if static else 2, "hidden weights", (4 * hidden, hidden))
    weights = node.add_float(blob.T, "hidden-weights")
    results = []
    for x, continues in zip(sums_of_inputs, _split_steps(node, sequence.continues, sequence), strict=True):
        sums = node.emit("Add", [x, node.emit("MatMul", [node.emit("Mul", [continues, h]), weights])])
        # One Sigmoid for the three gates that have it: they lie side by side.
        gates, g = node.emit_all("Split", [sums], {"axis": 1, "sizes": (3 * hidden, hidden)}, count=2)
        gates = node.emit("Sigmoid", [gates])
        i, f, o = node.emit_all("Split", [gates], {"axis": 1, "sizes": (hidden,) * 3}, count=3)
        remembered = node.emit("Mul", [node.emit("Mul", [continues, f]), c])
        c = node.emit("Add", [remembered, node.emit("Mul", [i, node.emit("Tanh", [g])])])
        h = node.emit("Mul", [o, node.emit("Tanh", [c])])
        results.append(h)
    return _add_tops(node, sequence, results, (h, c))


def _rnn(node: CaffeNode) -> Sequence[str]:
    """Add h = tanh(x + W (continues * h)) and the result tanh(V h + b) for each step (rnn_layer.cpp)."""
    sequence = _read_sequence(node, 1)
    hidden = sequence.hidden
    (h,), static = _read_states(node, sequence, 1)
    sums_of_inputs = _sum_inputs(node, sequence, static)
    first = 3 if static else 2
    blob = node.shaped_blob(first, "hidden weights", (hidden, hidden))
    weights = node.add_float(blob.T, "hidden-weights")
    blob = node.shaped_blob(first + 1, "output weights", (hidden, hidden))
    output_weights = node.add_float(blob.T, "output-weights")
    output_bias = node.add_float(node.shaped_blob(first + 2, "output bias", (hidden,)), "output-bias")
    results = []
    for x, continues in zip(sums_of_inputs, _split_steps(node, sequence.continues, sequence), strict=True):
        product = node.emit("MatMul", [node.emit("Mul", [continues, h]), weights])
        h = node.emit("Tanh", [node.emit("Add", [x, product])])
        results.append(node.emit("Tanh", [node.emit("MatMul", [h, output_weights, output_bias])]))
    return _add_tops(node, sequence, results, (h,))


HANDLERS: Mapping[str, Handler] = MappingProxyType({"LSTM": _lstm, "RNN": _rnn})
