"""Offers Qualcomm's Hexagon DSP as a target."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Target
from mace_core.hookspecs import hookimpl
from mace_target_hexagon.processor import Hvx


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the processor of libraries for the DSP itself."""
    return (Hvx(),)
