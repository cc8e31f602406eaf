"""What every plugin must keep, whatever it offers."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from typing import ClassVar

from mace_core.hookspecs import GROUP

ALLOWED = ("numpy", "pluggy")
"""What importing a plugin may bring in besides mace's packages and the standard library."""

PROBE = """
import sys
before = set(sys.modules)
import {module}
new = {{m.partition('.')[0] for m in set(sys.modules) - before}}
known = {{*sys.stdlib_module_names, *{allowed!r}}}
print(*sorted(m for m in new - known if not m.startswith('mace_')))
"""


class PluginContract:
    """Naming and import, for the contracts of each kind."""

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """What the plugin's offer is called."""
        raise NotImplementedError

    @property
    def module(self) -> str:
        """The package that the naming rule asks for."""
        return f"mace_{self.kind}_{self.name.replace('-', '_')}"

    def test_naming_rule(self) -> None:
        found = {p.name: p for p in entry_points(group=GROUP)}
        point = found.get(f"{self.kind}-{self.name}")
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
            "importing the plugin imports these; import them where they are used"
        )
        assert done.stderr == ""
