"""Blocks of an image that move to the batch or the channels, and back.

Dilated convolutions of TensorFlow 1 lie between SpaceToBatchND and BatchToSpaceND.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from mace_core.decompositions import Pairs, Steps, batch_to_space, space_to_batch
from mace_core.ir import Shape
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.window import axis_order, channels_last, done_in_order
from mace_frontend_tensorflow.values import OptionalValue


def _depth_handler(op: str) -> Handler:
    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        # The channels of a block follow the pixels in both orders of axes, so that transposing around the op
        # is exact.
        order = axis_order(node)
        x = channels_last(node, node.input(0), order)
        return done_in_order(node, op, [x], {"block": node.attr("block_size", 0)}, order)

    return handle


def _pairs(node: TensorFlowNode, index: int, role: str) -> Pairs:
    # Sizes must be known: tensors of the IR have fixed shapes.
    pairs = node.constant(index, role)
    node.refuse_unless(
        pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.min(initial=0) >= 0,
        f"its {role} are {pairs.tolist()}; it needs pairs that are not negative",
    )
    return [(int(low), int(high)) for low, high in pairs]


def _blocks(decompose: Callable[[Shape, Shape, Pairs], Steps], role: str) -> Handler:
    """Return a handler of an operator whose blocks have the shape that is operand 1."""

    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        block = node.ints(1, "block shape")
        return node.done_steps_of(0, decompose(node.shape(0), block, _pairs(node, 2, role)))

    return handle


def _square_blocks(decompose: Callable[[Shape, Shape, Pairs], Steps], role: str) -> Handler:
    """Return a handler of an older operator: blocks are squares, whose side is an attribute."""

    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        block = (node.attr("block_size", 0),) * 2
        return node.done_steps_of(0, decompose(node.shape(0), block, _pairs(node, 1, role)))

    return handle


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "BatchToSpace": _square_blocks(batch_to_space, "crops"),
        "BatchToSpaceND": _blocks(batch_to_space, "crops"),
        "DepthToSpace": _depth_handler("DepthToSpace"),
        "SpaceToBatch": _square_blocks(space_to_batch, "paddings"),
        "SpaceToBatchND": _blocks(space_to_batch, "paddings"),
        "SpaceToDepth": _depth_handler("SpaceToDepth"),
    }
)
