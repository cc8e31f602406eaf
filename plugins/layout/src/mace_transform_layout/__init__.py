"""Transforms of the order of axes: one through the whole model."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Repeat, Transform
from mace_core.hookspecs import hookimpl
from mace_transform_layout.layout import layout, views
from mace_transform_layout.merge import merge
from mace_transform_layout.weights import weights


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer them by name."""
    return (
        Transform(
            "layout",
            layout,
            "layout",
            repeats=(
                Repeat(
                    "cleanup",
                    "fused nodes take Transposes through where their parts did not, and moved integers left new ones",
                    before={
                        "merge-transposes": "most Transposes meet and vanish alone; only the others are worth merging",
                        "transposes-to-weights": "a Transpose that can vanish must not turn a matrix",
                        "transposes-to-views": "it finds Transposes, and no longer the Reshapes made of them",
                    },
                ),
            ),
        ),
        Transform("merge-transposes", merge, "cleanup"),
        Transform(
            "transposes-to-weights",
            weights,
            "cleanup",
            after={"merge-transposes": "it takes in the one Transpose before the flattening, so two must be one already"},
        ),
        Transform(
            "transposes-to-views",
            views,
            "cleanup",
            after={
                "merge-transposes": "it merges Transposes, and would not find those that are Reshapes",
                "transposes-to-weights": "it finds Transposes, and would not find those that are Reshapes",
            },
        ),
    )
