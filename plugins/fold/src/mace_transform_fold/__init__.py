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
        Transform("fold-batch-norm", fold_batch_norm),
        Transform("fold-conv-conv", fold_conv_conv),
        Transform("fold-input", fold_input),
        Transform("fold-scale", fold_scale),
    )
