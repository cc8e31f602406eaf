"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.values import OptionalValue


def product(first: str, second: str) -> Handler:
    """Return a handler of a product of matrices; attributes of these names transpose the two."""

    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        ranks = [node.rank(i) for i in (0, 1)]
        node.refuse_unless(
            min(ranks) >= 2, f"its operands have ranks {ranks}; each must have rows and columns"
        )
        # BatchMatMulV3 allows two types, with a third for the result; the IR's op has one.
        node.refuse_unless(
            node.dtype(0) is node.dtype(1), "its operands have two types", "cast them to one before it"
        )
        # adj_x and adj_y also conjugate, which changes nothing in real numbers.
        operands = []
        for index, name in enumerate((first, second)):
            outer = range(ranks[index] - 2)
            perm = (*outer, ranks[index] - 1, ranks[index] - 2)
            is_transposed = node.attr(name, False)
            operands.append(node.permute(index, perm) if is_transposed else node.input(index))
        return node.done("MatMul", operands)

    return handle


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), product("adj_x", "adj_y")),
        "MatMul": product("transpose_a", "transpose_b"),
        # The name says what its operands may hold; both are ordinary tensors.
        "SparseMatMul": product("transpose_a", "transpose_b"),
    }
)
