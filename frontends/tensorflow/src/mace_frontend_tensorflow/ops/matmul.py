"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler


def product(first: str, second: str) -> Handler:
    """A product of matrices, of which the attributes of these names turn one each."""

    def handle(node: TensorFlowNode) -> Sequence[Held]:
        ranks = [node.rank(i) for i in (0, 1)]
        node.refuse_unless(
            min(ranks) >= 2, f"its operands have ranks {ranks}; each must have rows and columns"
        )
        node.refuse_unless(node.dtype(0) is node.dtype(1), "its operands are of two types")
        turned = [node.attr(name, False) for name in (first, second)]
        perms = [(*range(rank - 2), rank - 1, rank - 2) for rank in ranks]
        return node.done(
            "MatMul", [node.permuted(i, perms[i]) if turned[i] else node.input(i) for i in (0, 1)]
        )

    return handle


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), product("adj_x", "adj_y")),
        "MatMul": product("transpose_a", "transpose_b"),
        "SparseMatMul": product("transpose_a", "transpose_b"),
    }
)
