"""What is counted of a program for ARM that QEMU executes."""

from __future__ import annotations

from importlib.resources import files

from mace_core.run.qemu_counter import QemuCounter


class InstructionCounter(QemuCounter):
    """Counts instructions."""

    names = ("instructions",)
    max_macs = 32
    limit = "by smmla; sdot does 16 at most, smull and sadalp 4, fmla 4"
    emulators = ("qemu-aarch64", "qemu-arm")
    classifier = files("mace_target_arm") / "counter" / "classify.h"
