"""Targets whose devices give out code that is not yet that of the machine."""

from __future__ import annotations

from abc import abstractmethod

from mace_core.api import Target


class AssemblingTarget(Target):
    """A target that can finish on the build machine what its devices have compiled halfway.

    The driver of such a device gives out code that it compiles again at each load. `mace tune` puts the code
    of the machine in its place, after the device has computed with it.
    """

    @abstractmethod
    def assemble(self, code: bytes) -> bytes | None:
        """Return the code of the machine; None for code that is the machine's, or that nothing is known of.

        MaceError where a tool is missing or fails; the device's own code is kept then.
        """
