"""Ops that change no byte: they cost nothing unless the result is an output of the model."""

from __future__ import annotations

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS

COPY = Kernel("copy", KERNELS / "copy.c.in", (("n", "i64"),))


def view(node: Node, lowering: Lowering) -> None:
    """Share the input's bytes where possible, else copy them."""
    x, y = node.inputs[0], node.outputs[0]
    if lowering.may_alias(y, x):
        lowering.alias(y, x)
    # An output of the model has the application's memory, which no other tensor can share.
    elif lowering.tensors[x].bytes:
        lowering.call(node, Call(COPY, {"n": lowering.tensors[x].bytes}, [x], [y]))


LOWERINGS: dict[str, Lower] = dict.fromkeys(("Identity", "Reshape"), view)
