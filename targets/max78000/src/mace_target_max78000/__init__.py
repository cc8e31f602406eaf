"""The MAX78000: a network becomes weights, registers and a C project for its CNN accelerator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mace_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from mace_core.api import Frontend, Target


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the MAX78000."""
    from mace_target_max78000.target import Max78000

    return (Max78000(),)


@hookimpl
def mace_frontends() -> Iterable[Frontend]:
    """Offer the maker's descriptions with their checkpoints as a model format."""
    from mace_target_max78000.frontend import Ai8x

    return (Ai8x(),)
