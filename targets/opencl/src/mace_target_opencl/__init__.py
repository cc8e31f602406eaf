"""Offers GPUs as a target, through OpenCL 1.2 or newer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mace_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from mace_core.api import Target


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the GPU."""
    from mace_target_opencl.target import Opencl

    return (Opencl(),)
