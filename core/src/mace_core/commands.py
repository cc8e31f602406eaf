"""Implements the commands of `mace`, independent of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from mace_core.build_manifest import list_copies
from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import Deployment, Model
from mace_core.deployment.names import c_name
from mace_core.errors import MaceError
from mace_core.explain import Explanation, explain
from mace_core.generation import generate
from mace_core.ir import Array
from mace_core.job import Job, with_features
from mace_core.pipeline import load_with
from mace_core.plugin_loader import DISABLED, PluginLoader
from mace_core.registry import Choice, Registry
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.check import attempt_each
from mace_core.run.files import plain_names, read_array, read_samples, write_all
from mace_core.run.framework_process import FrameworkProcesses
from mace_core.run.ready import Finding
from mace_core.run.results import Failure, LayerComparison, Timing, Validation
from mace_core.run.samples import stored_samples
from mace_core.run.tables import table
from mace_core.run.validate import validate
from mace_core.run.validation_job import ValidationJob


def load_job(deployment: Path, target: str) -> tuple[Deployment, Choice, Registry]:
    """Return the parsed deployment, the one choice that `target` names, and the plugins.

    target: "" for the ABI of the deployment file, or host if that names several.
    """
    registry = Registry.load()
    parsed = load_with(registry, deployment)
    choices = registry.select(target or one_abi(parsed))
    if len(choices) != 1:
        raise MaceError(
            f"target={target}", "names several choices", "name one; only `scons target=...` takes several"
        )
    return parsed, with_features(choices[0], parsed), registry


def one_abi(deployment: Deployment) -> str:
    """Return the ABI to use where only one is possible and the user named none.

    That is the first of the deployment file, or host if the file names host among several.
    """
    return "host" if "host" in deployment.abis else deployment.abis[0]


@dataclass(frozen=True)
class Converted:
    """The files that were written, and what the user should know of them."""

    notes: tuple[str, ...]
    files: tuple[Path, ...]


def convert_files(deployment: Path, target: str, output: Path, no_fallback: bool) -> Converted:
    """Write the sources of a deployment into a folder."""
    parsed, choice, registry = load_job(deployment, target)
    generated = generate(Job(parsed, choice, no_fallback), registry)
    files = {**generated.sources.files, **list_copies(generated.sources.manifests)}
    write_all(output, files)
    notes = list(parsed.notes)
    for model in generated.models:
        notes += [f"{model.name}: {note}" for note in model.notes]
    return Converted(tuple(notes), tuple(output / name for name in sorted(files)))


@dataclass(frozen=True)
class BuiltModels:
    """Says which built models a command is about.

    deployment: the file.  target: one choice, or "".  builds: the folder that libraries are built in.  model:
    a name; "" for all, or for the first where a command takes one.  threads: workers that compute.
    device: what must compute, as drivers choose it; "" for any.
    """

    deployment: Path
    target: str = ""
    builds: Path = Path("builds")
    model: str = ""
    threads: int = 1
    device: str = ""

    def open(self) -> tuple[Deployment, Choice, Registry]:
        """Return the parsed deployment, the one choice and the plugins."""
        return load_job(self.deployment, self.target)


@dataclass(frozen=True)
class ModelRun:
    """The files that a run has written, by output, and what computed each part of the model."""

    files: Mapping[str, Path]
    devices: tuple[str, ...]


def run_model(models: BuiltModels, inputs: Mapping[str, str], output: Path, *, reset: int) -> ModelRun:
    """Run a model and write each output as OUTPUT/NAME.npy, with a leading axis of samples.

    reset: after how many samples the states get their start values again; 0 for
    never. MaceError for a model without states that is to be reset.
    """
    parsed, choice, registry = models.open()
    model = _find_model(parsed, models.model)
    runner = registry.find_runner(choice, (model,))
    built = BuiltLibrary.open(models.builds / parsed.library, choice.text, runner)
    built = built.select_device(models.device, registry.targets.values())
    if reset and not built.figures(model.name).states:
        raise MaceError("--reset", f"model {model.name!r} keeps no states", "leave it out")
    tensors = {t.name: t for t in built.model(model.name)["inputs"]}
    samples = {n: read_array(f, tensors[n]) if n in tensors else read_samples(f) for n, f in inputs.items()}
    samples = samples or stored_samples(model.inputs, list(tensors.values()))
    result = built.run_session(model.name, samples, models.threads, reset=reset)
    outputs = result.outputs
    files = {name: f"{plain}.npy" for name, plain in plain_names(outputs).items()}
    write_all(output, {file: _npy(outputs[name]) for name, file in files.items()})
    return ModelRun({name: output / file for name, file in files.items()}, result.devices)


def validate_library(models: BuiltModels) -> list[Validation | Failure]:
    """Compare each model's outputs with the stored ones, or with its framework's on random inputs."""
    return attempt_each(_validation_jobs(models), lambda job: [validate(job)])


def validate_layers(models: BuiltModels) -> list[LayerComparison | Failure]:
    """Compare every tensor of every model that can be compared."""
    from mace_core.run.layers import compare_layers

    return attempt_each(_validation_jobs(models), compare_layers)


def _validation_jobs(built_models: BuiltModels) -> list[ValidationJob]:
    parsed, choice, registry = built_models.open()
    models = (_find_model(parsed, built_models.model),) if built_models.model else parsed.models
    runner = registry.find_runner(choice, models)
    built = BuiltLibrary.open(built_models.builds / parsed.library, choice.text, runner)
    built = built.select_device(built_models.device, registry.targets.values())
    processes = FrameworkProcesses()
    return [
        ValidationJob(built, model, registry, built_models.threads, processes=processes) for model in models
    ]


def benchmark_models(models: BuiltModels, rounds: int, layers: bool = False) -> list[Timing]:
    """Time every model with mace_benchmark."""
    parsed, choice, registry = models.open()
    folder = models.builds / parsed.library
    built = BuiltLibrary.open(folder, choice.text, registry.find_runner(choice, parsed.models))
    built = built.select_device(models.device, registry.targets.values())
    return [built.time(model.name, models.threads, rounds, layers) for model in parsed.models]


def compare_speeds(models: BuiltModels, rounds: int) -> list[Timing | Failure]:
    """Time every model in this process in turn with its framework; one that cannot be is a Failure."""
    from mace_core.run.compare_speed import compare_speed

    parsed, choice, registry = models.open()
    folder = models.builds / parsed.library
    results: list[Timing | Failure] = []
    for model in parsed.models:
        try:
            results.append(compare_speed(folder, choice, model, registry, rounds))
        except MaceError as error:
            results.append(Failure(model.name, choice.text, str(error)))
    return results


def explain_deployment(deployment: Path, target: str, no_fallback: bool) -> list[Explanation]:
    """Compile every model and return what was decided.

    no_fallback: raise MaceError for nodes that no named target takes.
    """
    parsed, choice, registry = load_job(deployment, target)
    compilation = Compilation(choice, registry, no_fallback)
    return [explain(compile_model(model, compilation)) for model in parsed.models]


def check_deployment(deployment: Path, target: str, no_fallback: bool, strict: bool) -> Iterator[Finding]:
    """Yield what was checked and what was decided; MaceError with all faults together.

    strict: keys that have no effect are faults as well.
    """
    from mace_core.run.ready import check

    yield from check(deployment, target, Registry.load(), no_fallback, strict)


@dataclass(frozen=True)
class PluginListing:
    """One installed plugin: what it offers, what that lacks, and what is wrong with it.

    broken: the fault of one that does not work.  conflicts: names that another plugin offers as well.
    """

    name: str
    distribution: str
    version: str
    offers: tuple[str, ...]
    missing: tuple[str, ...] = ()
    broken: str = ""
    conflicts: tuple[str, ...] = ()
    is_disabled: bool = False

    @property
    def state(self) -> str:
        """The cell of the table of plugins: "ready", or what is missing or broken."""
        if self.is_disabled:
            return f"disabled by {DISABLED}"
        return "broken: see below" if self.broken else "; ".join(self.missing) or "ready"


def list_plugins() -> list[PluginListing]:
    """Describe every plugin that is installed."""
    loader = PluginLoader()
    loader.load()
    listed = []
    for plugin in loader.plugins:
        offered = [kind_name for kind_name, owner in loader.owners.items() if owner == plugin]
        count = sum(kind == "ops" for kind, _ in offered)
        offers = [f"{kind[:-1]} {name}" for kind, name in offered if kind != "ops"]
        fault = loader.broken.get(plugin)
        listed.append(
            PluginListing(
                name=plugin.name,
                distribution=plugin.distribution,
                version=plugin.version,
                offers=(*offers, *([f"{count} ops"] if count else [])),
                missing=tuple(_missing(loader, offered)),
                broken=str(fault) if fault else "",
                conflicts=tuple(str(c) for c in loader.conflicts if str(plugin) in str(c)),
            )
        )
    disabled = (
        PluginListing(p.name, p.distribution, p.version, (), is_disabled=True) for p in loader.disabled
    )
    return sorted((*listed, *disabled), key=lambda plugin: plugin.name)


def show_plugins(plugins: Sequence[PluginListing]) -> str:
    """Return a table of plugins, then the whole text of what is broken."""
    rows = [(plugin.name, plugin.version, ", ".join(plugin.offers), plugin.state) for plugin in plugins]
    text = table(("name", "version", "offers", "state"), rows, full_text=True)
    faults = chain.from_iterable((plugin.broken, *plugin.conflicts) for plugin in plugins)
    return text + "".join(f"{fault}\n" for fault in faults if fault)


def _missing(loader: PluginLoader, offered: Sequence[tuple[str, str]]) -> list[str]:
    """Return what the targets and toolchains of one plugin need and this machine lacks.

    A plugin that raises when it is asked is listed with its exception.
    """
    reasons: list[str] = []
    for kind, name in offered:
        offer = loader.tables[kind][name]
        try:
            if kind == "targets" and (reason := offer.missing()):
                reasons.append(reason)
            if kind == "toolchains":
                missing = {abi: offer.missing(abi) for abi in offer.abis}
                reasons += sorted(f"{abi}: {reason}" for abi, reason in missing.items() if reason)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # `mace plugins` must always answer
            reasons.append(f"{name}: cannot say what it needs: {type(error).__name__}: {error}")
    return reasons


def _find_model(deployment: Deployment, name: str) -> Model:
    models = {m.name: m for m in deployment.models}
    if name and c_name(name) not in models:
        raise MaceError(f"--model {name}", "no such model", f"models in this deployment: {', '.join(models)}")
    return models[c_name(name)] if name else deployment.models[0]


def _npy(array: Array) -> bytes:
    from io import BytesIO

    data = BytesIO()
    np.save(data, array)
    return data.getvalue()
