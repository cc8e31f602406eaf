"""Targets whose drivers choose among several devices, and the options of a session that say which one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from mace_core.api import Target
from mace_core.errors import MaceError

SEPARATOR = ";"
"""Between the options of a session, see `mace_config.options`: no value holds it."""


class ChoosingTarget(Target):
    """A target whose driver chooses among the devices of a machine, as a session's options ask."""

    @abstractmethod
    def select_device(self, name: str) -> str:
        """Return the option of a session for a device with this in its name, as DRIVER.KEY=VALUE."""


def select_devices(targets: Iterable[Target], name: str) -> dict[str, str]:
    """Return the options of sessions that ask for a device, by target; none for "", which is any device.

    MaceError for a name that no option can have.
    """
    if SEPARATOR in name:
        problem = f"a name has no {SEPARATOR!r}, which ends an option"
        raise MaceError(f"--device {name}", problem, "write a part of the name without it")
    if not name:
        return {}
    choosing = (target for target in targets if isinstance(target, ChoosingTarget))
    return {target.name: target.select_device(name) for target in choosing}
