"""The registers of all quadrants as the bus sees them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mace_target_max78000.device import QUADRANTS, Device
from mace_target_max78000.simulator.faults import NotModelledError, SimulationError
from mace_target_max78000.simulator.memory import whole_words

CONTROL = ("CTL", "SRAM", "LCNT", "TEST")
CLEAR, CLEAR_BIAS, CLEARED = 0x1880, 1 << 10, 1 << 25
TESTED = 1 << 27 | 0xF << 18
"""That the self-tests of data, masks, row memories and bias have ended.

They leave zeros, which is what memories hold here anyway.
"""
STREAMING_LAYERS = 8
CONDITION_REGISTERS = 24


class Registers:
    """Words at register addresses.

    control: by quadrant, the registers that it has once.  layers: by quadrant and layer, their registers; a
    missing one is 0.
    written: called after a control register was written, with quadrant, name and the value before.
    """

    def __init__(self, device: Device, written: Callable[[int, str, int], None]) -> None:
        self.control = [dict.fromkeys(CONTROL, 0) for _ in range(QUADRANTS)]
        self.layers: list[dict[int, dict[str, int]]] = [{} for _ in range(QUADRANTS)]
        self.cleared = [device.generation == 1] * QUADRANTS
        """By quadrant, whether its layer registers hold zeros where nothing was written.

        The second generation must be told.
        """
        self._written = written
        self._device = device
        self._names = {number: name for name, number in device.registers.items()}

    def write(self, quadrant: int, offset: int, data: bytes) -> None:
        """One or more words."""
        for i, value in enumerate(whole_words(data, f"quadrant {quadrant}, register {offset:#x}").tolist()):
            self._write(quadrant, offset + 4 * i, value)

    def _write(self, quadrant: int, offset: int, value: int) -> None:
        name, layer = self._find(quadrant, offset)
        if layer is not None:
            self.layers[quadrant].setdefault(layer, {})[name] = value
            return
        before = self.control[quadrant][name]
        self.control[quadrant][name] = value
        if name == "TEST" and value & CLEAR == CLEAR:
            self.layers[quadrant], self.cleared[quadrant] = {}, True
        self._written(quadrant, name, before)

    def read(self, quadrant: int, offset: int, size: int) -> bytes:
        """One or more words."""
        values = [self._read(quadrant, offset + i) for i in range(0, size, 4)]
        return np.array(values, "<u4").tobytes()[:size]

    def _read(self, quadrant: int, offset: int) -> int:
        name, layer = self._find(quadrant, offset)
        if layer is not None:
            return self.layers[quadrant].get(layer, {}).get(name, 0)
        value = self.control[quadrant][name]
        return value | CLEARED | TESTED if name == "TEST" and value else value

    def _find(self, quadrant: int, offset: int) -> tuple[str, int | None]:
        """Name, and layer of a register that each layer has."""
        device = self._device
        if offset < 4 * len(CONTROL):
            return CONTROL[offset // 4], None
        if offset == device.frame:
            return "IFRM", 0
        if device.conditions is not None and 0 <= offset - device.conditions < 4 * CONDITION_REGISTERS:
            raise NotModelledError(
                f"quadrant {quadrant}, register {offset:#x}", "conditional layers are not simulated"
            )
        for name, first in device.stream_registers.items():
            if 0 <= offset - first < 4 * STREAMING_LAYERS:
                return name, (offset - first) // 4
        small, large = sorted((device.register_pitch, device.layer_pitch))
        major, minor = divmod(offset - device.registers_base, large)
        number, layer = (minor // small, major) if device.layer_pitch == large else (major, minor // small)
        if (
            offset % 4
            or offset < device.registers_base
            or layer >= device.layers
            or number not in self._names
        ):
            raise SimulationError(f"quadrant {quadrant}, register {offset:#x}", "there is none")
        return self._names[number], layer
