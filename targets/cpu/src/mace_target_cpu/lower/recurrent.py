"""RNN, GRU and LSTM: weights packed into panels, one kernel a set of activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mace_core.emit.text import CIdentifier
from mace_core.ir import Array, DType, Node, Tensor
from mace_core.kernel_target import Lower
from mace_core.lowering import Lowering
from mace_core.ops import gru, lstm, rnn
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.softmax import MATH, ROW
from mace_target_cpu.lower.types import refuse_type

RECURRENT = KERNELS / "recurrent.h.in"
HELPERS = (MATH, ROW, RECURRENT)
PANEL = 32
"""Results of a packed matrix that lie together: RNN_PANEL of the kernels, on every level."""
GROUP, ROWS = 4, 16
"""Sequences that a task takes, and rows of its scratch: RNN_GROUP and RNN_ROWS."""
SIZES = ("time", "batch", "inputs", "hidden", "directions", "reverse")
PACK = Kernel(
    "recurrent_pack_f32",
    KERNELS / "recurrent_pack.c.in",
    tuple((n, "i32") for n in ("directions", "all", "first", "results", "inputs")),
    helpers=HELPERS,
)
INPUTS = 8
"""Inputs of LSTM, the most that any of the three has."""


def padded(results: int) -> int:
    """How many results whole panels hold."""
    return -(-results // PANEL) * PANEL


def packed(node: Node, to: Lowering, weights: str, rows: tuple[int, int]) -> str:
    """Pack rows (first, how many) of each direction's weights: at build time if they are constants.

    Returns the tensor's name.
    """
    count, every, inputs = to.shape(weights)
    first, results = rows
    shape = (count, padded(results) // PANEL, inputs, PANEL)
    constant = to.constant(weights)
    name = f"{weights}_packed"
    if constant is not None:
        matrix: Array = constant[:, first : first + results]

        def make() -> Array:
            wide = np.zeros((count, padded(results), inputs), np.float32)
            wide[:, :results] = matrix
            return np.ascontiguousarray(wide.reshape(count, -1, PANEL, inputs).transpose(0, 1, 3, 2))

        return to.weight(name, shape, "float32", make)
    made = to.temporary(Tensor(name, DType.F32, shape))
    args = {"directions": count, "all": every, "first": first, "results": results, "inputs": inputs}
    to.call(node, Call(PACK, args, [weights], [made]))
    return made


def _kernel(
    node: Node, defaults: Sequence[str], more: tuple[tuple[str, str], ...] = ()
) -> tuple[Kernel, dict[str, Arg]]:
    """A kernel for the node's activations, and the arguments that all three ops have.

    more: fields that the op has besides.
    """
    attrs = node.attributes(rnn.RecurrentAttributes)
    chosen = rnn.activations(attrs, defaults)
    stem = node.op.name.lower()
    names = [[CIdentifier(a.name.lower()) for a in direction] for direction in chosen]
    distinct = names if names[0] != names[-1] else names[:1]
    usual = distinct == [[d.lower() for d in defaults]]
    kind = "" if usual else "_" + "_".join(n for direction in distinct for n in direction)
    letters = dict(zip("fgh", zip(*distinct, strict=True), strict=False))
    number = len(chosen) * len(defaults)
    fields = (
        *((n, "i32") for n in SIZES),
        ("clip", "f32"),
        ("alpha", f"f32[{2 * len(defaults)}]"),
        ("beta", f"f32[{2 * len(defaults)}]"),
        *more,
    )
    flat = [a for direction in chosen for a in direction]
    rest = (0.0,) * (2 * len(defaults) - number)
    args: dict[str, Arg] = {
        "clip": attrs.clip,
        "alpha": (*(a.alpha or 0.0 for a in flat), *rest),
        "beta": (*(a.beta or 0.0 for a in flat), *rest),
    }
    return Kernel(f"{stem}{kind}_f32", KERNELS / f"{stem}.c.in", fields, letters, HELPERS), args


def _sizes(node: Node, to: Lowering) -> dict[str, Arg]:
    x = to.tensors[node.inputs[0]]
    if x.dtype is not DType.F32:
        raise refuse_type(node.op.name, x.dtype)
    count, _, hidden = to.shape(node.inputs[2])
    reverse = int(node.attributes(rnn.RecurrentAttributes).direction == "reverse")
    return dict(zip(SIZES, (*x.shape, hidden, count, reverse), strict=True))


def _tensors(node: Node, outputs: int) -> tuple[list[str], list[str]]:
    """The node's inputs and outputs with "" for those that are absent."""
    return [*node.inputs, *[""] * INPUTS][:INPUTS], [*node.outputs, "", ""][:outputs]


def lower_rnn(node: Node, to: Lowering) -> None:
    """RNN: one product with x and one with the state a step."""
    sizes = _sizes(node, to)
    hidden = to.shape(node.inputs[2])[-1]
    kernel, args = _kernel(node, rnn.DEFAULTS)
    (x, w, r, b, lengths, h0, _, _), writes = _tensors(node, 2)
    reads = [x, *(packed(node, to, m, (0, hidden)) for m in (w, r)), b, lengths, h0]
    scratch = 4 * (1 + GROUP + ROWS) * padded(hidden)
    to.call(node, Call(kernel, {**sizes, **args}, reads, writes, scratch=scratch))


def lower_gru(node: Node, to: Lowering) -> None:
    """GRU: the candidate's weights apart, for they wait for the reset gate."""
    sizes = _sizes(node, to)
    hidden = to.shape(node.inputs[2])[-1]
    kernel, args = _kernel(node, gru.DEFAULTS, (("linear", "i32"),))
    linear = int(node.attributes(gru.GRUAttributes).linear_before_reset)
    (x, w, r, b, lengths, h0, _, _), writes = _tensors(node, 2)
    parts = ((0, 2 * hidden), (2 * hidden, hidden))
    reads = [x, *(packed(node, to, m, part) for m in (w, r) for part in parts), b, lengths, h0]
    scratch = 4 * ((1 + ROWS) * padded(2 * hidden) + (2 + ROWS + 2 * GROUP) * padded(hidden))
    to.call(node, Call(kernel, {**sizes, **args, "linear": linear}, reads, writes, scratch=scratch))


def lower_lstm(node: Node, to: Lowering) -> None:
    """LSTM: all four gates in one product."""
    sizes = _sizes(node, to)
    hidden = to.shape(node.inputs[2])[-1]
    kernel, args = _kernel(node, lstm.DEFAULTS, (("coupled", "i32"), ("cell_clip", "f32")))
    attrs = node.attributes(lstm.LSTMAttributes)
    coupled, cell_clip = int(attrs.coupled), attrs.cell_clip
    (x, w, r, *rest), writes = _tensors(node, 3)
    reads = [x, *(packed(node, to, m, (0, 4 * hidden)) for m in (w, r)), *rest]
    scratch = 4 * ((1 + ROWS) * padded(4 * hidden) + 2 * GROUP * padded(hidden))
    to.call(
        node,
        Call(
            kernel,
            {**sizes, **args, "coupled": coupled, "cell_clip": cell_clip},
            reads,
            writes,
            scratch=scratch,
        ),
    )


LOWERINGS: Mapping[str, Lower] = {"RNN": lower_rnn, "GRU": lower_gru, "LSTM": lower_lstm}
