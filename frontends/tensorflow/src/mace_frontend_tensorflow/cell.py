"""Finds which recurrent cell one iteration of a loop is: an LSTM, a GRU or a plain one.

Graphs write the same cell in dozens of ways, so that patterns of operators would not end. Instead, the
weights are read off the products in the iteration; then what a cell with them computes is compared with what
the iteration computes, on random numbers. All operators that an iteration may hold are analytic functions, so
that two that agree in an open set agree everywhere; other operators are not accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, permutations

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Node

ANALYTIC = (
    *("Add", "Concat", "Identity", "MatMul", "Mul", "Neg"),
    *("Reshape", "Sigmoid", "Slice", "Split", "Sub", "Tanh"),
)
"""Ops of the IR that an iteration may hold: without kinks, at which two functions could part unnoticed."""

SCALES = (1.0, 0.3, 0.05)
"""Standard deviations of the random numbers: small ones too, because a saturated gate hides its weights."""

TOLERANCE = 2e-5
"""Relative and absolute: sums of single precision in two orders differ by less, two cells by more."""


@dataclass(frozen=True)
class Iteration:
    """One iteration of a loop.

    builder: the graph that holds its constants.
    nodes: what it computes, in order.
    x: its input [batch, width].
    states: what it reads of the iteration before.
    results: what it leaves of these, in the same order.
    """

    builder: Builder
    nodes: Sequence[Node]
    x: str
    states: tuple[str, ...]
    results: tuple[str, ...]

    def __call__(self, operands: Mapping[str, Array]) -> list[Array]:
        """Return the results for these inputs and states."""
        values: dict[str, Array] = dict(operands)
        for node in self.nodes:
            arrays = [values[i] if i in values else self.builder.weights[i] for i in node.inputs]
            values.update(zip(node.outputs, node.op.compute(arrays, node.attrs), strict=False))
        return [values[name] for name in self.results]

    def draw_operands(self, rng: np.random.Generator, scale: float) -> dict[str, Array]:
        """Return random inputs and states."""
        return {
            name: rng.normal(0, scale, self.builder.shape(name)).astype(np.float32)
            for name in (self.x, *self.states)
        }


@dataclass(frozen=True)
class Cell:
    """A cell as the op of the IR has it.

    op: LSTM, GRU or RNN.
    w, r, b: weights [gates * size, width], recurrent weights [gates * size, size], and the biases of both.
    hidden: which of the loop's states is the hidden one.
    linear: for a GRU, whether the reset gate acts behind the product.
    """

    op: str
    w: Array
    r: Array
    b: Array
    hidden: int
    linear: bool = False

    def attrs(self) -> dict[str, object]:
        """Return the op's attributes."""
        size = {"hidden": self.r.shape[-1]}
        return {**size, "linear_before_reset": self.linear} if self.op == "GRU" else size

    def explains(self, iteration: Iteration) -> bool:
        """Tell whether this cell computes what the iteration does."""
        # A fixed seed, so that a model is always imported in the same way.
        op, rng = iteration.builder.ops[self.op], np.random.default_rng(0)
        attrs = op.complete(self.attrs())
        for scale in SCALES:
            operands = iteration.draw_operands(rng, scale)
            states = [operands[name] for name in iteration.states]
            order = (self.hidden, *(i for i in range(len(states)) if i != self.hidden))
            # A sequence of one step, in one direction.
            weights = [self.w[None], self.r[None], self.b[None]]
            inputs = [operands[iteration.x][None], *weights, None, *(states[i][None] for i in order)]
            computed, expected = op.compute(inputs, attrs)[1:], iteration(operands)
            pairs = zip(computed, order, strict=True)
            if not all(np.allclose(a[0], expected[i], TOLERANCE, TOLERANCE) for a, i in pairs):
                return False
        return True


