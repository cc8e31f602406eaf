"""The start of an inference: what the control registers of all quadrants must hold for it."""

from __future__ import annotations

from dataclasses import dataclass

from mace_target_max78000.device import QUADRANTS, Device
from mace_target_max78000.simulator.faults import SimulationError
from mace_target_max78000.simulator.registers import Registers

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


def started(device: Device, registers: Registers, master: int) -> Start:
    """Which quadrants a master's go bit starts, and how; SimulationError where they are not ready for it."""
    controls = [registers.control[q]["CTL"] for q in range(QUADRANTS)]
    others = [q for q in range(QUADRANTS) if q != master and controls[q] & GO]
    own, place = controls[master], f"quadrant {master}, CTL"
    for quadrant in (master, *others):
        _check(device, registers, quadrant, master)
    fed = any(controls[q] & FIFO for q in (master, *others)) or bool(own & FAST)
    if own & SYNC and not fed:
        raise SimulationError(place, f"{own:#x}: the master waits for a start from elsewhere", "clear bit 11")
    if bool(own & FIFO_STREAM) != (fed and bool(own & STREAMING)):
        raise SimulationError(place, f"{own:#x}: bit 19 belongs to streaming from a FIFO, and only there")
    count = registers.control[master]["LCNT"]
    first, last = count >> 8, count & 0xFF
    if not first <= last < device.layers:
        raise SimulationError(f"quadrant {master}, LCNT", f"layers {first} to {last}, {device.layers} exist")
    return Start((master, *others), own, fed, first, last)


def _check(device: Device, registers: Registers, quadrant: int, master: int) -> None:
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
