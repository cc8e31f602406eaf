"""What a layer does before its main operation: a pool and an element-wise operation, in either order, that nothing else reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mace_core.ir import Graph, Node
from mace_target_max78000.automatic.forming.layers import ELTWISE, POOLS, dim_of, pool_of, stride_of
from mace_target_max78000.automatic.forming.views import producers, view_of
from mace_target_max78000.automatic.powers import exponent
from mace_target_max78000.network import Eltwise, Pool


@dataclass(frozen=True)
class Front:
    """tensors: what the layer reads.  absorbed: the nodes that it computes besides its own."""

    tensors: tuple[str, ...]
    pool: Pool | None = None
    stride: int = 1
    eltwise: Eltwise | None = None
    pool_first: bool = True
    absorbed: tuple[Node, ...] = ()


@dataclass(frozen=True, eq=False)
class Fronts:
    """The fronts of a graph's layers."""

    graph: Graph
    producers: Mapping[str, Node]
    uses: Mapping[str, int]

    @classmethod
    def of(cls, graph: Graph) -> Fronts:
        """Look at a graph."""
        return cls(graph, producers(graph), graph.uses())

    def before(self, node: Node) -> Front:
        """What a convolution's layer can do on the way.

        One that flattens or doubles does nothing before, a linear one only pools.
        """
        if node.op.name == "Conv":
            return self._ending(node.inputs[0])
        if node.op.name != "MatMul":
            return Front((node.inputs[0],))
        view = view_of(self.graph, node.inputs[0], self.producers)
        pool = self._sole(view.base, POOLS)
        pooled = pool and dim_of(self.graph.tensors[view.base]) == (1, 1) and self.uses[node.inputs[0]] == 1
        return self._pooled(Front((pool.inputs[0],)), pool) if pool and pooled else Front((view.base,))

    def alone(self, node: Node) -> Front:
        """What the layer of a pool or element-wise operation does that no convolution takes along."""
        return self._ending(node.outputs[0], node)

    def same_steps(self, node: Node) -> bool:
        """Whether a node's operands and result count in the same steps."""
        return len({exponent(self.graph.tensors[name].quant) for name in (*node.inputs, *node.outputs)}) == 1

    def _ending(self, tensor: str, own: Node | None = None) -> Front:
        """own: the node whose layer it is, computed even where several read its result."""
        pool = own if own and own.op.name in POOLS else self._sole(tensor, POOLS) if own is None else None
        inner = pool.inputs[0] if pool else tensor
        eltwise = own if own and pool is None else self._sole(inner, tuple(ELTWISE))
        if eltwise is None or not self.same_steps(eltwise):
            return self._pooled(Front((inner,)), pool)
        front = Front(eltwise.inputs, eltwise=ELTWISE[eltwise.op.name], absorbed=(eltwise,))
        if pool:
            return replace(self._pooled(front, pool), pool_first=False)
        return self._pooled_alike(front)

    def _pooled_alike(self, front: Front) -> Front:
        """Pools of all operands as one that comes first, where they are the same."""
        pools = [self._sole(i, POOLS) for i in front.tensors]
        known = [p for p in pools if p]
        if len(known) < len(pools) or any((p.op, p.attrs) != (known[0].op, known[0].attrs) for p in known):
            return front
        behind = tuple(p.inputs[0] for p in known)
        return self._pooled(replace(front, tensors=behind, absorbed=(*front.absorbed, *known[1:])), known[0])

    def _pooled(self, front: Front, pool: Node | None) -> Front:
        if pool is None:
            return front
        found = pool_of(pool)
        return replace(
            front, pool=found, stride=1 if found else stride_of(pool), absorbed=(*front.absorbed, pool)
        )

    def _sole(self, tensor: str, ops: Sequence[str]) -> Node | None:
        """The node of these ops that makes a tensor for one reader."""
        node = self.producers.get(tensor)
        return node if node and node.op.name in ops and self.uses[tensor] == 1 else None
