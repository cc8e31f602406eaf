"""The standard transforms, and the one place that says in which phase each runs, after which others, and why.

Phases are those of `mace_core.transforms`; there is a folder for each. Names decide where no constraint does,
and then either order is right.
"""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Repeat, Transform
from mace_core.hookspecs import hookimpl
from mace_transform_standard.canonicalize.cancel_splits import cancel_splits
from mace_transform_standard.canonicalize.merge_casts import merge_casts
from mace_transform_standard.canonicalize.merge_concats import merge_concats
from mace_transform_standard.canonicalize.merge_pads import merge_pads
from mace_transform_standard.canonicalize.merge_slices import merge_slices
from mace_transform_standard.canonicalize.reduce_strength import reduce_strength
from mace_transform_standard.canonicalize.remove_duplicates import remove_duplicates
from mace_transform_standard.canonicalize.remove_expands import remove_expands
from mace_transform_standard.canonicalize.remove_identity import remove_identity
from mace_transform_standard.canonicalize.remove_neutral import remove_neutral
from mace_transform_standard.cleanup.merge_axes import merge_axes
from mace_transform_standard.cleanup.merge_transposes import merge_transposes
from mace_transform_standard.cleanup.transposes_to_views import transposes_to_views
from mace_transform_standard.cleanup.transposes_to_weights import transposes_to_weights
from mace_transform_standard.combine.fold_conv_conv import fold_conv_conv
from mace_transform_standard.combine.fold_input import fold_input
from mace_transform_standard.combine.fuse_activation import fuse_activation
from mace_transform_standard.combine.fuse_scale_shift import fuse_scale_shift
from mace_transform_standard.combine.remove_limits import remove_limits
from mace_transform_standard.fold.fold_batch_norm import fold_batch_norm
from mace_transform_standard.fold.fold_scale import fold_scale
from mace_transform_standard.fold.fuse_bias import fuse_bias
from mace_transform_standard.fuse.fuse_affine import fuse_affine
from mace_transform_standard.fuse.fuse_crop import fuse_crop
from mace_transform_standard.fuse.fuse_gates import fuse_gates
from mace_transform_standard.fuse.fuse_gelu import fuse_gelu
from mace_transform_standard.fuse.fuse_hard import fuse_hard
from mace_transform_standard.fuse.fuse_norm import fuse_norm
from mace_transform_standard.fuse.fuse_pad import fuse_pad
from mace_transform_standard.fuse.fuse_prelu import fuse_prelu
from mace_transform_standard.fuse.fuse_softmax import fuse_softmax
from mace_transform_standard.fuse.sink_reshapes import sink_reshapes
from mace_transform_standard.layout.flatten_atrous import flatten_atrous
from mace_transform_standard.layout.fuse_group_norm import fuse_group_norm
from mace_transform_standard.layout.layout import layout
from mace_transform_standard.quantize.fuse_quantize import fuse_quantize
from mace_transform_standard.quantize.remove_dead_channels import remove_dead_channels

HIDDEN = "a node that changes nothing hides the steps that it looks for"
AS_WRITTEN = "it looks for Transposes where frontends write them, and layout moves them"

LAYOUT = (
    Transform(
        "flatten-atrous",
        flatten_atrous,
        "layout",
        after={"remove-identity": HIDDEN},
        before={"layout": AS_WRITTEN},
    ),
    Transform(
        "fuse-group-norm",
        fuse_group_norm,
        "layout",
        after={"remove-identity": HIDDEN},
        before={"layout": AS_WRITTEN},
    ),
    Transform(
        "layout",
        layout,
        "layout",
        repeats=(
            Repeat(
                "cleanup",
                because="a dequantized constant stops Transposes, and fuse-quantize makes a plain one of it",
                before={
                    "merge-transposes": "most Transposes meet and vanish; only the others are worth merging",
                    "transposes-to-weights": "a Transpose that can vanish must not turn a matrix",
                    "transposes-to-views": "it moves Transposes, and would not find those that are Reshapes",
                },
            ),
        ),
    ),
)

BETWEEN = "a sum with zero or a product with one would stand between the two that are merged"
ONE_FORM = "what is computed in two ways counts as equal only when both are written alike"

