"""Imports every installed plugin and asks it what it offers.

One that fails is recorded, and the rest stays usable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, cast

import pluggy

from mace_core import hookspecs
from mace_core.api import Frontend, Target, Toolchain, Transform
from mace_core.errors import PluginError
from mace_core.ops.op import Op

DISABLED = "MACE_DISABLED_PLUGINS"
"""Environment variable: entry-point names, separated by commas, that are not loaded."""

OFFERS: Mapping[str, type] = MappingProxyType(
    {"frontends": Frontend, "transforms": Transform, "targets": Target, "toolchains": Toolchain, "ops": Op}
)
"""The class of each hook's objects, by the hook's name without its prefix."""


@dataclass(frozen=True)
class Plugin:
    """An installed plugin: entry point, and the distribution that brought it."""

    name: str
    module: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"

    def fault(self, problem: str, error: BaseException | None = None) -> PluginError:
        """Return the error that names this plugin and tells how to go on without it."""
        detail = f": {type(error).__name__}: {error}" if error is not None else ""
        return PluginError(
            self, problem + detail, f"pip uninstall {self.distribution}, or set {DISABLED}={self.name}"
        )


class PluginLoader:
    """Loads plugins one by one, and keeps what each offers.

    broken: by plugin, why it could not be used; nothing of it is offered.
    disabled: plugins that MACE_DISABLED_PLUGINS names.  unknown: the faults of its other names.
    conflicts: names that two plugins offer; the first in the order of entry points keeps the name.
    """

    def __init__(self) -> None:
        self.plugins: list[Plugin] = []
        self.tables: dict[str, dict[str, Any]] = {kind: {} for kind in OFFERS}
        self.owners: dict[tuple[str, str], Plugin] = {}
        self.broken: dict[Plugin, PluginError] = {}
        self.conflicts: list[PluginError] = []
        self.disabled: list[Plugin] = []
        self.unknown: list[PluginError] = []

    def load(self, points: Iterable[EntryPoint] | None = None) -> None:
        """Load these entry points, or all that are installed, in the order of their names."""
        disabled = set(filter(None, os.environ.get(DISABLED, "").split(",")))
        selected = points if points is not None else entry_points(group=hookspecs.GROUP)
        for point in sorted(selected, key=lambda p: p.name):
            if point.name in disabled:
                self.disabled.append(_describe(point))
            else:
                self._load_plugin(point)
        for name in sorted(disabled - {point.name for point in selected}):
            self.unknown.append(_refuse_unknown(name, [point.name for point in selected]))

    def _load_plugin(self, point: EntryPoint) -> None:
        plugin = _describe(point)
        self.plugins.append(plugin)
        try:
            offers = _ask(point, plugin)
        except PluginError as error:
            self.broken[plugin] = error
            return
        for kind, offered in offers.items():
            for offer in offered:
                self._add(kind, offer, plugin)

    def _add(self, kind: str, offer: Any, plugin: Plugin) -> None:
        if owner := self.owners.get((kind, offer.name)):
            place = f"{kind} {offer.name!r}"
            self.conflicts.append(PluginError(place, f"{owner} and {plugin} both offer it", "remove one"))
            return
        self.tables[kind][offer.name] = offer
        self.owners[kind, offer.name] = plugin


def _refuse_unknown(name: str, installed: Sequence[str]) -> PluginError:
    """Return the fault of a name that disables nothing, with the plugin that was probably meant."""
    close = [plugin for plugin in installed if plugin.endswith(f"-{name}")]
    close = close or get_close_matches(name, installed, 1)
    remedy = f"did you mean {close[0]!r}?" if close else "`mace plugins` lists the names"
    return PluginError(DISABLED, f"no plugin {name!r} is installed", remedy)


def _describe(point: EntryPoint) -> Plugin:
    distribution = point.dist
    if distribution is None:
        return Plugin(point.name, point.value, "?", "?")
    return Plugin(point.name, point.value, distribution.name, distribution.version)


def _ask(point: EntryPoint, plugin: Plugin) -> dict[str, list[Any]]:
    """Return the plugin's offers by kind.

    PluginError for whatever goes wrong in its code, at import or in a hook.
    """
    manager = pluggy.PluginManager(hookspecs.GROUP)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(point.load(), name=point.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise PluginError(
            plugin, str(error).replace("\n", " "), "its hooks do not match this mace-core"
        ) from error
    # Foreign code may raise anything, and some scripts exit when imported.
    except (Exception, SystemExit) as error:
        raise plugin.fault("does not load", error) from error
    return {kind: _call_hook(manager, plugin, kind) for kind in OFFERS}


def _call_hook(manager: pluggy.PluginManager, plugin: Plugin, kind: str) -> list[Any]:
    offers: list[Any] = []
    hook: pluggy.HookCaller = getattr(manager.hook, f"mace_{kind}")
    for implementation in hook.get_hookimpls():
        try:
            offers += cast(Iterable[Any], implementation.function())
        except (Exception, SystemExit) as error:
            raise plugin.fault(f"its hook mace_{kind} fails", error) from error
    for offer in offers:
        if not isinstance(offer, OFFERS[kind]):
            raise plugin.fault(f"its hook mace_{kind} offers {offer!r}, which is no {OFFERS[kind].__name__}")
        if not isinstance(getattr(offer, "name", None), str):
            raise plugin.fault(f"its hook mace_{kind} offers a {type(offer).__name__} without a name")
    return offers
