"""Transforms that compute constants when the library is built."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Transform
from mace_core.hookspecs import hookimpl
from mace_transform_fold.batch_norm import fold_batch_norm
from mace_transform_fold.conv_conv import fold_conv_conv
from mace_transform_fold.input import fold_input
from mace_transform_fold.scale import fold_scale


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer them by name."""
    return (
        Transform("fold-batch-norm", fold_batch_norm, "fold"),
        Transform(
            "fold-scale",
            fold_scale,
            "fold",
            after={"fold-batch-norm": "it takes in the factor that a BatchNorm becomes"},
        ),
        Transform("fold-input", fold_input, "combine"),
        Transform(
            "fold-conv-conv",
            fold_conv_conv,
            "combine",
            after={"fold-input": "factors and reordered channels between two Convs must be part of the second first"},
        ),
    )
