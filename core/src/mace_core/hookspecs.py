"""The five hooks. Each takes nothing and answers with objects; names are unique over all plugins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from mace_core.api import Frontend, Target, Toolchain, Transform
    from mace_core.ops.op import Op

GROUP = "mace.v1"
hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@hookspec
def mace_frontends() -> Iterable[Frontend]:  # type: ignore[empty-body]  # a spec has no body
    """Model formats that this plugin reads."""


@hookspec
def mace_transforms() -> Iterable[Transform]:  # type: ignore[empty-body]
    """Graph rewrites that this plugin offers."""


@hookspec
def mace_targets() -> Iterable[Target]:  # type: ignore[empty-body]
    """Hardware that this plugin generates code for."""


@hookspec
def mace_toolchains() -> Iterable[Toolchain]:  # type: ignore[empty-body]
    """Compilers that this plugin sets up, and their ABIs."""


@hookspec
def mace_ops() -> Iterable[Op]:  # type: ignore[empty-body]
    """Operators that this plugin adds to the IR, named `namespace::Name`."""
