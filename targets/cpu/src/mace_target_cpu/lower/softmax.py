"""Softmax, LogSoftmax, Hardmax."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.ir import Node
from mace_core.kernel_target import Lower
from mace_core.program import Kernel, Lowering
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.conv import need_floats
from mace_target_cpu.lower.reduce import ALONG, MATH, along

KINDS: Mapping[str, Kernel] = {
    "Softmax": Kernel("softmax_f32", KERNELS / "softmax.c.in", ALONG, {"log": False}, (MATH,)),
    "LogSoftmax": Kernel("logsoftmax_f32", KERNELS / "softmax.c.in", ALONG, {"log": True}, (MATH,)),
    "Hardmax": Kernel("hardmax_f32", KERNELS / "hardmax.c.in", ALONG),
}


def softmax(node: Node, to: Lowering) -> None:
    """Along `axis`."""
    need_floats(node, to)
    axis = node.attrs["axis"]
    assert isinstance(axis, int)
    to.call(node, KINDS[node.op.name], along(to.shape(node.inputs[0]), axis), node.inputs, node.outputs)


LOWERINGS: Mapping[str, Lower] = dict.fromkeys(KINDS, softmax)
