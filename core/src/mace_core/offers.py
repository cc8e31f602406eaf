"""The plugin of core itself, which offers the ops of `mace_core.ops`."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.hookspecs import hookimpl
from mace_core.ops import core_ops
from mace_core.ops.op import Op


@hookimpl
def mace_ops() -> Iterable[Op]:
    """Offer the operators of `mace_core.ops`."""
    return core_ops().values()
