"""Executes a firmware's binary: an emulated core, its memories, the few peripherals that the board layer uses, the accelerator.

What is not modelled: interrupt controllers (there is one interrupt, taken between two basic blocks whenever
the program lets it in; a WFI ends at once if it is pending) and time (every look at the system timer finds it
1000 cycles later).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mace_target_max78000.device import Device
from mace_target_max78000.emulator.binary import load
from mace_target_max78000.emulator.machine import Accelerator, Machine

RESULTS = ("ml_data", "ml_data32")
"""Where main() keeps what cnn_unload() gave, 32 bits wide or 8."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    console: its text.  status: what main() returned.  results: the words that cnn_unload() gave; None if the
    program has none.
    """

    console: str
    status: int
    results: tuple[int, ...] | None

    @property
    def passed(self) -> bool:
        """Whether the known-answer test said so."""
        return self.status == 0 and "*** PASS ***" in self.console


def run(
    elf: bytes, device: Device, accelerator: Accelerator, inputs: Mapping[int, Sequence[int]] | None = None
) -> Outcome:
    """Execute a firmware from reset to the end of main().

    inputs: words of other input than the program's own, by the number of the program's array; the known
    answer is then not asked. MaceError if it faults, waits for what never comes, or takes longer than two
    minutes.
    """
    firmware = load(elf)
    machine = Machine(firmware, device, accelerator)
    for number, words in (inputs or {}).items():
        machine.patch(f"input_{number}", words)
    if inputs and "sample_output" in firmware.symbols:
        machine.patch("sample_output", (0,))
    status = machine.run()
    found = next((firmware.symbols[n] for n in RESULTS if n in firmware.symbols), None)
    results = machine.words(found) if found else None
    return Outcome(machine.console, status, results)
