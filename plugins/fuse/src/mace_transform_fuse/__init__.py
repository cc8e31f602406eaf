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

HIDDEN = "a node that changes nothing hides the steps that it looks for"
AS_WRITTEN = "it looks for the Transposes where frontends write them, and layout moves them"


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer them by name."""
    return (
        Transform("flatten-atrous", flatten_atrous, "layout", after={"remove-identity": HIDDEN}, before={"layout": AS_WRITTEN}),
        Transform("fuse-group-norm", fuse_group_norm, "layout", after={"remove-identity": HIDDEN}, before={"layout": AS_WRITTEN}),
        Transform("fuse-gates", fuse_gates, "fuse"),
        Transform("fuse-gelu", fuse_gelu, "fuse"),
        Transform("fuse-norm", fuse_norm, "fuse"),
        Transform("fuse-affine", fuse_affine, "fuse", after={"fuse-norm": "it gives scale and bias to the norms made there"}),
        Transform(
            "fuse-softmax",
            fuse_softmax,
            "fuse",
        ),
        Transform("fuse-prelu", fuse_prelu, "fuse"),
        Transform("fuse-pad", fuse_pad, "fuse"),
        Transform(
            "fuse-crop",
            fuse_crop,
            "fuse",
            after={"fuse-pad": "what a Pad has put around the image is part of the Conv's padding then, and can be cut off again"},
        ),
        Transform(
            "fuse-hard",
            fuse_hard,
            "fuse",
            after={"sink-reshapes": "it leaves limits to a Conv or MatMul that can take them in, which a Reshape must not hide"},
        ),
        Transform(
            "fuse-bias",
            fuse_bias,
            "fold",
            after={"fold-scale": "a BatchNorm is a factor and then a summand, so its summand is next to the filters only then"},
        ),
        Transform(
            "fuse-activation",
            fuse_activation,
            "combine",
            after={"remove-limits": "a limit that changes nothing is dropped; merged, it would count as computed by the node"},
        ),
        Transform(
            "fuse-scale-shift",
            fuse_scale_shift,
            "combine",
            after={"fold-input": "filters after a factor and a summand take them in at no cost, which one node of both would prevent"},
        ),
    )
