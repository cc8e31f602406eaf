"""Transforms of quantized models."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.api import Transform
from mace_core.hookspecs import hookimpl
from mace_transform_quantize.fuse_quantize import fuse_quantize


@hookimpl
def mace_transforms() -> Iterable[Transform]:
    """Offer them by name."""
    return (
        Transform("fuse-quantize", fuse_quantize, "quantize"),
    )
