"""LSTM layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tflite

from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler
from mace_frontend_tflite.ops.lstm_cell import Clips, Direction, Places

LAYER = Places(1, 5, 9, 12, 16, 18, 19, 20)
FORWARD, BACKWARD = Places(1, 5, 9, 12, 16, 35, 36), Places(18, 22, 26, 29, 33, 37, 38)
AUXILIARY = range(39, 48)


def turned(node: TfliteNode, x: str) -> str:
    """A sequence [time, ...] from its end."""
    shape = node.tensor(x).shape
    back = {
        "starts": (shape[0] - 1, *(0 for _ in shape[1:])),
        "sizes": shape,
        "steps": (-1, *(1 for _ in shape[1:])),
    }
    return node.emit("Slice", [x], back, tag="turned")


def time_first(node: TfliteNode, time_major: bool) -> str:
    """The sequence at input 0 as [time, batch, inputs]."""
    x = node.input(0)
    node.refuse_unless(len(node.tensor(x).shape) == 3, f"a sequence of shape {list(node.tensor(x).shape)}")
    return x if time_major else node.emit("Transpose", [x], {"perm": (1, 0, 2)}, tag="time-first")


def as_asked(node: TfliteNode, y: str, time_major: bool) -> Sequence[str]:
    """The node's output from a sequence [time, batch, units]."""
    return node.done("Identity", [y]) if time_major else node.done("Transpose", [y], {"perm": (1, 0, 2)})


def both_ways(node: TfliteNode, sides: tuple[str, str], merge: bool, time_major: bool) -> Sequence[str]:
    """The outputs from the sequences [time, batch, units] of the two directions."""
    if merge:
        return as_asked(node, node.emit("Concat", list(sides), {"axis": 2}, tag="merged"), time_major)
    perm = (0, 1, 2) if time_major else (1, 0, 2)
    return [node.emit("Transpose", [side], {"perm": perm}, tag="side") for side in sides]


def _clips(node: TfliteNode, options: Any) -> Clips:
    node.refuse_unless(
        options.FusedActivationFunction() == tflite.ActivationFunctionType.TANH,
        "a cell activation other than tanh",
    )
    return Clips(float(options.CellClip()), float(options.ProjClip()))


def _sequence(node: TfliteNode) -> Sequence[str]:
    options = node.options("UnidirectionalSequenceLSTMOptions")
    node.refuse_unless(not options.DiagonalRecurrentTensors(), "diagonal recurrent weights")
    time_major = bool(options.TimeMajor())
    y = Direction(node, LAYER, _clips(node, options)).run(time_first(node, time_major))
    return as_asked(node, y, time_major)


def _both(node: TfliteNode) -> Sequence[str]:
    options = node.options("BidirectionalSequenceLSTMOptions")
    node.refuse_unless(not any(node.has(i) for i in AUXILIARY), "an auxiliary input")
    clips, time_major = _clips(node, options), bool(options.TimeMajor())
    x = time_first(node, time_major)
    back = turned(node, Direction(node, BACKWARD, clips).run(turned(node, x)))
    return both_ways(
        node, (Direction(node, FORWARD, clips).run(x), back), bool(options.MergeOutputs()), time_major
    )


def _step(node: TfliteNode) -> Sequence[str]:
    """One step.

    In its basic form of (x, hidden, weights of input, cell, forget and output gate in one, bias, cell).
    """
    options = node.options("LSTMOptions")
    if options.KernelType() == tflite.LSTMKernelType.BASIC:
        return _basic(node)
    batch, width = node.shape(0)
    x = node.emit("Reshape", [node.input(0)], {"shape": (1, batch, width)}, tag="sequence")
    y = Direction(node, LAYER, _clips(node, options)).run(x)
    return node.done("Reshape", [y], {"shape": node.tensor(y).shape[1:]})


def _basic(node: TfliteNode) -> Sequence[str]:
    node.refuse_unless(
        node.storage() is None,
        "the quantized basic form of LSTM; convert the model again with a newer converter",
    )
    together = node.emit("Concat", [node.input(0), node.input(1)], {"axis": 1}, tag="together")
    gates = node.emit("MatMul", [together, node.permuted(2, (1, 0)), node.input(3)], tag="gates")
    width = node.tensor(gates).shape[-1] // 4
    parts = node.emit_tagged(
        "Split", [gates], {"axis": 1, "sizes": (width,) * 4}, ("input", "cell", "forget", "output")
    )
    opened = {i: node.emit("Sigmoid", [parts[i]], tag="gate") for i in (0, 2, 3)}
    added = node.emit("Mul", [opened[0], node.emit("Tanh", [parts[1]], tag="candidate")], tag="added")
    state = node.emit("Add", [node.emit("Mul", [node.input(4), opened[2]], tag="kept"), added], tag="state")
    (hidden,) = node.done("Mul", [node.emit("Tanh", [state], tag="squashed"), opened[3]])
    for index, end in ((1, hidden), (4, state)):  # the kernel writes its results over its states as well
        if node.info(index).variable:
            node.set_state(index, end)
    return [hidden, state, together, gates]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"UNIDIRECTIONAL_SEQUENCE_LSTM": _sequence, "BIDIRECTIONAL_SEQUENCE_LSTM": _both, "LSTM": _step}
)
