"""Offers several ways to compute products and windows, for a tuner that measures them on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mace_core.candidates import Candidate
from mace_core.ir import Node
from mace_core.levels import Level
from mace_core.lowering import Lower, Lowering
from mace_target_opencl.enqueue import KERNELS
from mace_target_opencl.kernel_request import KernelRequest
from mace_target_opencl.lower.product_tile import TILES
from mace_target_opencl.options import OpenclOptions

LEVEL = Level("opencl", (), "", KERNELS)
"""Stands for the device: its kernels are compiled by its driver, so there are no levels of instructions."""

# Buffers, also for a model with cl_mem_type: image: the tuner is to compare both.
PLAIN = KernelRequest(tile=0, splits=1, images=False, depthwise=False)

GROUPS: Mapping[str, KernelRequest] = {
    "group4": replace(PLAIN, group=4),
    "group32": replace(PLAIN, group=32),
    "driver": replace(PLAIN, group=0),
}
"""Groups of 64 work-items in other shapes, and those of the device's driver."""

PRODUCTS: Mapping[str, KernelRequest] = {
    "plain": PLAIN,
    **{f"tile{tile.columns}": replace(PLAIN, tile=tile.columns) for tile in TILES},
    # Several work-items share a result: for products of few results and a long depth.
    "split32": replace(PLAIN, tile=32, splits=4),
    "split": replace(PLAIN, splits=16),
    # The plain kernel itself has four rows.
    "rows1": replace(PLAIN, rows=1),
    "rows8": replace(PLAIN, rows=8),
    # Tiles have no such choice: their group follows from their size.
    **GROUPS,
}
"""Ways to compute a product of matrices: tiles in local memory, or rows of a work-item by itself.

A pointwise convolution is computed so apart from a depthwise one before it.
"""

REQUESTS: Mapping[str, Mapping[str, KernelRequest]] = {
    # Depthwise convolutions are Conv as well: there tiles and rows change nothing, and the tuner counts
    # candidates with equal calls as one.
    "Conv": {
        "image": KernelRequest(images=True, depthwise=False),
        "depthwise": KernelRequest(images=False, depthwise=True),
        "image_depthwise": KernelRequest(images=True, depthwise=True),
        **PRODUCTS,
    },
    "MatMul": PRODUCTS,
    "MaxPool": GROUPS,
    "AveragePool": GROUPS,
}
"""What the candidates of an op ask for, by their names."""

# Without images: read_imagef returns floats.
INTEGER_REQUESTS: Mapping[str, Mapping[str, KernelRequest]] = {
    "Conv": {"depthwise": replace(PLAIN, depthwise=True), **PRODUCTS},
    "MatMul": PRODUCTS,
}
"""The same over quantized tensors."""


def offer_candidates(
    lowerings: Mapping[str, Lower | Sequence[Candidate]],
    requests: Mapping[str, Mapping[str, KernelRequest]],
) -> dict[str, Lower | Sequence[Candidate]]:
    """Return the lowerings, with candidates for the ops in `requests`."""
    return {
        op: _list_candidates(lower, requests[op]) if op in requests else lower
        for op, lower in lowerings.items()
    }


def _list_candidates(
    lower: Lower | Sequence[Candidate], requests: Mapping[str, KernelRequest]
) -> Lower | Sequence[Candidate]:
    """Return the target's own choice first, which costs least: others are taken by a tuning file alone."""
    if not callable(lower):
        return lower
    others = (Candidate(name, _ask(lower, request), _cost_more) for name, request in requests.items())
    return (Candidate("auto", lower, _cost_nothing), *others)


def _ask(lower: Lower, request: KernelRequest) -> Lower:
    def lower_asked(node: Node, lowering: Lowering) -> None:
        options = lowering.parameters
        assert isinstance(options, OpenclOptions)
        lower(node, lowering.aim(replace(options, request=request), lowering.levels))

    return lower_asked


def _cost_nothing(node: Node, lowering: Lowering, level: Level) -> float:
    return 0.0


def _cost_more(node: Node, lowering: Lowering, level: Level) -> float:
    return 1.0
