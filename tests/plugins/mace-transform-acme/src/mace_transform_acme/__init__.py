"""An example: the operator acme::Swish7, y = x * sigmoid(7 x), in one file and one template."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

import numpy as np

from mace_core.hookspecs import hookimpl
from mace_core.ir import DType, Node
from mace_core.ops.op import Op
from mace_core.ops.shapes import keep, same
from mace_core.program import Call, Kernel, Lowering, Refused

KERNEL = Kernel("acme_swish7_f32", files("mace_transform_acme") / "kernels/swish7.c.in", (("n", "i64"),))


def lower(node: Node, to: Lowering) -> None:
    """One pass over the tensor, in floats."""
    x = to.tensors[node.inputs[0]]
    if x.dtype is not DType.F32:
        raise Refused(f"{x.name} is {x.dtype.value}; Swish7 is computed in f32")
    to.call(node, Call(KERNEL, {"n": x.elements}, node.inputs, node.outputs, inplace=True))


@hookimpl
def mace_ops() -> Iterable[Op]:
    """Offer the operator."""
    return (Op("acme::Swish7", ("x",), ("y",), same, lambda x: x / (1 + np.exp(-7 * x)), lower=lower, move=keep),)