CANONICALIZE = (
    Transform(
        "remove-identity",
        remove_identity,
        "canonicalize",
        repeats=(
            Repeat(
                "layout",
                because="a node that changes nothing hides the steps of a function",
            ),
            Repeat(
                "cleanup",
                because="the transforms between leave Reshapes that keep the shape or follow each other",
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
        after={
            "merge-concats": "a Split cancels at the ends of parts, and sees those of an inner Concat merged"
        },
    ),
    Transform(
        "remove-expands",
        remove_expands,
        "canonicalize",
        after={"remove-neutral": "x * 1 would stand between an Expand and the node that can do without it"},
    ),
    Transform(
        "remove-duplicates",
        remove_duplicates,
        "canonicalize",
        after={
            "merge-casts": ONE_FORM,
            "merge-slices": ONE_FORM,
            "cancel-splits": ONE_FORM,
            "merge-pads": "equal Pads merge with their one reader each, but not as one Pad with two readers",
            "remove-expands": "nodes that differ only in an Expand before one of them are equal without it",
        },
    ),
    Transform(
        "reduce-strength",
        reduce_strength,
        "canonicalize",
        after={
            "remove-expands": "an exponent behind an Expand is no number that it would know",
            "remove-duplicates": "1 / sqrt(x) is Rsqrt unless others read the root, which duplicates hide",
        },
    ),
)

FUSE = (
    Transform("fuse-gates", fuse_gates, "fuse"),
    Transform("fuse-gelu", fuse_gelu, "fuse"),
    Transform("fuse-norm", fuse_norm, "fuse"),
    Transform(
        "fuse-affine",
        fuse_affine,
        "fuse",
        after={"fuse-norm": "it gives a scale and a bias to the norms that are made there"},
    ),
    Transform("fuse-softmax", fuse_softmax, "fuse"),
    Transform("fuse-prelu", fuse_prelu, "fuse"),
    Transform("fuse-pad", fuse_pad, "fuse"),
    Transform(
        "fuse-crop",
        fuse_crop,
        "fuse",
        after={"fuse-pad": "a Slice can take back what a Pad has put around once that is the Conv's padding"},
    ),
    Transform(
        "sink-reshapes",
        sink_reshapes,
        "fuse",
        after={
            "fuse-gates": "the -1 of exp(-x) would sink away from its Exp, and the gate would not be found"
        },
    ),
    Transform(
        "fuse-hard",
        fuse_hard,
        "fuse",
        after={"sink-reshapes": "it leaves limits to a Conv or MatMul, which no Reshape must hide"},
    ),
)

FOLD = (
    Transform("fold-batch-norm", fold_batch_norm, "fold"),
    Transform(
        "fold-scale",
        fold_scale,
        "fold",
        after={"fold-batch-norm": "it takes in the factor that a BatchNorm becomes"},
    ),
    Transform(
        "fuse-bias",
        fuse_bias,
        "fold",
        after={"fold-scale": "the factor of a BatchNorm stands between its summand and the filters"},
    ),
)

COMBINE = (
    Transform("fold-input", fold_input, "combine"),
    Transform(
        "fold-conv-conv",
        fold_conv_conv,
        "combine",
        after={"fold-input": "what lies between two Convs must become part of the second first"},
    ),
    Transform(
        "fuse-scale-shift",
        fuse_scale_shift,
        "combine",
        after={"fold-input": "filters take in a factor and a summand unless those are one node already"},
    ),
    Transform("remove-limits", remove_limits, "combine"),
    Transform(
        "fuse-activation",
        fuse_activation,
        "combine",
        after={"remove-limits": "reports count a merged limit as computed, even if it changes nothing"},
    ),
)

QUANTIZE = (
    Transform("fuse-quantize", fuse_quantize, "quantize"),
    Transform(
        "remove-dead-channels",
        remove_dead_channels,
        "quantize",
        after={
            "fuse-quantize": "what a channel can hold is known best where nodes compute on stored integers"
        },
    ),
)

CLEANUP = (
    Transform("merge-transposes", merge_transposes, "cleanup"),
    Transform(
        "transposes-to-weights",
        transposes_to_weights,
        "cleanup",
        after={
            "merge-transposes": "a matrix takes in the one Transpose before its operand, so two must be one"
        },
    ),
    Transform(
        "transposes-to-views",
        transposes_to_views,
        "cleanup",
        after={
            "merge-transposes": "it merges Transposes, and would not find those that are Reshapes",
            "transposes-to-weights": "it takes in Transposes, and would not find those that are Reshapes",
        },
    ),
    Transform("merge-axes", merge_axes, "cleanup"),
)


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer all of them."""
    return (*LAYOUT, *CANONICALIZE, *FUSE, *FOLD, *COMBINE, *QUANTIZE, *CLEANUP)
