"""Transforms that drop what changes nothing and write the rest in fewer or cheaper steps."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Transform
from mace_core.hookspecs import hookimpl
from mace_transform_simplify.cancel_splits import cancel_splits
from mace_transform_simplify.merge_casts import merge_casts
from mace_transform_simplify.merge_concats import merge_concats
from mace_transform_simplify.merge_pads import merge_pads
from mace_transform_simplify.merge_slices import merge_slices
from mace_transform_simplify.reduce_strength import reduce_strength
from mace_transform_simplify.remove_duplicates import remove_duplicates
from mace_transform_simplify.remove_expands import remove_expands
from mace_transform_simplify.remove_identity import remove_identity
from mace_transform_simplify.remove_limits import remove_limits
from mace_transform_simplify.remove_neutral import remove_neutral
from mace_transform_simplify.sink_reshapes import sink_reshapes


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer them by name."""
    return (
        Transform("remove-identity", remove_identity),
        Transform("remove-neutral", remove_neutral),
        Transform("remove-duplicates", remove_duplicates),
        Transform("remove-expands", remove_expands),
        Transform("remove-limits", remove_limits),
        Transform("reduce-strength", reduce_strength),
        Transform("merge-casts", merge_casts),
        Transform("merge-concats", merge_concats),
        Transform("merge-pads", merge_pads),
        Transform("merge-slices", merge_slices),
        Transform("cancel-splits", cancel_splits),
        Transform("sink-reshapes", sink_reshapes),
    )
