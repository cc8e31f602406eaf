"""Offers several ways to compute products, for a tuner that measures them on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mace_core.candidates import Candidate
from mace_core.ir import Node
from mace_core.levels import Level
from mace_core.lowering import Lower, Lowering
from mace_target_opencl.enqueue import KERNELS
from mace_target_opencl.lower.product import TILES
from mace_target_opencl.options import OpenclOptions

LEVEL = Level("opencl", (), "", KERNELS)
"""Stands for the device: its kernels are compiled by its driver, so there are no levels of instructions."""

TUNED = ("Conv", "MatMul")
IMAGED = ("Conv",)
"""Ops whose kernels read filters and activations from images."""


def offer_candidates(
    lowerings: Mapping[str, Lower | Sequence[Candidate]],
) -> dict[str, Lower | Sequence[Candidate]]:
    """Return the lowerings, with candidates for the ops that are products of matrices."""
    return {op: _list_candidates(op, lower) if op in TUNED else lower for op, lower in lowerings.items()}


def _list_candidates(op: str, lower: Lower | Sequence[Candidate]) -> Lower | Sequence[Candidate]:
    """Return the target's own choice first, which costs least: others are taken by a tuning file alone."""
    if not callable(lower):
        return lower
    requests = {"plain": 0, **{f"tile{tile.columns}": tile.columns for tile in TILES}}
    tiles = (Candidate(name, _ask_tile(lower, tile), _cost_more) for name, tile in requests.items())
    images = (Candidate("image", _ask_images(lower), _cost_more),) if op in IMAGED else ()
    return (Candidate("auto", lower, _cost_nothing), *tiles, *images)


def _ask_tile(lower: Lower, tile: int) -> Lower:
    def lower_asked(node: Node, lowering: Lowering) -> None:
        options = _read_options(lowering)
        lower(node, lowering.aim(replace(options, tile=tile, images=False), lowering.levels))

    return lower_asked


def _ask_images(lower: Lower) -> Lower:
    def lower_asked(node: Node, lowering: Lowering) -> None:
        options = _read_options(lowering)
        lower(node, lowering.aim(replace(options, images=True, needs_images=True), lowering.levels))

    return lower_asked


def _read_options(lowering: Lowering) -> OpenclOptions:
    options = lowering.parameters
    assert isinstance(options, OpenclOptions)
    return options


def _cost_nothing(node: Node, lowering: Lowering, level: Level) -> float:
    return 0.0


def _cost_more(node: Node, lowering: Lowering, level: Level) -> float:
    return 1.0
