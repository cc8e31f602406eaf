"""The MAX78002: the MAX78000 target with another table of constants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mace_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from mace_core.api import Target


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the MAX78002."""
    from mace_target_max78002.target import Max78002

    return (Max78002(),)
