"""Arm's Ethos-U: regions of integers compiled by Vela, and run by the vendor's driver."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Target
from mace_core.hookspecs import hookimpl
from mace_target_ethosu.target import EthosU

__all__ = ["EthosU"]


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the target."""
    return (EthosU(),)
