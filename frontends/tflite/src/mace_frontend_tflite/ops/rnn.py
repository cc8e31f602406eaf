"""Plain recurrent layers, and SVDF, which remembers what it saw as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import tflite

from mace_frontend_tflite.fused_activation import limits
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler
from mace_frontend_tflite.ops.lstm import as_asked, both_ways, time_first, turned

_Type = tflite.ActivationFunctionType
FUNCTIONS: Mapping[int, str] = MappingProxyType(
    {_Type.NONE: "Affine", _Type.RELU: "Relu", _Type.TANH: "Tanh"}
)
AUXILIARY = (9, 10, 11)
STEP_NODES = 5


def _direction(node: TfliteNode, x: str, first: int, function: int) -> str:
    """Hidden states [time, batch, units] of a sequence.

    weights, recurrent weights, bias and state lie from input `first` on.
    """
    node.refuse_unless(node.storage() is None, "a quantized layer of this kind")
    if function not in FUNCTIONS:
        return _unrolled(node, x, first, function)
    hidden, state = node.shape(first + 1)[-1], node.stored(first + 3)
    w, r = (
        node.emit("Reshape", [node.input(i)], {"shape": (1, *node.shape(i))}, tag="weights")
        for i in (first, first + 1)
    )
    both = [node.input(first + 2), node.add_constant(np.zeros(hidden, np.float32), tag="no-bias")]
    b = node.emit(
        "Reshape",
        [node.emit("Concat", both, {"axis": 0}, tag="bias")],
        {"shape": (1, 2 * hidden)},
        tag="bias",
    )
    inputs = [x, w, r, b]
    if state not in node.builder.weights:
        inputs += ["", node.emit("Reshape", [state], {"shape": (1, *node.tensor(state).shape)}, tag="state")]
    y, end = node.emit_tagged(
        "RNN", inputs, {"hidden": hidden, "activations": (FUNCTIONS[function],)}, ("sequence", "state")
    )
    node.set_state(first + 3, end)
    time, _, batch, _ = node.tensor(y).shape
    return node.emit("Reshape", [y], {"shape": (time, batch, hidden)}, tag="states")


def _unrolled(node: TfliteNode, x: str, first: int, function: int) -> str:
    bounds = limits(function)
    node.refuse_unless(bounds is not None, f"activation {function} is not supported")
    assert bounds is not None
    time, batch, width = node.tensor(x).shape
    node.refuse_unless(
        node.importer.has_room_for(time * STEP_NODES), f"{time} steps are too many to be written out"
    )
    w, r = (node.permuted(i, (1, 0)) for i in (first, first + 1))
    hidden, made = node.stored(first + 3), []
    for step in range(time):
        now = node.emit(
            "Slice", [x], {"starts": (step, 0, 0), "sizes": (1, batch, width), "steps": (1, 1, 1)}, tag="now"
        )
        rows = node.emit("Reshape", [now], {"shape": (batch, width)}, tag="rows")
        driven = node.emit("MatMul", [rows, w, node.input(first + 2)], tag="driven")
        total = node.emit("Add", [driven, node.emit("MatMul", [hidden, r], tag="recurrent")], tag="total")
        hidden = node.emit("Clip", [total], {"min": bounds[0], "max": bounds[1]}, tag="hidden")
        made.append(node.emit("Reshape", [hidden], {"shape": (1, *node.tensor(hidden).shape)}, tag="step"))
    node.set_state(first + 3, hidden)
    return node.emit("Concat", made, {"axis": 0}, tag="sequence")


def _sequence(node: TfliteNode) -> Sequence[str]:
    """UNIDIRECTIONAL_SEQUENCE_RNN(x, weights, recurrent weights, bias, state)."""
    options = node.options("SequenceRNNOptions")
    time_major = bool(options.TimeMajor())
    return as_asked(
        node, _direction(node, time_first(node, time_major), 1, options.FusedActivationFunction()), time_major
    )


def _both(node: TfliteNode) -> Sequence[str]:
    options = node.options("BidirectionalSequenceRNNOptions")
    node.refuse_unless(not any(node.has(i) for i in AUXILIARY), "an auxiliary input")
    function, time_major = options.FusedActivationFunction(), bool(options.TimeMajor())
    x = time_first(node, time_major)
    back = turned(node, _direction(node, turned(node, x), 5, function))
    return both_ways(node, (_direction(node, x, 1, function), back), bool(options.MergeOutputs()), time_major)


def _step(node: TfliteNode) -> Sequence[str]:
    """RNN, a single step."""
    batch, width = node.shape(0)
    x = node.emit("Reshape", [node.input(0)], {"shape": (1, batch, width)}, tag="sequence")
    y = _direction(node, x, 1, node.options("RNNOptions").FusedActivationFunction())
    return node.done("Reshape", [y], {"shape": node.tensor(y).shape[1:]})


def _svdf(node: TfliteNode) -> Sequence[str]:
    """SVDF(x, feature filters, time filters, bias, state): a sum over time of what the feature filters found.

    R. Nakkiran et al., "Compressing deep neural networks using a rank-constrained topology", 2015.
    """
    options = node.options("SVDFOptions")
    rank, (batch, _), (filters, memory) = int(options.Rank()), node.shape(0), node.shape(2)
    node.refuse_unless(rank > 0 and filters % rank == 0, f"{filters} filters of rank {rank}")
    before = node.emit("Reshape", [node.stored(4)], {"shape": (batch, filters, memory)}, tag="before")
    how = node.tensor(before).storage
    found = node.emit("MatMul", [node.input(0), node.permuted(1, (1, 0))], tag="found", storage=how)
    newest = node.emit("Reshape", [found], {"shape": (batch, filters, 1)}, tag="newest")
    cut = {"starts": (0, 0, 1), "sizes": (batch, filters, memory - 1), "steps": (1, 1, 1)}
    state = node.emit(
        "Concat", [node.emit("Slice", [before], cut, tag="kept"), newest], {"axis": 2}, tag="state"
    )
    node.set_state(4, state)
    weighted = node.emit("Mul", [state, node.input(2)], tag="weighted")
    grouped = node.emit(
        "Reshape", [weighted], {"shape": (batch, filters // rank, rank * memory)}, tag="grouped"
    )
    sums = node.emit("ReduceSum", [grouped], {"axes": (2,), "keepdims": False}, tag="sums")
    function = options.FusedActivationFunction()
    if node.has(3):
        return node.fused("Add", [sums, node.input(3)], {}, function)
    return node.fused("Identity", [sums], {}, function)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "UNIDIRECTIONAL_SEQUENCE_RNN": _sequence,
        "BIDIRECTIONAL_SEQUENCE_RNN": _both,
        "RNN": _step,
        "SVDF": _svdf,
    }
)
