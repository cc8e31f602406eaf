"""Matrix products and determinants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.ir import Array
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler


def _matmul(node: OnnxNode) -> Sequence[Result]:
    return node.done("MatMul", [node.input(0), node.input(1)])


def _gemm(node: OnnxNode) -> Sequence[Result]:
    """Compute alpha * A' @ B' + beta * C."""
    is_transposed = (bool(node.attr("transA")), bool(node.attr("transB")))
    a, b = (node.permute(i, (1, 0)) if flag else node.input(i) for i, flag in enumerate(is_transposed))
    alpha, beta = node.attr("alpha"), node.attr("beta")
    # Gemm: C is optional from operator set 11 on.
    has_bias = node.has(2) and beta != 0
    bias = _scale_bias(node, beta) if has_bias else ""
    columns = node.builder.shape(b)[1]
    # A bias per column is part of the IR's MatMul; C may also be a matrix, a column or a scalar.
    if alpha == 1 and (not has_bias or node.builder.shape(bias) == (columns,)):
        return node.done("MatMul", [a, b, bias] if has_bias else [a, b])
    product = node.emit("MatMul", [a, b])
    if alpha == 1:
        return node.done("Add", [product, bias])
    factor = node.add_constant(alpha, node.dtype(0), "alpha")
    if not has_bias:
        return node.done("Mul", [product, factor])
    return node.done("Add", [node.emit("Mul", [product, factor], tag="scaled"), bias])


def _det(node: OnnxNode) -> Sequence[Result]:
    return node.done("Det", [node.input(0)])


def _scale_bias(node: OnnxNode, beta: float) -> str:
    """Return beta * C; a constant C of one row as a vector, so that it can be the bias of a MatMul."""
    if node.is_constant(2):
        shape = node.shape(2)
        flat = shape[1:] if len(shape) == 2 and shape[0] == 1 else shape
        if beta == 1 and flat == shape:
            return node.input(2)

        def scale(values: Array) -> Array:
            return (values if beta == 1 else values * values.dtype.type(beta)).reshape(flat)

        return node.derive_constant(2, ("scaled", beta), scale)
    if beta == 1:
        return node.input(2)
    factor = node.add_constant(beta, node.dtype(2), "beta")
    return node.emit("Mul", [node.input(2), factor], tag="beta")


HANDLERS: Mapping[str, Handler] = MappingProxyType({"Det": _det, "Gemm": _gemm, "MatMul": _matmul})
