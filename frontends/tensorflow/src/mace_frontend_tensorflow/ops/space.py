"""Blocks of an image moved to batch or channels, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from mace_core.decompositions import Pairs, Steps, batch_to_space, space_to_batch
from mace_core.ir import Shape
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.window import channels_last, finished, layout


def _depth(op: str) -> Handler:
    def handle(node: TensorFlowNode) -> Sequence[Held]:
        how = layout(node)
        return finished(
            node, op, [channels_last(node, node.input(0), how)], {"block": node.attr("block_size", 0)}, how
        )

    return handle


def _pairs(node: TensorFlowNode, index: int, what: str) -> Pairs:
    pairs = node.constant(index, what)
    node.refuse_unless(
        pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.min(initial=0) >= 0,
        f"its {what} are {pairs.tolist()}",
    )
    return [(int(low), int(high)) for low, high in pairs]


def _blocks(recipe: Callable[[Shape, Shape, Pairs], Steps], what: str) -> Handler:
    """The block's shape is operand 1."""
    return lambda node: node.done_steps_of(
        0, recipe(node.shape(0), node.ints(1, "block shape"), _pairs(node, 2, what))
    )


def _square(recipe: Callable[[Shape, Shape, Pairs], Steps], what: str) -> Handler:
    """The block is a square whose side is an attribute."""
    return lambda node: node.done_steps_of(
        0, recipe(node.shape(0), (node.attr("block_size", 0),) * 2, _pairs(node, 1, what))
    )


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "BatchToSpace": _square(batch_to_space, "crops"),
        "BatchToSpaceND": _blocks(batch_to_space, "crops"),
        "DepthToSpace": _depth("DepthToSpace"),
        "SpaceToBatch": _square(space_to_batch, "paddings"),
        "SpaceToBatchND": _blocks(space_to_batch, "paddings"),
        "SpaceToDepth": _depth("SpaceToDepth"),
    }
)
