"""Transforms that drop what changes nothing and write the rest in fewer or cheaper steps."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Repeat, Transform
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

BETWEEN = "a sum with zero or a product with one would stand between the two that are merged"
ONE_FORM = "what is computed in two ways counts as equal only when both are written alike"

TRANSFORMS = (
    Transform(
        "remove-identity",
        remove_identity,
        "canonicalize",
        repeats=(
            Repeat("layout", "a node that changes nothing hides the steps of a function from the rules that look for them"),
            Repeat(
                "cleanup",
                "the other transforms leave Reshapes that follow each other or keep the shape",
                after={"transposes-to-views": "the Reshapes that it makes merge with those beside them"},
            ),
        ),
    ),
    Transform(
        "remove-neutral",
        remove_neutral,
        "canonicalize",
        after={"remove-identity": "a number behind an Identity is a constant only without it"},
    ),
    Transform("merge-casts", merge_casts, "canonicalize", after={"remove-neutral": BETWEEN}),
    Transform("merge-concats", merge_concats, "canonicalize", after={"remove-neutral": BETWEEN}),
    Transform("merge-pads", merge_pads, "canonicalize", after={"remove-neutral": BETWEEN}),
    Transform("merge-slices", merge_slices, "canonicalize", after={"remove-neutral": BETWEEN}),
    Transform(
        "cancel-splits",
        cancel_splits,
        "canonicalize",
        after={"merge-concats": "a Split is cancelled at the ends of a Concat's parts, and those of inner ones count only once merged"},
    ),
    Transform(
        "remove-expands",
        remove_expands,
        "canonicalize",
        after={"remove-neutral": "x * 1 would stand between an Expand and the node that can stretch its operand itself"},
    ),
    Transform(
        "remove-duplicates",
        remove_duplicates,
        "canonicalize",
        after={
            "merge-casts": ONE_FORM,
            "merge-pads": "a Pad that two outer ones read would not be merged, and two equal ones with a reader each are",
            "merge-slices": ONE_FORM,
            "cancel-splits": ONE_FORM,
            "remove-expands": "nodes that differ only in an Expand before one of them are equal without it",
        },
    ),
    Transform(
        "reduce-strength",
        reduce_strength,
        "canonicalize",
        after={
            "remove-expands": "an exponent that is expanded to the shape of x is a number only without its Expand",
            "remove-duplicates": "1 / sqrt(x) becomes Rsqrt only if nothing else reads the root, and duplicates hide other readers",
        },
    ),
    Transform(
        "sink-reshapes",
        sink_reshapes,
        "fuse",
        after={"fuse-gates": "the -1 of exp(-x) would sink away from Exp, and the gate would not be seen"},
    ),
    Transform("remove-limits", remove_limits, "combine"),
)


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer them by name."""
    return TRANSFORMS
