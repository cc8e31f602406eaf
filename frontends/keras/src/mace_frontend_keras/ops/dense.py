"""Products with matrices, and tables of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

from mace_core.ir import Array
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.activation import activate, activated


def _dense(node: KerasNode) -> Sequence[str]:
    kernel = node.array("kernel")
    node.refuse_unless(kernel.ndim == 2, f"a kernel of shape {list(kernel.shape)}")
    inputs = [node.float_input(), node.weight("kernel"), *([node.weight("bias")] if node.has("bias") else [])]
    return activated(node, "MatMul", inputs)


def _embedding(node: KerasNode) -> Sequence[str]:
    places = node.input()
    if node.builder.tensors[places].dtype.is_float:
        places = node.emit("Cast", [places], {"to": "i32"}, tag="places")
    return node.done("Gather", [node.weight("embeddings"), places], {"axis": 0})


def _einsum_dense(node: KerasNode) -> Sequence[str]:
    x, equation = node.float_input(), str(node.get("equation", ""))
    made = einsum(node, equation, x, node.weight("kernel"))
    if node.has("bias"):
        made = node.emit(
            "Add", [made, node.add_float(_stretched(node, node.array("bias"), len(node.shape(made))), "bias")]
        )
    return activate(node, made, node.get("activation", "linear"))


def _stretched(node: KerasNode, bias: Array, rank: int) -> Array:
    """The bias with an axis for each of the result's, as its `bias_axes` say."""
    result = str(node.get("equation", "")).partition("->")[2].replace("...", "")
    kept = str(node.get("bias_axes", ""))
    sizes = iter(bias.shape)
    shape = (
        [next(sizes, 1) if label in kept else 1 for label in result]
        if bias.ndim == len(kept)
        else list(bias.shape)
    )
    return bias.reshape(*(1,) * (rank - len(shape)), *shape)


def einsum(node: KerasNode, equation: str, a: str, b: str) -> str:
    """A product of two tensors in Einstein's notation, each label once in an operand: transposed, a MatMul, transposed back."""
    left, _, result = equation.replace(" ", "").partition("->")
    first, _, second = left.partition(",")
    node.refuse_unless(
        bool(second) and "->" in equation, f"einsum {equation!r}; write it with matmul and transpose"
    )
    ranks = (len(node.shape(a)), len(node.shape(b)))
    wide = max(
        rank - len(labels.replace("...", "")) for rank, labels in zip(ranks, (first, second), strict=True)
    )
    dots = "".join(chr(0x410 + i) for i in range(max(wide, 0)))
    first, second, result = (labels.replace("...", dots) for labels in (first, second, result))
    node.refuse_unless(
        (len(first), len(second)) == ranks
        and all(len(set(s)) == len(s) for s in (first, second, result))
        and set(result) <= {*first, *second},
        f"einsum {equation!r} of tensors of rank {ranks[0]} and {ranks[1]}",
    )
    sizes = {**dict(zip(first, node.shape(a), strict=True)), **dict(zip(second, node.shape(b), strict=True))}
    batch = [c for c in first if c in second and c in result]
    summed = [c for c in first if c in second and c not in result]
    rows, columns = ([c for c in own if c not in other] for own, other in ((first, second), (second, first)))
    node.refuse_unless(
        {*rows, *columns} <= {*result}, f"einsum {equation!r}, which sums over what only one operand has"
    )
    matrices = []
    for tensor, labels, outer, inner in ((a, first, rows, summed), (b, second, summed, columns)):
        order = (*batch, *outer, *inner)
        turned = node.emit(
            "Transpose", [tensor], {"perm": tuple(labels.index(c) for c in order)}, tag="turned"
        )
        shape = (*(sizes[c] for c in batch), prod(sizes[c] for c in outer), prod(sizes[c] for c in inner))
        matrices.append(node.emit("Reshape", [turned], {"shape": shape}, tag="matrix"))
    made = [*batch, *rows, *columns]
    product = node.emit(
        "Reshape",
        [node.emit("MatMul", matrices, tag="product")],
        {"shape": tuple(sizes[c] for c in made)},
        tag="split",
    )
    return node.emit(
        "Transpose", [product], {"perm": tuple(made.index(c) for c in result)}, tag="turned-back"
    )


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
