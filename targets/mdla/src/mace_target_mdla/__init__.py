"""Offers MediaTek's deep learning accelerator (MDLA) 1.5, 2.0 and 3.0 as a target."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mace_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from mace_core.api import Target


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the MDLA."""
    from mace_target_mdla.target import Mdla

    return (Mdla(),)
