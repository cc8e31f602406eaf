"""Generates firmware for the MAX78000: weights and registers of its CNN accelerator, and a C project."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mace_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from mace_core.api import Target


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the MAX78000."""
    from mace_target_max78000.target import Max78000

    return (Max78000(),)
