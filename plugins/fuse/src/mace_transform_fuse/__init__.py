"""Transforms that join nodes which one kernel computes."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Transform
from mace_core.hookspecs import hookimpl
from mace_transform_fuse.activation import fuse_activation
from mace_transform_fuse.affine import fuse_affine
from mace_transform_fuse.atrous import flatten_atrous
from mace_transform_fuse.bias import fuse_bias
from mace_transform_fuse.crop import fuse_crop
from mace_transform_fuse.gates import fuse_gates
from mace_transform_fuse.gelu import fuse_gelu
from mace_transform_fuse.group_norm import fuse_group_norm
from mace_transform_fuse.hard import fuse_hard
from mace_transform_fuse.norm import fuse_norm
from mace_transform_fuse.pad import fuse_pad
from mace_transform_fuse.prelu import fuse_prelu
from mace_transform_fuse.scale_shift import fuse_scale_shift
from mace_transform_fuse.softmax import fuse_softmax


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer them by name."""
    return (
        Transform("flatten-atrous", flatten_atrous),
        Transform("fuse-activation", fuse_activation),
        Transform("fuse-affine", fuse_affine),
        Transform("fuse-bias", fuse_bias),
        Transform("fuse-crop", fuse_crop),
        Transform("fuse-gates", fuse_gates),
        Transform("fuse-gelu", fuse_gelu),
        Transform("fuse-group-norm", fuse_group_norm),
        Transform("fuse-hard", fuse_hard),
        Transform("fuse-norm", fuse_norm),
        Transform("fuse-pad", fuse_pad),
        Transform("fuse-prelu", fuse_prelu),
        Transform("fuse-scale-shift", fuse_scale_shift),
        Transform("fuse-softmax", fuse_softmax),
    )
