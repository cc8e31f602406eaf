"""Transforms that drop what changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Transform
from mace_core.hookspecs import hookimpl
from mace_transform_simplify.remove_identity import remove_identity


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer them by name."""
    return (Transform("remove-identity", remove_identity),)
