"""Ops that move stored integers; each tensor has the scale of the others."""

from __future__ import annotations

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.resize import ResizeAttributes
from mace_target_cpu.lower import concat as plain
from mace_target_cpu.quantized import movement, resize
from mace_target_cpu.quantized.rounding import refuse_rule


def concat(node: Node, lowering: Lowering) -> None:
    """Tensors stored as the result is."""
    storages = {lowering.tensors[name].storage for name in (*node.inputs, *node.outputs)}
    if len(storages) != 1 or None in storages:
        raise refuse_rule(lowering, "Concat of tensors with different scales is not imitated")
    plain.concat(node, lowering)


def resize_nearest(node: Node, lowering: Lowering) -> None:
    """To the nearest, which moves elements."""
    x, y = (lowering.tensors[name] for name in (node.inputs[0], node.outputs[0]))
    if node.attributes(ResizeAttributes).mode != "nearest" or x.storage != y.storage:
        raise refuse_rule(lowering, "Resize that computes new numbers is not imitated")
    resize.resize(node, lowering)


LOWERINGS: dict[str, Lower] = {**movement.LOWERINGS, "Concat": concat, "Resize": resize_nearest}
