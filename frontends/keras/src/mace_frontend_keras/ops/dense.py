"""Products with matrices, and tables of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from mace_core.ir import Array
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.activation import activate, done_with_activation


def _dense(node: KerasNode) -> Sequence[str]:
    kernel = node.array("kernel")
    node.require_consistent(kernel.ndim == 2, f"it has a kernel of shape {list(kernel.shape)}")
    inputs = [node.float_input(), node.weight("kernel"), *([node.weight("bias")] if node.has("bias") else [])]
    return done_with_activation(node, "MatMul", inputs)


def _embedding(node: KerasNode) -> Sequence[str]:
    places = node.input()
    # Keras casts floats to integers here: the default type of an input is float32, for numbers of words too.
    if node.builder.tensors[places].dtype.is_float:
        places = node.emit("Cast", [places], {"to": "i32"}, tag="places")
    return node.done("Gather", [node.weight("embeddings"), places], {"axis": 0})


def _einsum_dense(node: KerasNode) -> Sequence[str]:
    x, equation = node.float_input(), str(node.get("equation", ""))
    product = einsum(node, equation, x, node.weight("kernel"))
    if node.has("bias"):
        bias = _broadcast_bias(node, node.array("bias"), len(node.shape(product)))
        product = node.emit("Add", [product, node.add_float(bias, "bias")])
    return activate(node, product, node.get("activation", "linear"))


def _broadcast_bias(node: KerasNode, bias: Array, rank: int) -> Array:
    """Return the bias with an axis for each of the result's, as its `bias_axes` state them."""
    result = str(node.get("equation", "")).partition("->")[2].replace("...", "")
    bias_axes = str(node.get("bias_axes", ""))
    shape = list(bias.shape)
    if bias.ndim == len(bias_axes):
        sizes = iter(bias.shape)
        shape = [next(sizes, 1) if label in bias_axes else 1 for label in result]
    return bias.reshape(*(1,) * (rank - len(shape)), *shape)


@dataclass(frozen=True)
class _Einsum:
    """A product of two tensors in Einstein's notation: a letter for each axis of operands and result."""

    operands: tuple[str, str]
    result: str

    @classmethod
    def read(cls, node: KerasNode, equation: str, ranks: tuple[int, int]) -> _Einsum:
        """Read an equation for tensors of these ranks; RefusedError if it is none, or not of two tensors."""
        left, _, result = equation.replace(" ", "").partition("->")
        first, _, second = left.partition(",")
        node.refuse_unless(
            bool(second) and "->" in equation, f"einsum {equation!r}; write it with matmul and transpose"
        )
        counts = [
            rank - len(labels.replace("...", "")) for rank, labels in zip(ranks, (first, second), strict=True)
        ]
        # Letters for the axes of an ellipsis, which no equation has: those of another alphabet.
        dots = "".join(chr(0x410 + i) for i in range(max(0, *counts)))
        first, second, result = (labels.replace("...", dots) for labels in (first, second, result))
        once = all(len(set(labels)) == len(labels) for labels in (first, second, result))
        fits = (len(first), len(second)) == ranks and set(result) <= {*first, *second}
        node.require_supported(
            once and fits, f"it computes einsum {equation!r} of tensors of rank {ranks[0]} and {ranks[1]}"
        )
        return cls((first, second), result)


def einsum(node: KerasNode, equation: str, a: str, b: str) -> str:
    """Return a product in Einstein's notation.

    Both operands are transposed and reshaped to matrices, and their product back.
    """
    notation = _Einsum.read(node, equation, (len(node.shape(a)), len(node.shape(b))))
    first, second = notation.operands
    sizes = dict(zip(first + second, node.shape(a) + node.shape(b), strict=True))
    shared = [label for label in first if label in second]
    batch = [label for label in shared if label in notation.result]
    summed = [label for label in shared if label not in notation.result]
    rows = [label for label in first if label not in second]
    columns = [label for label in second if label not in first]
    node.require_supported(
        {*rows, *columns} <= {*notation.result},
        f"it computes einsum {equation!r}, which sums over what only one operand has",
    )
    matrices = []
    for tensor, labels, outer, inner in ((a, first, rows, summed), (b, second, summed, columns)):
        perm = tuple(labels.index(label) for label in (*batch, *outer, *inner))
        transposed = node.emit("Transpose", [tensor], {"perm": perm}, tag="turned")
        shape = (*(sizes[c] for c in batch), prod(sizes[c] for c in outer), prod(sizes[c] for c in inner))
        matrices.append(node.emit("Reshape", [transposed], {"shape": shape}, tag="matrix"))
    axes = [*batch, *rows, *columns]
    product = node.emit("MatMul", matrices, tag="product")
    split = node.emit("Reshape", [product], {"shape": tuple(sizes[c] for c in axes)}, tag="split")
    perm = tuple(axes.index(label) for label in notation.result)
    return node.emit("Transpose", [split], {"perm": perm}, tag="turned-back")


def _reversible(node: KerasNode) -> Sequence[str]:
    node.refuse_unless(not node.flag("reverse"), "it is applied in reverse; use a Dense layer")
    return _embedding(node)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "Dense": _dense,
        "Embedding": _embedding,
        "EinsumDense": _einsum_dense,
        "ReversibleEmbedding": _reversible,
    }
)
