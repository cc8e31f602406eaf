"""Plain recurrent layers, and SVDF, which remembers what it saw as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import tflite

from mace_frontend_tflite.fused_activation import clamp_bounds
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler
from mace_frontend_tflite.ops.lstm import done_directions, done_sequence, read_time_first, reverse_time

_Type = tflite.ActivationFunctionType
FUNCTIONS: Mapping[int, str] = MappingProxyType(
    {_Type.NONE: "Affine", _Type.RELU: "Relu", _Type.TANH: "Tanh"}
)
AUXILIARY = (9, 10, 11)
"""The numbers of a second sequence and of its weights."""

STEP_NODES = 5
"""About as many nodes as a step is translated to."""


def _direction(node: TfliteNode, x: str, first: int, function: int) -> str:
    """Return the hidden states [time, batch, units] of a sequence.

    Weights, recurrent weights, bias and state are the inputs from number `first` on.
    """
    node.require_supported(node.storage() is None, "it is a quantized layer of this kind")
    # The IR's op has no clamps with an upper bound, such as RELU6.
    if function not in FUNCTIONS:
        return _add_steps(node, x, first, function)
    hidden, state = node.shape(first + 1)[-1], node.stored_input(first + 3)
    numbers = (first, first + 1)
    w, r = (
        node.emit("Reshape", [node.input(i)], {"shape": (1, *node.shape(i))}, tag="weights") for i in numbers
    )
    # The IR's op, which is ONNX's, has a second bias for the recurrent product.
    both = [node.input(first + 2), node.add_constant(np.zeros(hidden, np.float32), tag="no-bias")]
    flat = node.emit("Concat", both, {"axis": 0}, tag="bias")
    b = node.emit("Reshape", [flat], {"shape": (1, 2 * hidden)}, tag="bias")
    inputs = [x, w, r, b]
    # A constant state is zeros, with which the op begins by itself.
    if state not in node.builder.weights:
        inputs += ["", node.emit("Reshape", [state], {"shape": (1, *node.tensor(state).shape)}, tag="state")]
    y, end = node.emit_tagged(
        "RNN", inputs, {"hidden": hidden, "activations": (FUNCTIONS[function],)}, ("sequence", "state")
    )
    node.set_state(first + 3, end)
    time, _, batch, _ = node.tensor(y).shape
    return node.emit("Reshape", [y], {"shape": (time, batch, hidden)}, tag="states")


def _add_steps(node: TfliteNode, x: str, first: int, function: int) -> str:
    bounds = clamp_bounds(function)
    node.refuse_unless(
        bounds is not None,
        f"activation {function} is not supported; cut the graph before it with output_tensors",
    )
    assert bounds is not None
    time, batch, width = node.tensor(x).shape
    node.require_supported(
        node.importer.has_room_for(time * STEP_NODES), f"its {time} steps are too many to be written out"
    )
    w, r = (node.transpose_input(i, (1, 0)) for i in (first, first + 1))
    hidden, hidden_states = node.stored_input(first + 3), []
    for step in range(time):
        attrs = {"starts": (step, 0, 0), "sizes": (1, batch, width), "steps": (1, 1, 1)}
        step_input = node.emit("Slice", [x], attrs, tag="now")
        rows = node.emit("Reshape", [step_input], {"shape": (batch, width)}, tag="rows")
        product = node.emit("MatMul", [rows, w, node.input(first + 2)], tag="driven")
        total = node.emit("Add", [product, node.emit("MatMul", [hidden, r], tag="recurrent")], tag="total")
        hidden = node.emit("Clip", [total], {"min": bounds[0], "max": bounds[1]}, tag="hidden")
        shape = (1, *node.tensor(hidden).shape)
        hidden_states.append(node.emit("Reshape", [hidden], {"shape": shape}, tag="step"))
    node.set_state(first + 3, hidden)
    return node.emit("Concat", hidden_states, {"axis": 0}, tag="sequence")


def _sequence(node: TfliteNode) -> Sequence[str]:
    """Add UNIDIRECTIONAL_SEQUENCE_RNN(x, weights, recurrent weights, bias, state)."""
    options = node.options("SequenceRNNOptions")
    time_major = bool(options.TimeMajor())
    x = read_time_first(node, time_major)
    return done_sequence(node, _direction(node, x, 1, options.FusedActivationFunction()), time_major)


def _both(node: TfliteNode) -> Sequence[str]:
    options = node.options("BidirectionalSequenceRNNOptions")
    node.require_supported(not any(node.has(i) for i in AUXILIARY), "it has an auxiliary input")
    function, time_major = options.FusedActivationFunction(), bool(options.TimeMajor())
    x = read_time_first(node, time_major)
    back = reverse_time(node, _direction(node, reverse_time(node, x), 5, function))
    return done_directions(
        node, (_direction(node, x, 1, function), back), bool(options.MergeOutputs()), time_major
    )


def _step(node: TfliteNode) -> Sequence[str]:
    """Add RNN, a single step, as a sequence of length 1."""
    batch, width = node.shape(0)
    x = node.emit("Reshape", [node.input(0)], {"shape": (1, batch, width)}, tag="sequence")
    y = _direction(node, x, 1, node.options("RNNOptions").FusedActivationFunction())
    return node.done("Reshape", [y], {"shape": node.tensor(y).shape[1:]})


def _svdf(node: TfliteNode) -> Sequence[str]:
    """Add SVDF(x, feature filters, time filters, bias, state): features, then a filter over their last times.

    R. Nakkiran et al., "Compressing deep neural networks using a rank-constrained topology", 2015.
    """
    options = node.options("SVDFOptions")
    rank, (batch, _), (filters, memory) = int(options.Rank()), node.shape(0), node.shape(2)
    node.require_consistent(rank > 0 and filters % rank == 0, f"it has {filters} filters of rank {rank}")
    # The state has the features of the last `memory` runs, the newest at the end.
    before = node.emit("Reshape", [node.stored_input(4)], {"shape": (batch, filters, memory)}, tag="before")
    storage = node.tensor(before).storage
    inputs = [node.input(0), node.transpose_input(1, (1, 0))]
    features = node.emit("MatMul", inputs, tag="found", storage=storage)
    newest = node.emit("Reshape", [features], {"shape": (batch, filters, 1)}, tag="newest")
    cut = {"starts": (0, 0, 1), "sizes": (batch, filters, memory - 1), "steps": (1, 1, 1)}
    rest = node.emit("Slice", [before], cut, tag="kept")
    state = node.emit("Concat", [rest, newest], {"axis": 2}, tag="state")
    node.set_state(4, state)
    weighted = node.emit("Mul", [state, node.input(2)], tag="weighted")
    # A unit sums over its `rank` filters, which follow each other, and over time.
    shape = (batch, filters // rank, rank * memory)
    grouped = node.emit("Reshape", [weighted], {"shape": shape}, tag="grouped")
    sums = node.emit("ReduceSum", [grouped], {"axes": (2,), "keepdims": False}, tag="sums")
    function = options.FusedActivationFunction()
    if node.has(3):
        return node.done_with_activation("Add", [sums, node.input(3)], {}, function)
    return node.done_with_activation("Identity", [sums], {}, function)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "UNIDIRECTIONAL_SEQUENCE_RNN": _sequence,
        "BIDIRECTIONAL_SEQUENCE_RNN": _both,
        "RNN": _step,
        "SVDF": _svdf,
    }
)
