"""Collects the manifests of one build: those of core, and those that the targets add."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from mace_core.api import Target
from mace_core.deployment import Model
from mace_core.emit import code
from mace_core.errors import MaceError, PluginError
from mace_core.job import Job
from mace_core.levels import Level
from mace_core.manifest import Manifest, Product, Unit
from mace_core.plan import Plan
from mace_core.registry import Registry

RUNTIME = Path(__file__).parent / "runtime"
"""C that comes with every library."""

TOOLS = ("mace_run", "mace_benchmark")
"""The programs that come with every library, each a source of that name."""

ENGINE = (
    "mace_engine.c",
    "mace_engine_cache.c",
    "mace_engine_layout.c",
    "mace_engine_ports.c",
    "mace_engine_run.c",
)
"""Sources of the engine."""

RUNTIME_HEADERS = (*code.HEADERS, "mace_threads.h")
"""Headers for applications that are the same for every library."""

SHIPPED = ("mace_threads.c", "mace_run.c", "mace_benchmark.c", "mace_tool.h")
"""Sources that lie beside a library for those who compile it into their own programs."""


def collect_manifests(job: Job, registry: Registry) -> tuple[Manifest, ...]:
    """Return every product of a build, a library before the programs that are linked with it.

    A model that a target computes whole, in a program of its own, is in no library; without other models
    there is no library. PluginError where two manifests disagree about a file.
    """
    library, abi = job.deployment.library, job.choice.abi
    models = list(job.deployment.models)
    offered: list[Manifest] = []
    for target in list_targets(job, registry):
        computed = [model for model in models if target in registry.targets_for(job.choice, model.runtimes)]
        if not computed:
            continue
        added = target.manifests(library, computed, abi)
        offered += added
        whole_models = {*chain.from_iterable(manifest.holds for manifest in added)}
        models = [model for model in models if model.name not in whole_models]
    products = [manifest for manifest in offered if not manifest.joins_library]
    if models:
        products = [*_describe_library(job, registry, models, offered), *products]
    _check_products(products)
    return tuple(products)


def list_targets(job: Job, registry: Registry) -> list[Target]:
    """Return the targets of all models, each once, by preference."""
    by_model = (registry.targets_for(job.choice, model.runtimes) for model in job.deployment.models)
    return list(dict.fromkeys(chain.from_iterable(by_model)))


def library_levels(targets: Iterable[Target], abi: str) -> dict[str, tuple[Level, ...]]:
    """Return the instruction-set levels of each target that has kernels, by the target's name."""
    levels = {target.name: target.levels(abi) for target in targets}
    return {name: of_target for name, of_target in levels.items() if of_target}


def _describe_library(
    job: Job, registry: Registry, models: Sequence[Model], offered: Iterable[Manifest]
) -> Iterator[Manifest]:
    """Yield the library of these models, with what targets add to it, and the programs that come with it."""
    hosted = job.choice.compiler.hosted
    levels = library_levels(list_targets(job, registry), job.choice.abi)
    written = code.manifest(job.deployment.library, [model.name for model in models], levels)
    shares = [manifest for manifest in offered if manifest.joins_library]
    has_drivers = any(manifest.drivers for manifest in shares)
    library = written.join(
        [*shares, describe_runtime(written, hosted), *([describe_engine(written)] if has_drivers else [])]
    )
    yield library
    if hosted:
        for tool in TOOLS:
            yield describe_tool(tool, library)


def describe_runtime(library: Manifest, hosted: bool) -> Manifest:
    """Return what every library contains beside its models: threads where there is an operating system."""
    source, header = "mace_threads.c", "mace_threads.h"
    if not hosted:
        return Manifest(library.name, copies=_copy_runtime(header), headers=(header,))
    unit = Unit(source, reads=(header,), is_independent=True)
    return Manifest(library.name, copies=_copy_runtime(header, source), headers=(header,), units=(unit,))


