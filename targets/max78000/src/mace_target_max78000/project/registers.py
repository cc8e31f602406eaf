"""Register writes in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mace_core.emit.text import Code
from mace_target_max78000.device import AON_CONTROL, FAST_FIFO, FIFO_CONTROL, QUADRANTS, Device
from mace_target_max78000.image import Step

GLOBAL = ("control", "SRAM control", "layer count", "SRAM test")


def names(device: Device) -> Mapping[int, str]:
    """Every register's address -> what it is, in words."""
    found = {AON_CONTROL: "always-on domain: control", FIFO_CONTROL: "FIFO: control"}
    found |= {FAST_FIFO: "fast FIFO: control", FAST_FIFO + 8: "fast FIFO: interrupts"}
    for quadrant in range(QUADRANTS):
        for number, name in enumerate(GLOBAL):
            found[device.control_register(quadrant, number)] = f"quadrant {quadrant}: {name}"
        for name in (*device.registers, *device.stream_registers):
            for layer in range(device.layers if name in device.registers else 8):
                found[device.layer_register(quadrant, name, layer)] = (
                    f"layer {layer}, quadrant {quadrant}: {name}"
                )
        found[device.layer_register(quadrant, "IFRM", 0)] = f"quadrant {quadrant}: input frame size"
    return found


def told(steps: Sequence[Step], known: Mapping[int, str]) -> list[tuple[Step, Code]]:
    """Each step with its register in words."""
    return [(step, Code(known.get(step.address, ""))) for step in steps]
