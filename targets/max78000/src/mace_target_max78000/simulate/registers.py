"""Holds the registers of all quadrants as the bus sees them, and decodes the start of an inference.

`read_start` checks what the control registers of all quadrants must hold for a start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mace_target_max78000.device import QUADRANTS, Chip
from mace_target_max78000.simulate.memory import NotModeledError, SimulationError, whole_words

CONTROL = ("CTL", "SRAM", "LCNT", "TEST")
CLEAR, CLEAR_BIAS, CLEARED = 0x1880, 1 << 10, 1 << 25
TESTED = 1 << 27 | 0xF << 18
"""That the self-tests of data, masks, row memories and bias have ended.

They leave zeros, which is what memories hold here anyway.
"""
STREAMING_LAYERS = 8
CONDITION_REGISTERS = 24


class RegisterFile:
    """Words at register addresses.

    control: by quadrant, the registers that it has once.  layers: by quadrant and layer, their registers; a
    missing one is 0.
    written: called after a control register was written, with quadrant, name and the value before.
    """

    def __init__(self, device: Chip, written: Callable[[int, str, int], None]) -> None:
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
        """Return one or more words."""
        values = [self._read(quadrant, offset + i) for i in range(0, size, 4)]
        return np.array(values, "<u4").tobytes()[:size]

    def _read(self, quadrant: int, offset: int) -> int:
        name, layer = self._find(quadrant, offset)
        if layer is not None:
            return self.layers[quadrant].get(layer, {}).get(name, 0)
        # Clearing and self-tests take no time here: a register that asks for one answers that it has
        # ended.
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
            raise NotModeledError(
                f"quadrant {quadrant}, register {offset:#x}", "conditional layers are not simulated"
            )
        for name, first in device.stream_registers.items():
            if 0 <= offset - first < 4 * STREAMING_LAYERS:
                return name, (offset - first) // 4
        # The registers of a layer lie side by side in the second generation, those of one name in the
        # first: the larger distance is divided first in both.
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


GO, CLOCK, ONE_SHOT, SYNC, DONE, ROUNDING, STREAMING, FIFO, FIFO_STREAM, FAST, BINARY, QUAD = (
    1 << bit for bit in (0, 3, 8, 11, 12, 13, 14, 15, 19, 22, 30, 31)
)
KNOWN = 0xC0FFFFFF
"""Bits of the control register that programs use."""
SRAM = 0x40E


@dataclass(frozen=True)
class Start:
    """What the control registers ask for.

    quadrants: that run, the master first.  fifo: input comes through one.  first, last: layers.
    """

    quadrants: tuple[int, ...]
    control: int
    fifo: bool
    first: int
    last: int

    def has(self, bit: int) -> bool:
        """Whether a bit of the control register is set."""
        return bool(self.control & bit)


def read_start(device: Chip, registers: RegisterFile, master: int) -> Start:
    """Return which quadrants a master's go bit starts, and how.

    SimulationError where they are not ready for it.
    """
    controls = [registers.control[q]["CTL"] for q in range(QUADRANTS)]
    others = [q for q in range(QUADRANTS) if q != master and controls[q] & GO]
    control, place = controls[master], f"quadrant {master}, CTL"
    for quadrant in (master, *others):
        _check(device, registers, quadrant, master)
    # The fast FIFO has a switch of its own, without the FIFO bit.
    fed = any(controls[q] & FIFO for q in (master, *others)) or bool(control & FAST)
    if control & SYNC and not fed:
        raise SimulationError(
            place, f"{control:#x}: the master waits for a start from elsewhere", "clear bit 11"
        )
    if bool(control & FIFO_STREAM) != (fed and bool(control & STREAMING)):
        raise SimulationError(place, f"{control:#x}: bit 19 belongs to streaming from a FIFO, and only there")
    count = registers.control[master]["LCNT"]
    first, last = count >> 8, count & 0xFF
    if not first <= last < device.layers:
        raise SimulationError(f"quadrant {master}, LCNT", f"layers {first} to {last}, {device.layers} exist")
    return Start((master, *others), control, fed, first, last)


def _check(device: Chip, registers: RegisterFile, quadrant: int, master: int) -> None:
    """Raise SimulationError if a quadrant is not ready to run with its master."""
    mine, its = registers.control[quadrant], registers.control[master]
    value, place = mine["CTL"], f"quadrant {quadrant}, CTL"
    if not value & CLOCK:
        raise SimulationError(place, f"{value:#x}: started without a clock", "set bit 3 before")
    unknown = (
        value & ~KNOWN
        | (0 if device.generation == 2 else value & BINARY)
        | (0 if value & FAST else value & QUAD)
    )
    if unknown:
        raise SimulationError(place, f"{value:#x}: bits {unknown:#x} mean nothing here", "clear them")
    # These bits may differ: only the master starts without waiting, and a FIFO may feed a single
    # quadrant.
    if (value ^ its["CTL"]) & ~(GO | SYNC | FIFO | DONE):
        raise SimulationError(
            place,
            f"{value:#x} where the master, quadrant {master}, has {its['CTL']:#x}",
            "start all quadrants alike",
        )
    if quadrant != master and not value & SYNC:
        raise SimulationError(place, f"{value:#x}: started without waiting for the master", "set bit 11")
    if mine["SRAM"] != SRAM:
        raise SimulationError(
            f"quadrant {quadrant}, SRAM control",
            f"{mine['SRAM']:#x}: memories are not switched on",
            f"write {SRAM:#x}",
        )
    if mine["LCNT"] != its["LCNT"]:
        raise SimulationError(
            f"quadrant {quadrant}, LCNT", "counts other layers than the master does", "write the same to all"
        )
    if not registers.cleared[quadrant]:
        raise SimulationError(
            f"quadrant {quadrant}, SRAM test", "layer registers were never cleared", "clear them in cnn_init"
        )
