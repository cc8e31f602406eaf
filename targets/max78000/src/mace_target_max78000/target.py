"""Offers the MAX78000 as a target: a model becomes a C project for its accelerator.

Every `mace` command makes this object, so the module imports only what answers its options; the compiler of
`project` is imported where a model is compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mace_core.api import BuildConfig, Runner
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.project_target import Layout, Project, ProjectTarget
from mace_frontend_ai8x.options import NetworkOptions
from mace_target_max78000.device import MAX78000, WEIGHT_BITS, Chip
from mace_target_max78000.options import Options

if TYPE_CHECKING:
    from mace_core.deployment.faults import Faults
    from mace_core.ir import Graph
    from mace_frontend_ai8x.described_model import DescribedModel
    from mace_frontend_ai8x.network import Network
    from mace_frontend_ai8x.targets import DescribedProject, TrainedModel

RISCV_REFUSAL = (
    "a project for the RISC-V core is two programs, and this builds one; "
    "write it with `mace convert` and build it with its Makefile"
)


class Max78000(ProjectTarget):
    """The CNN accelerator of the MAX78000, behind its Cortex-M4."""

    name = "max78000"
    device = "max78000"
    abis: ClassVar[tuple[str, ...]] = ("cortex-m4",)
    chip: ClassVar[Chip] = MAX78000

    def check_options(self, model: Model) -> None:
        """Raise one MaceError with every unknown option, and every value that an option cannot have."""
        self._options(model)

    def layout(self, model: Model) -> Layout:
        """Return the files that the options ask for, the board layer, and the maps."""
        from mace_target_max78000.firmware.layout import describe_layout

        options, _ = self._options(model)
        return describe_layout(options, RISCV_REFUSAL if options.riscv else "")

    def emit(self, graph: Graph, config: BuildConfig) -> Project:
        """Return the C project of a model.

        A described network (platform ai8x) keeps the places of its description; any other graph is quantized,
        legalized and placed here.
        """
        from mace_target_max78000.project import CompileSettings, compile_model

        options, bits = self._options(config.model)
        trained = str(config.model.options(self.name).get("model") or "")
        return compile_model(graph, config, CompileSettings(self.chip, options, bits, trained))

    @classmethod
    def add_limit_faults(
        cls, options: NetworkOptions, network: Network, unread: Collection[int], faults: Faults
    ) -> None:
        """Add what the chip cannot compute to the faults of a description, see `DescribedTarget`."""
        from mace_target_max78000.check import add_faults, find_faults

        known = {field.name: getattr(options, field.name) for field in fields(NetworkOptions)}
        all_options = options if isinstance(options, Options) else Options(**known)
        add_faults(faults, network, find_faults(network, cls.chip, all_options, unread))

    @classmethod
    def make_project(
        cls, described: DescribedModel, arguments: Sequence[str], trained: TrainedModel | None
    ) -> DescribedProject:
        """Return the project of a described network, see `DescribedTarget`."""
        from mace_frontend_ai8x.targets import DescribedProject
        from mace_target_max78000.project import make_project
        from mace_target_max78000.trained_model import check_trained_model

        options = Options.of_arguments(arguments, "options")
        network = described.network(options, partial(cls.add_limit_faults, options))
        if trained is not None:
            check_trained_model(network, trained.name, trained.graph, cls.chip)
        project = make_project(network, options, cls.chip)
        return DescribedProject(project.files, (*network.notes, *project.notes), project.summary)

    def runner(self) -> Runner:
        """Return the emulated microcontroller with the accelerator's simulator."""
        return Emulator(type(self).__module__.partition(".")[0])

    def _options(self, model: Model) -> tuple[Options, Mapping[str, int]]:
        """Return what the deployment file asks for: options of the program, and bits of weights by layer."""
        requested = {name: value for name, value in model.options(self.name).items() if name != "model"}
        place = f"model {model.name!r}: target_options: {self.name}"
        bits = _read_bits(requested.pop("bits", {}), place)
        return Options.of({"prefix": model.name, **requested}, place), bits


def _read_bits(value: object, place: str) -> Mapping[str, int]:
    """Read the bits of weights by layer."""
    if not isinstance(value, Mapping) or not all(bits in WEIGHT_BITS for bits in value.values()):
        raise MaceError(
            place, f"bits: {value!r} is not allowed", "write a mapping of layers' names to 1, 2, 4 or 8"
        )
    return {str(name): int(bits) for name, bits in value.items()}


class Emulator(Runner):
    """Executes a firmware's binary on an emulated microcontroller.

    package: of the target; `python -m` it takes a program and its arguments.
    """

    name = "unicorn"
    timing = "estimated"

    def __init__(self, package: str) -> None:
        self.package = package

    def missing(self) -> str | None:
        """Return None if the unicorn package is installed, else how to install it."""
        return None if find_spec("unicorn") else "the package unicorn is not installed: pip install unicorn"

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs the emulator in a process of its own."""
        # -P: no module of the folder where it runs may hide one of Python's.
        return [sys.executable, "-P", "-m", self.package, str(program), *arguments]
