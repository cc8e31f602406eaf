"""What `mace tune` is asked for, and the libraries that it builds to time them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mace_core.api import Runner
from mace_core.compilation import CompiledModel
from mace_core.deployment import Deployment, Model
from mace_core.device_choice import select_devices
from mace_core.errors import MaceError
from mace_core.generation import encode
from mace_core.job import Job
from mace_core.registry import Choice, Registry
from mace_core.report import LibraryReport
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.compile import link

TOOL = "mace_benchmark"


@dataclass(frozen=True)
class TuningJob:
    """Says what to tune.

    device: the device that must compute, as drivers choose it, or a part of its name; "" for any.
    seconds: how long to build candidates, and as long to measure them.
    """

    deployment: Deployment
    choice: Choice
    registry: Registry
    device: str = ""
    seconds: float = 60.0
    threads: int = 1

    @property
    def device_options(self) -> Mapping[str, str]:
        """The options of sessions that ask for the device, by target."""
        return select_devices(self.registry.targets.values(), self.device)

    def find_runner(self, model: Model) -> Runner:
        """Return what executes a model of the choice; MaceError where nothing does."""
        runner = self.registry.find_runner(self.choice, (model,))
        if runner is None:
            problem = "no runner is available for this ABI on this machine"
            raise MaceError(self.choice.text, problem, "install an emulator, or tune on the device")
        if reason := runner.missing():
            raise MaceError(self.choice.text, f"{runner.name} is not ready", reason)
        return runner

    def build(self, compiled: Sequence[CompiledModel], runner: Runner, folder: Path) -> BuiltLibrary:
        """Build a library of models, with the program that times them, in a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        deployment = replace(self.deployment, models=tuple(one.model for one in compiled))
        sources = encode(Job(deployment, self.choice), compiled, self.registry)
        manifests = tuple(m for m in sources.manifests if m.joins_library or m.name == TOOL)
        link(replace(sources, manifests=manifests), self.choice.compiler, folder, ())
        report = LibraryReport({one.name: one.report() for one in compiled})
        return BuiltLibrary(folder, runner, report, device_options=self.device_options)
