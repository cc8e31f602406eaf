"""Which recurrent cell one turn of a loop is: an LSTM, a GRU or a plain one, whatever operators it is written with.

Its weights are read off the products in the turn; then what a cell with them computes is compared with what
the turn computes, on random numbers. All operators that a turn may hold are analytic functions, so two of
them that agree there agree everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, permutations

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Node

ANALYTIC = (
    "Add",
    "Concat",
    "Identity",
    "MatMul",
    "Mul",
    "Neg",
    "Reshape",
    "Sigmoid",
    "Slice",
    "Split",
    "Sub",
    "Tanh",
)
SCALES = (1.0, 0.3, 0.05)
"""Of the random numbers: large ones and small ones, where no gate is fully open or shut."""

TOLERANCE = 2e-5


@dataclass(frozen=True)
class Turn:
    """One turn.

    x: its input [batch, width]; states: what it reads of the turn before, and results: what it leaves, in the
    same order.
    """

    build: Builder
    nodes: Sequence[Node]
    x: str
    states: tuple[str, ...]
    results: tuple[str, ...]

    def __call__(self, given: Mapping[str, Array]) -> list[Array]:
        """The results for these inputs and states."""
        values: dict[str, Array] = dict(given)
        for node in self.nodes:
            arrays = [values[i] if i in values else self.build.weights[i] for i in node.inputs]
            values.update(zip(node.outputs, node.op.compute(arrays, node.attrs), strict=False))
        return [values[name] for name in self.results]

    def random(self, rng: np.random.Generator, scale: float) -> dict[str, Array]:
        """Inputs and states."""
        return {
            n: rng.normal(0, scale, self.build.shape(n)).astype(np.float32) for n in (self.x, *self.states)
        }


@dataclass(frozen=True)
class Cell:
    """A cell as the IR's op has it: weights [gates, inputs], recurrent weights and biases.

    hidden: which state is the hidden one.
    """

    op: str
    w: Array
    r: Array
    b: Array
    hidden: int
    linear: bool = False

    def attrs(self) -> dict[str, object]:
        """The op's attributes."""
        size = {"hidden": self.r.shape[-1]}
        return {**size, "linear_before_reset": self.linear} if self.op == "GRU" else size

    def explains(self, turn: Turn) -> bool:
        """Whether this cell computes what the turn does."""
        op, rng = turn.build.ops[self.op], np.random.default_rng(0)
        attrs = op.complete(self.attrs())
        for scale in SCALES:
            given = turn.random(rng, scale)
            states = [given[name] for name in turn.states]
            order = (self.hidden, *(i for i in range(len(states)) if i != self.hidden))
            inputs = [
                given[turn.x][None],
                self.w[None],
                self.r[None],
                self.b[None],
                None,
                *(states[i][None] for i in order),
            ]
            found, wanted = op.compute(inputs, attrs)[1:], turn(given)
            if not all(
                np.allclose(a[0], wanted[i], TOLERANCE, TOLERANCE) for a, i in zip(found, order, strict=True)
            ):
                return False
        return True


@dataclass
class _Weights:
    """Matrices by what they are multiplied with, side by side as they come.

    And what is added to the products.

    other: of what is neither the input nor the hidden state, but made of it.
    """

    x: list[Array] = field(default_factory=list)
    hidden: list[Array] = field(default_factory=list)
    other: list[Array] = field(default_factory=list)
    added_x: list[Array] = field(default_factory=list)
    added_hidden: list[Array] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)


def cell_of(turn: Turn) -> Cell | None:
    """The cell that a turn is; None if it is none that is known."""
    if len(turn.states) not in (1, 2) or any(node.op.name not in ANALYTIC for node in turn.nodes):
        return None
    x, *states = (turn.build.tensors[name] for name in (turn.x, *turn.states))
    alike = all(s.shape == states[0].shape and s.dtype is DType.F32 and not s.quant for s in states)
    if (
        not alike
        or x.dtype is not DType.F32
        or x.quant
        or len(x.shape) != 2
        or x.shape[:1] != states[0].shape[:-1]
    ):
        return None
    for hidden in range(len(turn.states)):
        weights = _weights(turn, turn.states[hidden])
        if weights is not None:
            kinds = (
                _lstms(turn, weights, hidden)
                if len(turn.states) == 2
                else chain(_plain(turn, weights), _grus(turn, weights))
            )
            found = next((cell for cell in kinds if cell.explains(turn)), None)
            if found is not None:
                return found
    return None


def _weights(turn: Turn, hidden: str) -> _Weights | None:
    """Read the weights off; None where a product is none of an input and a constant."""
    found, makers = _Weights(), {o: n for n in turn.nodes for o in n.outputs}
    width = turn.build.shape(turn.x)[-1]
    drives: dict[str, str] = {}
    for node in turn.nodes:
        if node.op.name == "MatMul":
            matrix = turn.build.weights.get(node.inputs[1])
            if matrix is None or matrix.ndim != 2:
                return None
            drives[node.outputs[0]] = _multiplied(
                found, node.inputs[0], matrix, (turn.x, hidden, width), makers
            )
        elif node.op.name == "Add":
            _added(found, turn, node, drives)
    return found


