"""Matrix products and determinants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler


def _matmul(node: OnnxNode) -> Sequence[Held]:
    return node.done("MatMul", [node.input(0), node.input(1)])


def _gemm(node: OnnxNode) -> Sequence[Held]:
    """Compute alpha * A' @ B' + beta * C."""
    turned = [bool(node.attr("transA")), bool(node.attr("transB"))]
    a, b = (node.permuted(i, (1, 0)) if turn else node.input(i) for i, turn in enumerate(turned))
    alpha, beta = node.attr("alpha"), node.attr("beta")
    added = node.has(2) and beta != 0
    bias = _scaled(node, 2, beta) if added else ""
    columns = node.builder.shape(b)[1]
    if alpha == 1 and (not added or node.builder.shape(bias) == (columns,)):
        return node.done("MatMul", [a, b, bias] if added else [a, b])
    product = node.emit("MatMul", [a, b])
    if alpha == 1:
        return node.done("Add", [product, bias])
    factor = node.add_constant(alpha, node.dtype(0), "alpha")
    if not added:
        return node.done("Mul", [product, factor])
    return node.done("Add", [node.emit("Mul", [product, factor], tag="scaled"), bias])


def _det(node: OnnxNode) -> Sequence[Held]:
    return node.done("Det", [node.input(0)])


def _scaled(node: OnnxNode, index: int, factor: float) -> str:
    """Input `index` times a number; a constant matrix of one row as a vector."""
    if node.array_is_constant(index):
        flat = (
            node.shape(index)[1:]
            if len(node.shape(index)) == 2 and node.shape(index)[0] == 1
            else node.shape(index)
        )
        if factor == 1 and flat == node.shape(index):
            return node.input(index)
        return node.derived(
            index,
            ("scaled", factor),
            lambda c: (c if factor == 1 else c * c.dtype.type(factor)).reshape(flat),
        )
    if factor == 1:
        return node.input(index)
    return node.emit(
        "Mul", [node.input(index), node.add_constant(factor, node.dtype(index), "beta")], tag="beta"
    )


HANDLERS: Mapping[str, Handler] = MappingProxyType({"Det": _det, "Gemm": _gemm, "MatMul": _matmul})
