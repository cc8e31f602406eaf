"""LSTM layers, and what all recurrent layers share: the order of time and of directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tflite

from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler
from mace_frontend_tflite.ops.lstm_cell import Clips, Direction, InputNumbers

# The numbers of the inputs stand in tensorflow/lite/kernels/lstm_shared.h and bidirectional_sequence_lstm.cc.
LAYER = InputNumbers(1, 5, 9, 12, 16, 18, 19, 20)
FORWARD, BACKWARD = InputNumbers(1, 5, 9, 12, 16, 35, 36), InputNumbers(18, 22, 26, 29, 33, 37, 38)
AUXILIARY = range(39, 48)
"""The numbers of a second sequence and of its weights."""


def reverse_time(node: TfliteNode, x: str) -> str:
    """Return a sequence [time, ...] in reversed order."""
    shape = node.tensor(x).shape
    back = {
        "starts": (shape[0] - 1, *(0 for _ in shape[1:])),
        "sizes": shape,
        "steps": (-1, *(1 for _ in shape[1:])),
    }
    return node.emit("Slice", [x], back, tag="turned")


def read_time_first(node: TfliteNode, time_major: bool) -> str:
    """Return the sequence at input 0 as [time, batch, inputs]."""
    x = node.input(0)
    node.require_consistent(
        len(node.tensor(x).shape) == 3, f"it has a sequence of shape {list(node.tensor(x).shape)}"
    )
    return x if time_major else node.emit("Transpose", [x], {"perm": (1, 0, 2)}, tag="time-first")


def done_sequence(node: TfliteNode, y: str, time_major: bool) -> Sequence[str]:
    """Add the node's output from a sequence [time, batch, units], its axes as the options state them."""
    return node.done("Identity", [y]) if time_major else node.done("Transpose", [y], {"perm": (1, 0, 2)})


def done_directions(node: TfliteNode, sides: tuple[str, str], merge: bool, time_major: bool) -> Sequence[str]:
    """Return the outputs from the sequences [time, batch, units] of the two directions, joined if `merge`."""
    if merge:
        return done_sequence(node, node.emit("Concat", list(sides), {"axis": 2}, tag="merged"), time_major)
    perm = (0, 1, 2) if time_major else (1, 0, 2)
    return [node.emit("Transpose", [side], {"perm": perm}, tag="side") for side in sides]


def _clips(node: TfliteNode, options: Any) -> Clips:
    node.require_supported(
        options.FusedActivationFunction() == tflite.ActivationFunctionType.TANH,
        "it has a cell activation other than tanh",
    )
    return Clips(float(options.CellClip()), float(options.ProjClip()))


def _sequence(node: TfliteNode) -> Sequence[str]:
    options = node.options("UnidirectionalSequenceLSTMOptions")
    node.require_supported(not options.DiagonalRecurrentTensors(), "it has diagonal recurrent weights")
    time_major = bool(options.TimeMajor())
    y = Direction(node, LAYER, _clips(node, options)).run(read_time_first(node, time_major))
    return done_sequence(node, y, time_major)


def _both(node: TfliteNode) -> Sequence[str]:
    options = node.options("BidirectionalSequenceLSTMOptions")
    node.require_supported(not any(node.has(i) for i in AUXILIARY), "it has an auxiliary input")
    clips, time_major = _clips(node, options), bool(options.TimeMajor())
    x = read_time_first(node, time_major)
    back = reverse_time(node, Direction(node, BACKWARD, clips).run(reverse_time(node, x)))
    return done_directions(
        node, (Direction(node, FORWARD, clips).run(x), back), bool(options.MergeOutputs()), time_major
    )


def _step(node: TfliteNode) -> Sequence[str]:
    """Add one step of a layer, as a sequence of length 1."""
    options = node.options("LSTMOptions")
    if options.KernelType() == tflite.LSTMKernelType.BASIC:
        return _basic(node)
    batch, width = node.shape(0)
    x = node.emit("Reshape", [node.input(0)], {"shape": (1, batch, width)}, tag="sequence")
    y = Direction(node, LAYER, _clips(node, options)).run(x)
    return node.done("Reshape", [y], {"shape": node.tensor(y).shape[1:]})


def _basic(node: TfliteNode) -> Sequence[str]:
    """Add one step of the basic form: (x, hidden, weights of all gates in one matrix, bias, cell).

    Its gates lie in the order input, cell, forget, output; the full form has them as input, forget, cell,
    output.
    """
    node.refuse_unless(
        node.storage() is None,
        "the quantized basic form of LSTM; convert the model again with a newer converter",
    )
    together = node.emit("Concat", [node.input(0), node.input(1)], {"axis": 1}, tag="together")
    gates = node.emit("MatMul", [together, node.transpose_input(2, (1, 0)), node.input(3)], tag="gates")
    width = node.tensor(gates).shape[-1] // 4
    parts = node.emit_tagged(
        "Split", [gates], {"axis": 1, "sizes": (width,) * 4}, ("input", "cell", "forget", "output")
    )
    opened = {i: node.emit("Sigmoid", [parts[i]], tag="gate") for i in (0, 2, 3)}
    added = node.emit("Mul", [opened[0], node.emit("Tanh", [parts[1]], tag="candidate")], tag="added")
    remembered = node.emit("Mul", [node.input(4), opened[2]], tag="kept")
    state = node.emit("Add", [remembered, added], tag="state")
    (hidden,) = node.done("Mul", [node.emit("Tanh", [state], tag="squashed"), opened[3]])
    # The kernel writes its results over its states as well.
    for index, end in ((1, hidden), (4, state)):
        if node.info(index).variable:
            node.set_state(index, end)
    return [hidden, state, together, gates]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"UNIDIRECTIONAL_SEQUENCE_LSTM": _sequence, "BIDIRECTIONAL_SEQUENCE_LSTM": _both, "LSTM": _step}
)
