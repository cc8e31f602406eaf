"""A register-accurate simulator of the CNN accelerator of both parts: bytes and register writes in, memory out.

It decodes everything from registers and memories and knows nothing of the network that they were made from.
"""

from __future__ import annotations

from mace_target_max78000.simulator.accelerator import Simulator
from mace_target_max78000.simulator.faults import SimulationError
from mace_target_max78000.simulator.replay import mismatches, replay

__all__ = ["SimulationError", "Simulator", "mismatches", "replay"]
