"""Transforms of the order of axes: one through the whole model."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Transform
from mace_core.hookspecs import hookimpl
from mace_transform_layout.layout import layout, views
from mace_transform_layout.merge import merge
from mace_transform_layout.weights import weights


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer them by name."""
    return (
        Transform("layout", layout),
        Transform("merge-transposes", merge),
        Transform("transposes-to-weights", weights),
        Transform("transposes-to-views", views),
    )
