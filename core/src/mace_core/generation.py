"""Compiles the models of a deployment and writes the files that a build compiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from mace_core.api import GeneratedFiles
from mace_core.build_manifest import (
    check_drivers,
    check_files,
    collect_manifests,
    library_levels,
    list_targets,
)
from mace_core.compilation import Compilation, CompiledModel, Progress, be_silent, compile_model
from mace_core.emit import code
from mace_core.job import Job
from mace_core.part import Content
from mace_core.registry import Registry
from mace_core.report import LibraryReport
from mace_core.transforms import describe_empty_phases


@dataclass(frozen=True)
class Generated:
    """The generated files and the report of all models of a deployment.

    sources: the files and the products that are made of them.  report: of all models.  models: their
    compilations, for who wants more.
    """

    sources: GeneratedFiles
    report: LibraryReport
    models: tuple[CompiledModel, ...] = field(repr=False)


def generate(job: Job, registry: Registry, progress: Progress = be_silent) -> Generated:
    """Turn the models of a deployment into sources for one choice.

    MaceError with the faults of the first model that has any.
    """
    if missing := describe_empty_phases(registry):
        progress(f"note: {missing}")
    compilation = Compilation(job.choice, registry, job.no_fallback, progress)
    # Called for its errors: faults of targets should appear before a large model is read, which takes long.
    collect_manifests(job, registry)
    models = tuple(compile_model(model, compilation) for model in job.deployment.models)
    report = LibraryReport({model.name: model.report() for model in models}, job.deployment.notes)
    return Generated(encode(job, models, registry), report, models)


def encode(job: Job, models: Sequence[CompiledModel], registry: Registry) -> GeneratedFiles:
    """Write the plans of these models, which may be fewer than the deployment has, as sources."""
    job = replace(job, deployment=replace(job.deployment, models=tuple(model.model for model in models)))
    manifests = collect_manifests(job, registry)
    whole_models = {*chain.from_iterable(manifest.holds for manifest in manifests)}
    plans = [model.plan for model in models if model.name not in whole_models]
    files: dict[str, Content] = {}
    if plans:
        files |= code.library(
            job.deployment.library, plans, library_levels(list_targets(job, registry), job.choice.abi)
        ).files
    for target in list_targets(job, registry):
        own_parts = {
            model.name: [part for part in model.plan.parts if part.target == target.name] for model in models
        }
        files |= target.write(job.deployment.library, own_parts)
    check_files(manifests, files)
    check_drivers(manifests, (model.plan for model in models))
    return GeneratedFiles(files, manifests)
