"""The part of the contracts that holds for plugins of every kind."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from typing import ClassVar

from mace_core.hookspecs import GROUP

ALLOWED = ("numpy", "pluggy")
"""Packages that the import of a plugin may load, besides those of MACE and the standard library."""

PROBE = """
import sys
before = set(sys.modules)
import {module}
new = {{m.partition('.')[0] for m in set(sys.modules) - before}}
known = {{*sys.stdlib_module_names, *{allowed!r}}}
print(*sorted(m for m in new - known if not m.startswith('mace_')))
"""


class PluginContract:
    """Tests of a plugin's name and of its import; the contract of each kind derives from it."""

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """The name of what the plugin offers."""
        raise NotImplementedError

    @property
    def module(self) -> str:
        """The package that the naming rule requires."""
        return f"mace_{self.kind}_{self.name.replace('-', '_')}"

    def test_naming_rule(self) -> None:
        points = {p.name: p for p in entry_points(group=GROUP)}
        point = points.get(f"{self.kind}-{self.name}")
        assert point is not None, (
            f"no entry point {self.kind}-{self.name} in group {GROUP}; install the plugin"
        )
        assert point.value == self.module
        assert point.dist is not None
        assert point.dist.name == f"mace-{self.kind}-{self.name}"

    def test_import_is_light_and_silent(self) -> None:
        code = PROBE.format(module=self.module, allowed=ALLOWED)
        done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [], (
            "importing the plugin imports these; import them in the functions that use them"
        )
        assert done.stderr == ""
