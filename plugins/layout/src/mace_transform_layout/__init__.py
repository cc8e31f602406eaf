"""The layout transform: one order of axes through the whole model."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Transform
from mace_core.hookspecs import hookimpl
from mace_transform_layout.layout import layout, views


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer it by name."""
    return (Transform("layout", layout), Transform("transposes-to-views", views))
