"""What a program did that the accelerator cannot do."""

from __future__ import annotations

from mace_core.errors import MaceError


class SimulationError(MaceError):
    """A program that the hardware cannot run.

    The place names layer, quadrant and register, or the address.
    """


class NotModelledError(SimulationError):
    """A program that may be right, of which this simulator cannot tell what it computes."""
