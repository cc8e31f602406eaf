"""The target: a model becomes a network, the network a program, and the program a C project."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from mace_core.api import Content, Runner, Sources
from mace_core.deployment import Model
from mace_core.emit.code import described
from mace_core.errors import MaceError
from mace_core.project_target import Layout, ProjectTarget, Read
from mace_target_max78000 import report
from mace_target_max78000.device import MAX78000, Device
from mace_target_max78000.feed import Feed
from mace_target_max78000.frontend import Ai8x, read_network
from mace_target_max78000.graph import input_tensor, output_tensors
from mace_target_max78000.network import Network
from mace_target_max78000.options import Options
from mace_target_max78000.project import emit_project
from mace_target_max78000.project.layout import layout as project_layout
from mace_target_max78000.project.layout import INCLUDES, LINKER_SCRIPT, sources
from mace_target_max78000.synthesis import synthesise

MAPS = ("report.txt", "report.json", "memory.svg")
"""Files about a project, beside its own."""


@dataclass(frozen=True)
class Project:
    """A network's C project with its maps, and what they say."""

    files: Mapping[str, Content]
    found: report.Report

    @property
    def summary(self) -> str:
        """The report for people."""
        return report.summary(self.found)


def built(network: Network, options: Options, device: Device) -> Project:
    """The project of a network; MaceError with everything that the hardware cannot do."""
    made = synthesise(network, options, device)
    found = report.analysed(network, made, options)
    summary = report.summary(found)
    maps = (summary, json.dumps(report.as_dict(found), indent=1) + "\n", report.picture(found))
    files: dict[str, Content] = {**emit_project(made.image, network, options, summary), **dict(zip(MAPS, maps, strict=True))}
    return Project(files, found)


class Max78000(ProjectTarget):
    """The CNN accelerator of the MAX78000, behind its Cortex-M4."""

    name = "max78000"
    runtime = "max78000"
    abis: ClassVar[tuple[str, ...]] = ("cortex-m4",)
    device: ClassVar[Device] = MAX78000

    def layout(self, model: Model) -> Layout:
        """The files that the options ask for, the board layer, and the maps."""
        files = tuple(project_layout(self._options(model)))
        return Layout((*files, *MAPS), sources(files), INCLUDES, (f"-Wl,-T,{LINKER_SCRIPT}",))

    def emit(self, model: Model, read: Read) -> Sources:
        """The C project of a model: described by hand (platform ai8x), else quantised, formed and placed here."""
        options = self._options(model)
        network = read_network(model, options)
        made = built(network, options, self.device)
        figures = {
            "inputs": [described(input_tensor(network))],
            "outputs": [described(t) for t in output_tensors(network)],
            "layers": [],
            "arena_bytes": made.found.data_bytes,
            "arena_lower_bound": made.found.data_bytes,
            "weight_bytes": made.found.weight_bytes,
            "cycles": made.found.cycles,
            "feed": Feed.of(network, options).described(),
            "summary": made.summary,
            "notes": list(network.notes),
        }
        return Sources(made.files, report=figures)

    def runner(self) -> Runner:
        """The emulated microcontroller with the accelerator's simulator."""
        return Emulator(type(self).__module__.partition(".")[0])

    def _options(self, model: Model) -> Options:
        return Options.of({"prefix": model.name, **self.options(model)}, f"model {model.name!r}: target_options: {self.name}")


class Emulator(Runner):
    """Executes a firmware's binary on an emulated microcontroller.

    package: of the target; `python -m` it takes a program and its arguments.
    """

    name = "unicorn"

    def __init__(self, package: str) -> None:
        self.package = package

    def missing(self) -> str | None:
        """None if the unicorn package is installed."""
        return None if find_spec("unicorn") else "the package unicorn is not installed: pip install unicorn"

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """The emulator as a module, in a process of its own."""
        return [sys.executable, "-m", self.package, str(program), *arguments]


__all__ = ["Ai8x", "Max78000", "Project", "built"]