def describe_engine(library: Manifest) -> Manifest:
    """Return what runs parts with drivers; libraries without drivers do not have it."""
    headers = ("driver.h", "mace_engine.h")
    return Manifest(
        library.name,
        # The engine itself looks no library up; drivers do.
        copies=_copy_runtime(*headers, "driver_library.h", *ENGINE),
        units=tuple(Unit(source, reads=headers) for source in ENGINE),
    )


def describe_tool(name: str, library: Manifest) -> Manifest:
    """Return one of the programs that come with every library."""
    source, header = f"{name}.c", "mace_tool.h"
    models = (f"-DMACE_MODELS={library.name}_models", f"-DMACE_MODEL_COUNT={library.name}_model_count")
    # Their time is the library's, and they take a compiler half as long as with -O2.
    flags = ("-O1", *models)
    copies = _copy_runtime(source, header)
    unit = Unit(source, flags, (header,), is_independent=True)
    return Manifest(name, Product.PROGRAM, copies=copies, units=(unit,), needs=(library.name,))


def _copy_runtime(*names: str) -> dict[str, Path]:
    return {name: RUNTIME / name for name in names}


def _check_products(products: Sequence[Manifest]) -> None:
    """Raise PluginError where two products have one name, or make different things of one file."""
    generated: dict[str, str] = {}
    copies: dict[str, Path] = {}
    objects: dict[tuple[str, str], Unit] = {}
    names: set[tuple[str, Product]] = set()
    for manifest in products:
        place = f"manifest {manifest.name!r}"
        key = (manifest.name, manifest.product)
        if key in names:
            raise PluginError(place, "two products have this name", "give one of them another")
        names.add(key)
        for name in manifest.generated:
            other = generated.setdefault(name, manifest.name)
            if other != manifest.name or name in copies:
                raise PluginError(place, f"{name!r} is a file of {other!r} as well", "give it another name")
        for name, path in manifest.copies.items():
            if name in generated or copies.setdefault(name, path) != path:
                raise PluginError(place, f"{name!r} is a copy of two files", "give one of them another name")
        for unit in manifest.units:
            if objects.setdefault((manifest.abi, unit.object), unit) != unit:
                raise PluginError(
                    place, f"{unit.source!r} is compiled in two ways", "copy it under another name"
                )


def check_files(manifests: Iterable[Manifest], written: Iterable[str]) -> None:
    """Raise PluginError where other files were written than the manifests name."""
    named = {*chain.from_iterable(manifest.generated for manifest in manifests)}
    written = set(written)
    if absent := sorted(named - written):
        raise PluginError(
            "manifest",
            f"names {', '.join(absent)}, which nothing writes",
            "let Target.write give their content",
        )
    if unnamed := sorted(written - named):
        raise PluginError(
            "manifest", f"names no {', '.join(unnamed)}, which a target writes", "name them under generated="
        )


def list_copies(manifests: Iterable[Manifest]) -> dict[str, bytes]:
    """Return the files of drivers and of code for other ABIs, by name.

    Other compilers need them beside the generated sources.
    """
    needed = [manifest for manifest in manifests if manifest.drivers or manifest.abi]
    copies = dict(chain.from_iterable(manifest.copies.items() for manifest in needed))
    return {name: path.read_bytes() for name, path in copies.items()}


def check_buildable(manifests: Iterable[Manifest]) -> None:
    """Raise one MaceError with every product whose files can be written and not built here."""
    if refusals := [
        str(MaceError(manifest.name, manifest.refusal)) for manifest in manifests if manifest.refusal
    ]:
        raise MaceError.of(refusals)


def check_drivers(manifests: Iterable[Manifest], plans: Iterable[Plan]) -> None:
    """Raise PluginError for a part whose driver is in no library of the build.

    Otherwise the linker would report an undefined symbol, which names neither target nor model.
    """
    known = {*chain.from_iterable(manifest.drivers for manifest in manifests if manifest.joins_library)}
    for plan in plans:
        for part in plan.parts:
            if part.driver and part.driver not in known:
                problem = f"needs the driver {part.driver!r}, which no manifest names"
                remedy = "let Target.manifests return its sources with drivers=(...)"
                raise PluginError(f"target {part.target!r}: part {part.name!r}", problem, remedy)
