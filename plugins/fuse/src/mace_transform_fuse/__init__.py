"""Transforms that join nodes which one kernel computes."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Transform
from mace_core.hookspecs import hookimpl
from mace_transform_fuse.activation import fuse_activation
from mace_transform_fuse.bias import fuse_bias
from mace_transform_fuse.hard import fuse_hard
from mace_transform_fuse.pad import fuse_pad


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer them by name."""
    return (
        Transform("fuse-bias", fuse_bias),
        Transform("fuse-activation", fuse_activation),
        Transform("fuse-hard", fuse_hard),
        Transform("fuse-pad", fuse_pad),
    )
