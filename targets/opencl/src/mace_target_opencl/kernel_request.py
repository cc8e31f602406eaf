"""Says what a candidate asks of the kernel of a node, where the target would choose something else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelRequest:
    """What a candidate asks for; None leaves a choice to the target.

    tile: columns of a product's tile in local memory, 0 for the plain kernel.
    rows: of a work-item of the plain kernel.
    splits: work-items, or teams of a tile, that share results, each with a part of the depth; 1: none do.
    group: work-items of a group along columns or channels; 0 leaves groups to the device.
    images: whether filters and operands lie in images, which refuses a node that has none.
    depthwise: whether the kernel of a pointwise convolution computes the depthwise one before it too, which
    refuses any other node.
    """

    tile: int | None = None
    rows: int | None = None
    splits: int | None = None
    group: int | None = None
    images: bool | None = None
    depthwise: bool | None = None


NO_REQUEST = KernelRequest()

DEPTHWISE = "depthwise"
"""The parameter of a kernel with `KernelRequest.depthwise`; kernels that leave it to the target have none."""
