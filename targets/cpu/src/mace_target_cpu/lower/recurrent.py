"""RNN, GRU and LSTM: weights packed into panels, one kernel a set of activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, product

import numpy as np

from mace_core.emit.text import CIdentifier
from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lower, Lowering
from mace_core.ops import gru, lstm, rnn
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.softmax import MATH, ROW
from mace_target_cpu.lower.types import need_type

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


def pad_to_panels(results: int) -> int:
    """How many results whole panels hold."""
    return -(-results // PANEL) * PANEL


def pack_matrix(node: Node, lowering: Lowering, weights: str, rows: tuple[int, int]) -> str:
    """Pack rows (first, how many) of each direction's weights: at build time if they are constants.

    Returns the tensor's name.
    """
    count, every, inputs = lowering.shape(weights)
    first, results = rows
    shape = (count, pad_to_panels(results) // PANEL, inputs, PANEL)
    constant = lowering.constant(weights)
    name = f"{weights}_packed"
    if constant is not None:
        matrix: Array = constant[:, first : first + results]

        def make() -> Array:
            # Rows of zeros fill the last panel, so that the kernel needs no remainder.
            wide = np.zeros((count, pad_to_panels(results), inputs), np.float32)
            wide[:, :results] = matrix
            return np.ascontiguousarray(wide.reshape(count, -1, PANEL, inputs).transpose(0, 1, 3, 2))

        return lowering.weight(name, shape, "float32", make)
    temporary = lowering.temporary(Tensor(name, DType.F32, shape))
    args = {"directions": count, "all": every, "first": first, "results": results, "inputs": inputs}
    lowering.call(node, Call(PACK, args, [weights], [temporary]))
    return temporary


def _choose_kernel(
    node: Node, defaults: Sequence[str], more: tuple[tuple[str, str], ...] = ()
) -> tuple[Kernel, dict[str, Arg]]:
    """A kernel for the node's activations, and the arguments that all three ops have.

    more: fields that the op has besides.
    """
    attrs = node.attributes(rnn.RecurrentAttributes)
    chosen = rnn.activations(attrs, defaults)
    stem = node.op.name.lower()
    names = [[CIdentifier(a.name.lower()) for a in direction] for direction in chosen]
    # Two directions with the same activations share a function; the kernel's name says which it has.
    distinct = names if names[0] != names[-1] else names[:1]
    usual = distinct == [[d.lower() for d in defaults]]
    kind = "" if usual else "_" + "_".join(chain.from_iterable(distinct))
    letters = dict(zip("fgh", zip(*distinct, strict=True), strict=False))
    number = len(chosen) * len(defaults)
    fields = (
        *((n, "i32") for n in SIZES),
        ("clip", "f32"),
        ("alpha", f"f32[{2 * len(defaults)}]"),
        ("beta", f"f32[{2 * len(defaults)}]"),
        *more,
    )
    flat = list(chain.from_iterable(chosen))
    rest = (0.0,) * (2 * len(defaults) - number)
    args: dict[str, Arg] = {
        "clip": attrs.clip,
        "alpha": (*(a.alpha or 0.0 for a in flat), *rest),
        "beta": (*(a.beta or 0.0 for a in flat), *rest),
    }
    return Kernel(f"{stem}{kind}_f32", KERNELS / f"{stem}.c.in", fields, letters, HELPERS), args


def _size_args(node: Node, lowering: Lowering) -> dict[str, Arg]:
    x = lowering.tensors[node.inputs[0]]
    need_type(node, x)
    count, _, hidden = lowering.shape(node.inputs[2])
    reverse = int(node.attributes(rnn.RecurrentAttributes).direction == "reverse")
    return dict(zip(SIZES, (*x.shape, hidden, count, reverse), strict=True))


def _read_tensors(node: Node, outputs: int) -> tuple[list[str], list[str]]:
    """The node's inputs and outputs with "" for those that are absent."""
    return [*node.inputs, *[""] * INPUTS][:INPUTS], [*node.outputs, "", ""][:outputs]


def lower_rnn(node: Node, lowering: Lowering) -> None:
    """RNN: one product with x and one with the state a step."""
    sizes = _size_args(node, lowering)
    hidden = lowering.shape(node.inputs[2])[-1]
    kernel, args = _choose_kernel(node, rnn.DEFAULTS)
    (x, w, r, b, lengths, h0, _, _), writes = _read_tensors(node, 2)
    reads = [x, *(pack_matrix(node, lowering, m, (0, hidden)) for m in (w, r)), b, lengths, h0]
    # Floats of bias, states and products, as the kernel lays them out.
    scratch = 4 * (1 + GROUP + ROWS) * pad_to_panels(hidden)
    lowering.call(node, Call(kernel, {**sizes, **args}, reads, writes, scratch=scratch))


def lower_gru(node: Node, lowering: Lowering) -> None:
    """GRU: the candidate's weights apart, for they wait for the reset gate."""
    sizes = _size_args(node, lowering)
    hidden = lowering.shape(node.inputs[2])[-1]
    kernel, args = _choose_kernel(node, gru.DEFAULTS, (("linear", "i32"),))
    linear = int(node.attributes(gru.GRUAttributes).linear_before_reset)
    (x, w, r, b, lengths, h0, _, _), writes = _read_tensors(node, 2)
    # Gates z and r are one product; the candidate's waits for r.
    parts = ((0, 2 * hidden), (2 * hidden, hidden))
    matrices = [pack_matrix(node, lowering, matrix, part) for matrix, part in product((w, r), parts)]
    reads = [x, *matrices, b, lengths, h0]
    scratch = 4 * ((1 + ROWS) * pad_to_panels(2 * hidden) + (2 + ROWS + 2 * GROUP) * pad_to_panels(hidden))
    lowering.call(node, Call(kernel, {**sizes, **args, "linear": linear}, reads, writes, scratch=scratch))


def lower_lstm(node: Node, lowering: Lowering) -> None:
    """LSTM: all four gates in one product."""
    sizes = _size_args(node, lowering)
    hidden = lowering.shape(node.inputs[2])[-1]
    kernel, args = _choose_kernel(node, lstm.DEFAULTS, (("coupled", "i32"), ("cell_clip", "f32")))
    attrs = node.attributes(lstm.LSTMAttributes)
    coupled, cell_clip = int(attrs.coupled), attrs.cell_clip
    (x, w, r, *rest), writes = _read_tensors(node, 3)
    reads = [x, *(pack_matrix(node, lowering, m, (0, 4 * hidden)) for m in (w, r)), *rest]
    scratch = 4 * ((1 + ROWS) * pad_to_panels(4 * hidden) + 2 * GROUP * pad_to_panels(hidden))
    lowering.call(
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
