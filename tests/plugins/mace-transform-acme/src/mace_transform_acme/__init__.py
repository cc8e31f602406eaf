"""An example: the operator acme::Swish7, y = x * sigmoid(7 x), and a transform that finds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files

import numpy as np

from mace_core.api import Transform
from mace_core.hookspecs import hookimpl
from mace_core.ir import DType, Graph, Node
from mace_core.lowering import Lowering, Refused
from mace_core.ops.op import Op
from mace_core.ops.shapes import keep, same
from mace_core.program import Call, Kernel
from mace_core.rewrite import Match, rewrite

KERNEL = Kernel("acme_swish7_f32", files("mace_transform_acme") / "kernels/swish7.c.in", (("n", "i64"),))


def lower(node: Node, to: Lowering) -> None:
    """One pass over the tensor, in floats."""
    x = to.tensors[node.inputs[0]]
    if x.dtype is not DType.F32:
        raise Refused(f"{x.name} is {x.dtype.value}; Swish7 is computed in f32")
    to.call(node, Call(KERNEL, {"n": x.elements}, node.inputs, node.outputs, inplace=True))


def fuse_swish7(graph: Graph) -> Graph:
    """Fuse x * Sigmoid(7 * x) to acme::Swish7, where nothing else reads what lies between."""
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name != "Mul":
        return None
    for index in (0, 1):
        x = match.node.inputs[1 - index]
        sigmoid = match.sole_producer(index, "Sigmoid")
        scaled = Match(sigmoid, match.builder, match.uses).sole_producer(0, "Mul") if sigmoid else None
        if scaled is not None and x in scaled.inputs:
            factor = match.builder.constant(scaled.inputs[1 - scaled.inputs.index(x)])
            # A factor of several elements differs along an axis, or stretches x.
            if factor is not None and factor.size == 1 and factor.reshape(-1)[0] == 7:
                return match.emit(SWISH7, [x])
    return None


SWISH7 = Op("acme::Swish7", ("x",), ("y",), same, lambda x: x / (1 + np.exp(-7 * x)), lower=lower, move=keep)


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer the transform, in a phase of core's and before a transform of another distribution."""
    because = "it makes a Swish of the same nodes, which acme's kernel does not compute"
    return (Transform("fuse-swish7", fuse_swish7, "fuse", before={"fuse-gates": because}),)


@hookimpl
def mace_ops() -> Iterable[Op]:
    """Offer the operator."""
    return (SWISH7,)