def _multiplied(
    found: _Weights, given: str, matrix: Array, known: tuple[str, str, int], makers: Mapping[str, Node]
) -> str:
    """Note a matrix; what it is multiplied with."""
    x, hidden, width = known
    maker = makers.get(given)
    if given == x:
        found.x.append(matrix)
        return "x"
    if given == hidden:
        found.hidden.append(matrix)
        return "hidden"
    if maker is not None and maker.op.name == "Concat" and len(maker.inputs) == 2 and maker.inputs[0] == x:
        found.x.append(matrix[:width])
        (found.hidden if maker.inputs[1] == hidden else found.other).append(matrix[width:])
    else:
        found.other.append(matrix)
    return "x"


def _added(found: _Weights, turn: Turn, node: Node, drives: dict[str, str]) -> None:
    """Note a constant that is added, to a product of the hidden state or to anything else."""
    constant = next((turn.build.weights[i] for i in node.inputs if i in turn.build.weights), None)
    source = next((drives[i] for i in node.inputs if i in drives), "x")
    if constant is None:
        return
    if constant.size == 1:
        found.numbers.append(float(constant.reshape(())))
    else:
        (found.added_hidden if source == "hidden" else found.added_x).append(constant.reshape(-1))
        drives[node.outputs[0]] = source


def _side_by_side(parts: Sequence[Array], gates: int, size: int, rows: tuple[int, ...]) -> Array | None:
    """Matrices of so many rows, or biases, joined to those of all gates, [gates, size, *rows].

    None if they are not as many.
    """
    if not parts or any(p.shape[:-1] != rows for p in parts):
        return None
    joined = np.concatenate(parts, axis=-1)
    return joined.T.reshape(gates, size, *rows) if joined.shape[-1] == gates * size else None


def _matrices(
    turn: Turn, parts: tuple[Sequence[Array], Sequence[Array]], gates: int
) -> tuple[Array, Array] | None:
    """What the input and the hidden state are multiplied with.

    None if that is not what a cell of so many gates has.
    """
    size, width = turn.build.shape(turn.states[0])[-1], turn.build.shape(turn.x)[-1]
    w, r = _side_by_side(parts[0], gates, size, (width,)), _side_by_side(parts[1], gates, size, (size,))
    return None if w is None or r is None else (w, r)


def _lstms(turn: Turn, weights: _Weights, hidden: int) -> Iterator[Cell]:
    """Cells with these weights: the gates in any order, with or without a number that is added to the forget gate."""
    size = turn.build.shape(turn.states[0])[-1]
    matrices = _matrices(turn, (weights.x, weights.hidden), 4)
    biases = [*weights.added_x, *weights.added_hidden]
    if matrices is None or weights.other or any(b.size != 4 * size for b in biases):
        return
    w, r = matrices
    b = sum(biases, np.zeros(4 * size)).reshape(4, size)
    for number in (0.0, *weights.numbers[:1]):
        for order in permutations(range(4)):  # where input, output and forget gate and the candidate lie
            moved = b[list(order)] + np.array([0, 0, number, 0]).reshape(4, 1)
            yield _cell(
                "LSTM", (w[list(order)], r[list(order)]), (moved, np.zeros_like(moved)), hidden=hidden
            )


def _plain(turn: Turn, weights: _Weights) -> Iterator[Cell]:
    """The cell without gates."""
    size = turn.build.shape(turn.states[0])[-1]
    matrices = _matrices(turn, (weights.x, weights.hidden), 1)
    biases = [*weights.added_x, *weights.added_hidden]
    if matrices is not None and not weights.other and all(b.size == size for b in biases):
        b = sum(biases, np.zeros(size))
        yield _cell("RNN", matrices, (b, np.zeros_like(b)))


def _grus(turn: Turn, weights: _Weights) -> Iterator[Cell]:
    """Cells with these weights: update and reset gate in either order, the reset before or after the product."""
    size = turn.build.shape(turn.states[0])[-1]
    matrices = _matrices(turn, (weights.x, [*weights.hidden, *weights.other]), 3)
    biases = [
        _side_by_side(p, 3, size, ()) if p else np.zeros((3, size))
        for p in (weights.added_x, weights.added_hidden)
    ]
    if matrices is None or biases[0] is None or biases[1] is None:
        return
    w, r = matrices
    for order in ([0, 1, 2], [1, 0, 2]):
        yield _cell(
            "GRU", (w[order], r[order]), (biases[0][order], biases[1][order]), linear=not weights.other
        )


def _cell(
    op: str,
    matrices: tuple[Array, Array],
    biases: tuple[Array, Array],
    *,
    hidden: int = 0,
    linear: bool = False,
) -> Cell:
    w, r = (np.ascontiguousarray(m.reshape(-1, m.shape[-1]), np.float32) for m in matrices)
    return Cell(op, w, r, np.concatenate([b.reshape(-1) for b in biases]).astype(np.float32), hidden, linear)
