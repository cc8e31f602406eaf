"""Registers of one layer in one quadrant, read field by field; a bit that no field explains is a fault."""

from __future__ import annotations

from collections.abc import Mapping

from mace_target_max78000.device import Device
from mace_target_max78000.simulator.faults import SimulationError


class Fields:
    """The register values of a layer in a quadrant, by name; those that were never written are 0."""

    def __init__(self, device: Device, layer: int, quadrant: int, values: Mapping[str, int]) -> None:
        self.device = device
        self.layer = layer
        self.quadrant = quadrant
        self.values = values
        self._known: dict[str, int] = {}

    def take(self, name: str, low: int = 0, count: int = 32) -> int:
        """The field of `count` bits from bit `low` on."""
        mask = (1 << count) - 1
        self._known[name] = self._known.get(name, 0) | mask << low
        return self.values.get(name, 0) >> low & mask

    def flag(self, name: str, bit: int) -> bool:
        """A field of one bit."""
        return bool(self.take(name, bit, 1))

    def fault(self, name: str, problem: str, remedy: str = "") -> SimulationError:
        """What is wrong with a register."""
        return SimulationError(
            f"layer {self.layer}, quadrant {self.quadrant}, {name}",
            f"{self.values.get(name, 0):#x}: {problem}",
            remedy,
        )

    def refuse_unknown(self) -> None:
        """Raise SimulationError if a bit is set that no field of this kind of layer explains."""
        for name, value in self.values.items():
            unknown = value & ~self._known.get(name, 0)
            if unknown:
                raise self.fault(name, f"bits {unknown:#x} mean nothing in this layer", "clear them")