@dataclass
class _Weights:
    """The constants of an iteration by what they are used for, in the order of the nodes.

    x, hidden: matrices that the input and the hidden state are multiplied with.
    other: matrices of what is made of the hidden state, as by the reset gate of a GRU.
    added_x, added_hidden: biases of the products with the input and the hidden state.
    numbers: single numbers that are added, as to the forget gate of an LSTM.
    """

    x: list[Array] = field(default_factory=list)
    hidden: list[Array] = field(default_factory=list)
    other: list[Array] = field(default_factory=list)
    added_x: list[Array] = field(default_factory=list)
    added_hidden: list[Array] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)


def find_cell(iteration: Iteration) -> Cell | None:
    """Return the cell that an iteration is; None if it is no known one."""
    if not _may_be_cell(iteration):
        return None
    for hidden in range(len(iteration.states)):
        weights = _read_weights(iteration, iteration.states[hidden])
        if weights is None:
            continue
        if len(iteration.states) == 2:
            candidates = _lstm_candidates(iteration, weights, hidden)
        else:
            candidates = chain(_plain_candidates(iteration, weights), _gru_candidates(iteration, weights))
        for cell in candidates:
            if cell.explains(iteration):
                return cell
    return None


def _may_be_cell(iteration: Iteration) -> bool:
    """Tell whether types, shapes and ops of an iteration are those of a cell."""
    if len(iteration.states) not in (1, 2) or any(node.op.name not in ANALYTIC for node in iteration.nodes):
        return False
    x, *states = (iteration.builder.tensors[name] for name in (iteration.x, *iteration.states))
    if any(tensor.dtype is not DType.F32 or tensor.quant for tensor in (x, *states)):
        return False
    shape = states[0].shape
    if any(state.shape != shape for state in states):
        return False
    return len(x.shape) == 2 and x.shape[:1] == shape[:-1]


def _read_weights(iteration: Iteration, hidden: str) -> _Weights | None:
    """Return the weights of an iteration; None if a product has no constant matrix."""
    weights = _Weights()
    producers: dict[str, Node] = {}
    for node in iteration.nodes:
        producers.update(dict.fromkeys(node.outputs, node))
    width = iteration.builder.shape(iteration.x)[-1]
    sources: dict[str, str] = {}
    for node in iteration.nodes:
        if node.op.name == "MatMul":
            matrix = iteration.builder.weights.get(node.inputs[1])
            if matrix is None or matrix.ndim != 2:
                return None
            known = (iteration.x, hidden, width)
            sources[node.outputs[0]] = _note_matrix(weights, node.inputs[0], matrix, known, producers)
        elif node.op.name == "Add":
            _note_bias(weights, iteration, node, sources)
    return weights


def _note_matrix(
    weights: _Weights,
    operand: str,
    matrix: Array,
    known: tuple[str, str, int],
    producers: Mapping[str, Node],
) -> str:
    """Note a matrix; return whose bias is added to its product: "x" or "hidden".

    known: the input, the hidden state, and the width of the input.
    """
    x, hidden, width = known
    producer = producers.get(operand)
    if operand == x:
        weights.x.append(matrix)
        return "x"
    if operand == hidden:
        weights.hidden.append(matrix)
        return "hidden"
    # Most cells of version 1 multiply input and hidden state side by side.
    is_pair = producer is not None and producer.op.name == "Concat" and len(producer.inputs) == 2
    if producer is not None and is_pair and producer.inputs[0] == x:
        weights.x.append(matrix[:width])
        (weights.hidden if producer.inputs[1] == hidden else weights.other).append(matrix[width:])
    else:
        weights.other.append(matrix)
    return "x"


def _note_bias(weights: _Weights, iteration: Iteration, node: Node, sources: dict[str, str]) -> None:
    """Note a constant that is added, to a product of the hidden state or to anything else."""
    constants = iteration.builder.weights
    constant = next((constants[name] for name in node.inputs if name in constants), None)
    source = next((sources[name] for name in node.inputs if name in sources), "x")
    if constant is None:
        return
    if constant.size == 1:
        weights.numbers.append(float(constant.reshape(())))
    else:
        (weights.added_hidden if source == "hidden" else weights.added_x).append(constant.reshape(-1))
        sources[node.outputs[0]] = source


