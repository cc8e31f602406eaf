"""Offers Qualcomm's Hexagon DSP as a target: as the processor of a library, and beside another processor."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Target
from mace_core.hookspecs import hookimpl
from mace_target_hexagon.processor import Hvx
from mace_target_hexagon.target import Hexagon


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the processor of libraries for the DSP itself, and the DSP that other libraries call."""
    return (Hvx(), Hexagon())
