"""Reads network descriptions and checkpoints of the vendor's tools ai8x-training and ai8x-synthesis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mace_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from mace_core.api import Frontend


@hookimpl
def mace_frontends() -> Iterable[Frontend]:
    """Offer descriptions with their checkpoints as a model format."""
    from mace_frontend_ai8x.frontend import Ai8x

    return (Ai8x(),)