def _concat_gates(parts: Sequence[Array], gates: int, size: int, rows: tuple[int, ...]) -> Array | None:
    """Return matrices of so many rows, or biases, as those of all gates: [gates, size, *rows].

    None if they are more or fewer. A cell may have one matrix for all gates or one for each.
    """
    if not parts or any(part.shape[:-1] != rows for part in parts):
        return None
    merged = np.concatenate(parts, axis=-1)
    return merged.T.reshape(gates, size, *rows) if merged.shape[-1] == gates * size else None


def _concat_matrices(
    iteration: Iteration, parts: tuple[Sequence[Array], Sequence[Array]], gates: int
) -> tuple[Array, Array] | None:
    """Return the matrices of input and hidden state; None if they are not those of so many gates."""
    size = iteration.builder.shape(iteration.states[0])[-1]
    width = iteration.builder.shape(iteration.x)[-1]
    w = _concat_gates(parts[0], gates, size, (width,))
    r = _concat_gates(parts[1], gates, size, (size,))
    return None if w is None or r is None else (w, r)


def _lstm_candidates(iteration: Iteration, weights: _Weights, hidden: int) -> Iterator[Cell]:
    """Yield LSTMs with these weights: with any order of gates, and with or without a forget bias."""
    size = iteration.builder.shape(iteration.states[0])[-1]
    matrices = _concat_matrices(iteration, (weights.x, weights.hidden), 4)
    biases = [*weights.added_x, *weights.added_hidden]
    if matrices is None or weights.other or any(bias.size != 4 * size for bias in biases):
        return
    w, r = matrices
    b = sum(biases, np.zeros(4 * size)).reshape(4, size)
    for number in (0.0, *weights.numbers[:1]):
        # The IR has the gates as input, output, forget, candidate. Which is which in the iteration depends on
        # how it is written, so that all 24 orders are tried; the first comparison refutes a wrong one.
        for permutation in permutations(range(4)):
            order = list(permutation)
            bias = b[order] + np.array([0, 0, number, 0]).reshape(4, 1)
            yield _make_cell("LSTM", (w[order], r[order]), (bias, np.zeros_like(bias)), hidden=hidden)


def _plain_candidates(iteration: Iteration, weights: _Weights) -> Iterator[Cell]:
    """Yield the cell without gates, if these are its weights."""
    size = iteration.builder.shape(iteration.states[0])[-1]
    matrices = _concat_matrices(iteration, (weights.x, weights.hidden), 1)
    biases = [*weights.added_x, *weights.added_hidden]
    if matrices is not None and not weights.other and all(bias.size == size for bias in biases):
        b = sum(biases, np.zeros(size))
        yield _make_cell("RNN", matrices, (b, np.zeros_like(b)))


def _gru_candidates(iteration: Iteration, weights: _Weights) -> Iterator[Cell]:
    """Yield GRUs with these weights: with update and reset gate in either order.

    The reset gate acts before the product if a matrix belongs to something other than the hidden state.
    """
    size = iteration.builder.shape(iteration.states[0])[-1]
    matrices = _concat_matrices(iteration, (weights.x, [*weights.hidden, *weights.other]), 3)
    # The two biases stay apart, because the reset gate may act on the recurrent one.
    none = np.zeros((3, size))
    bias_x = _concat_gates(weights.added_x, 3, size, ()) if weights.added_x else none
    bias_hidden = _concat_gates(weights.added_hidden, 3, size, ()) if weights.added_hidden else none
    if matrices is None or bias_x is None or bias_hidden is None:
        return
    w, r = matrices
    for order in ([0, 1, 2], [1, 0, 2]):
        biases = (bias_x[order], bias_hidden[order])
        yield _make_cell("GRU", (w[order], r[order]), biases, linear=not weights.other)


def _make_cell(
    op: str,
    matrices: tuple[Array, Array],
    biases: tuple[Array, Array],
    *,
    hidden: int = 0,
    linear: bool = False,
) -> Cell:
    w, r = (np.ascontiguousarray(matrix.reshape(-1, matrix.shape[-1]), np.float32) for matrix in matrices)
    b = np.concatenate([bias.reshape(-1) for bias in biases]).astype(np.float32)
    return Cell(op, w, r, b, hidden, linear)
