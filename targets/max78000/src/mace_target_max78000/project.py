"""A network's C project, with what it takes on the chip."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from mace_core.api import Content
from mace_core.deployment.faults import Faults
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.network import Network
from mace_target_max78000 import report
from mace_target_max78000.check import add_faults, find_faults
from mace_target_max78000.check.program import check_program
from mace_target_max78000.device import Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.firmware import emit_project
from mace_target_max78000.options import Options

MAPS = ("report.txt", "report.json", "memory.svg")
"""Files about a project, beside its own."""


@dataclass(frozen=True)
class FirmwareProject:
    """A network's C project with its maps, and what they say.

    results: what each layer computes of the network's sample, [channels, rows, columns].  notes: what the
    user should know of the program.
    """

    files: Mapping[str, Content]
    usage: report.ProgramReport
    results: tuple[Array, ...]
    notes: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The report for people."""
        return report.format_summary(self.usage)


def make_project(network: Network, options: Options, device: Chip) -> FirmwareProject:
    """The project of a network, once its program has run in the simulator and computes what the network says.

    One MaceError with everything that the hardware cannot do, or with the first layer that the program
    computes otherwise.
    """
    _check_legality(network, options, device)
    made = synthesize(network, options, device)
    notes = check_program(network, made, options)
    usage = report.analyze_program(network, made, options)
    summary = report.format_summary(usage)
    maps = (summary, json.dumps(report.format_data(usage), indent=1) + "\n", report.draw_memory_map(usage))
    files: dict[str, Content] = {
        **emit_project(made.image, network, options, summary),
        **dict(zip(MAPS, maps, strict=True)),
    }
    return FirmwareProject(files, usage, made.outputs, notes)


def _check_legality(network: Network, options: Options, device: Chip) -> None:
    """Raise one MaceError with everything that the hardware cannot do, by lines of the description where there is one."""
    refusals = [f"{network.name}: {refusal}" for refusal in options.refusals(device)]
    wrong = find_faults(network, device, options)
    if network.origin is None:
        refusals += (f"{network.name}: {fault}" for fault in wrong)
    else:
        listed = Faults(network.origin.path)
        add_faults(listed, network, wrong)
        refusals += listed.messages()
    if refusals:
        raise MaceError.of(refusals)
