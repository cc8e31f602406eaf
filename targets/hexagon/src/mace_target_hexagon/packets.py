"""What is counted of a program for the DSP that QEMU executes."""

from __future__ import annotations

from importlib.resources import files

from mace_core.run.qemu_counter import QemuCounter


class PacketCounter(QemuCounter):
    """Counts packets, words of HVX, those of vrmpy, loads and stores of vectors."""

    names = ("packets", "HVX", "vrmpy", "accesses")
    max_macs = 2 * 128
    limit = "by vrmpy of two registers of 128 bytes"
    emulators = ("qemu-hexagon",)
    classifier = files("mace_target_hexagon") / "counter" / "classify.h"
