"""From the models of a deployment to the files that a build compiles: the sources of one library, or of a project for each model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mace_core.api import Sources
from mace_core.compilation import Compilation, CompiledModel, Progress, be_silent, compile_model
from mace_core.deployment import Deployment
from mace_core.emit import code
from mace_core.kernel_target import KernelTarget, shared_levels
from mace_core.levels import Level
from mace_core.part import Content, ProjectBody
from mace_core.registry import Choice, Registry
from mace_core.report import LibraryReport
from mace_core.transforms import describe_empty_phases


@dataclass(frozen=True)
class Job:
    """Everything that the sources of one library depend on, besides the files that the deployment names."""

    deployment: Deployment
    choice: Choice


@dataclass(frozen=True)
class Generated:
    """What the models of a deployment became.

    sources: the files with the flags that they need.  report: of all models.  models: their compilations, for who wants more.
    """

    sources: Sources
    report: LibraryReport
    models: tuple[CompiledModel, ...] = field(repr=False)


def generate(job: Job, registry: Registry, progress: Progress = be_silent) -> Generated:
    """Turn the models of a deployment into sources for one choice; MaceError with the faults of the first model that has any."""
    if missing := describe_empty_phases(registry):
        progress(f"note: {missing}")
    work = Compilation(job.choice, registry, progress=progress)
    for model in job.deployment.models:
        isas(job.choice, registry, model.runtimes)  # refused here, before a large model is read
    models = tuple(compile_model(model, work) for model in job.deployment.models)
    report = LibraryReport({model.name: model.report() for model in models}, job.deployment.notes)
    return Generated(encode(job, models, registry), report, models)


def encode(job: Job, models: Sequence[CompiledModel], registry: Registry) -> Sources:
    """Write the plans of models as sources."""
    files: dict[str, Content] = {}
    includes: list[str] = []
    for model in models:
        for part in model.plan.parts:
            if isinstance(part.body, ProjectBody):
                files |= {f"{model.name}/{name}": content for name, content in part.body.files.items()}
                includes += [f"{model.name}/{folder}" for folder in part.body.includes]
    if files:
        return Sources(files, includes=tuple(includes))
    return code.library(job.deployment.library, [model.plan for model in models], isas(job.choice, registry))


def file_names(job: Job, registry: Registry) -> tuple[str, ...]:
    """Return the files that `generate` makes, known before any model is read."""
    models, target = job.deployment.models, job.choice.project
    if target:
        return tuple(f"{m.name}/{name}" for m in models for name in target.layout(m).files)
    return code.file_names(job.deployment.library, [m.name for m in models], [i.name for i in isas(job.choice, registry)])


def isas(choice: Choice, registry: Registry, runtimes: Sequence[str] = ()) -> Sequence[Level]:
    """The instruction-set levels that a library for this choice holds; MaceError where its targets disagree about them."""
    kernels = [t for t in registry.targets_for(choice, runtimes) if isinstance(t, KernelTarget)]
    return shared_levels(kernels, choice.abi, f"target={choice.text}")
