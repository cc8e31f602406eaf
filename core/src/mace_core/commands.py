"""What the commands of `mace` do, without a word of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import Deployment, Model
from mace_core.deployment.names import c_name
from mace_core.errors import MaceError
from mace_core.explain import Explanation, explain
from mace_core.generation import Job, generate
from mace_core.ir import Array
from mace_core.pipeline import load_with
from mace_core.plugin_loader import PluginLoader
from mace_core.registry import Choice, Registry
from mace_core.run.built import Built
from mace_core.run.check import attempted, milliseconds, table, timing_note
from mace_core.run.files import plain_names, read_array, read_samples, write_all
from mace_core.run.samples import stored
from mace_core.run.validate import Question, Row, validate


def opened(deployment: Path, target: str) -> tuple[Deployment, Choice, Registry]:
    """The parsed deployment, the one choice that `target` means, and the plugins.

    target: "" for the ABI of the deployment file, or host where that names several.
    """
    registry = Registry.load()
    parsed = load_with(registry, deployment)
    choices = registry.select(target or one_abi(parsed))
    if len(choices) != 1:
        raise MaceError(f"target={target}", "names several choices", "give one; `scons target=...` builds several")
    return parsed, choices[0], registry


def one_abi(deployment: Deployment) -> str:
    """The ABI to take where only one can be and none is said: the deployment file's, host if it names that among several."""
    return "host" if "host" in deployment.abis else deployment.abis[0]


def convert_files(deployment: Path, target: str, output: Path) -> list[str]:
    """Write the sources; a line for each note and each file."""
    parsed, choice, registry = opened(deployment, target)
    made = generate(Job(parsed, choice), registry)
    write_all(output, made.sources.files)
    notes = [*parsed.notes, *(f"{model.name}: {note}" for model in made.models for note in model.notes)]
    return [*(f"note: {n}" for n in notes), *(str(output / n) for n in sorted(made.sources.files))]


def build_library(deployment: Path, target: str, builds: Path, jobs: int) -> int:
    """SCons's exit status; without a target it builds for the `target_abis` of the deployment file."""
    registry = Registry.load()
    target = target or ",".join(load_with(registry, deployment).abis)
    registry.select(target)
    script = str(files("mace_core") / "run" / "SConstruct")
    options = [f"deployment={deployment.resolve()}", f"target={target}", f"builds={builds}"]
    # The folder may be a stranger's: neither its modules (-P) nor its site_scons are run, nor what SCONSFLAGS asks of other builds.
    command = [sys.executable, "-P", "-m", "SCons", "--no-site-dir", "-Q", f"-j{jobs}", "-f", script, *options]
    environment = {name: value for name, value in os.environ.items() if name != "SCONSFLAGS"}
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603  # our own build


def run_model(deployment: Path, target: str, where: Mapping[str, Any], inputs: Mapping[str, str], output: Path) -> dict[str, Path]:
    """Write each output as OUTPUT/NAME.npy with a leading axis of samples; the files by output."""
    parsed, choice, _ = opened(deployment, target)
    model = _named(parsed, where["model"])
    built = Built.at(where["builds"] / parsed.library, choice.text, choice.runner)
    tensors = {t.name: t for t in built.model(model.name)["inputs"]}
    samples = {n: read_array(f, tensors[n]) if n in tensors else read_samples(f) for n, f in inputs.items()}
    found = built.run(model.name, samples or stored(model.inputs, list(tensors.values())), where["threads"])
    files = {name: f"{plain}.npy" for name, plain in plain_names(found).items()}
    write_all(output, {file: _npy(found[name]) for name, file in files.items()})
    return {name: output / file for name, file in files.items()}


def validate_library(deployment: Path, target: str, where: Mapping[str, Any]) -> list[Row]:
    """A row per model: how similar its outputs are to the stored ones, or to its framework's on random inputs.

    A model that cannot be validated gets a row with the problem, and the others go on.
    """
    return [row for question in _questions(deployment, target, where) for row in attempted(question, lambda q: [validate(q)])]


def validate_layers(deployment: Path, target: str, where: Mapping[str, Any]) -> list[Row]:
    """A row per tensor that can be compared, of every model."""
    from mace_core.run.layers import layers

    return [row for question in _questions(deployment, target, where) for row in attempted(question, layers)]


def _questions(deployment: Path, target: str, where: Mapping[str, Any]) -> list[Question]:
    parsed, choice, registry = opened(deployment, target)
    models = (_named(parsed, where["model"]),) if where.get("model") else parsed.models
    built = Built.at(where["builds"] / parsed.library, choice.text, choice.runner)
    return [Question(built, model, registry, where["threads"]) for model in models]


def benchmark_models(deployment: Path, target: str, how: Mapping[str, Any]) -> list[Row]:
    """Nanoseconds by model: from mace_benchmark, or beside the framework in this process."""
    parsed, choice, registry = opened(deployment, target)
    folder = how["builds"] / parsed.library
    if how["against_framework"]:
        from mace_core.run.versus import versus

        return [versus(folder, choice, model, registry, how["rounds"]) for model in parsed.models]
    built = Built.at(folder, choice.text, choice.runner)
    return [built.time(m.name, how["threads"], how["rounds"], how["layers"]) for m in parsed.models]


def show_benchmark(rows: list[Row]) -> str:
    """Least and median of each row in milliseconds, the framework's and the ratio where they were measured."""
    head = ("model", "least ms", "median ms", "framework ms", "ratio")
    cells = []
    for row in rows:
        other = row.get("framework_ns")
        ratio = f"{np.median(row['ns']) / np.median(other):.2f}" if other else ""
        times = (milliseconds(min(row["ns"]), row), milliseconds(float(np.median(row["ns"])), row))
        cells.append((row["model"], *times, _ms(np.median(other)) if other else "", ratio))
    text = table(head, cells) + timing_note(rows)
    for row in rows:
        if layers := row.get("layers"):
            slowest = sorted(layers, key=lambda x: -x["ns"])
            text += table((row["model"], "kernel", "ms"), [(x["name"], x["kernel"], _ms(x["ns"])) for x in slowest])
    return text


def explain_deployment(deployment: Path, target: str, strict: bool = False) -> list[Explanation]:
    """Compile every model and tell what was decided; strict: MaceError for nodes that no named target takes."""
    parsed, choice, registry = opened(deployment, target)
    work = Compilation(choice, registry, strict)
    return [explain(compile_model(model, work)) for model in parsed.models]


def check_deployment(deployment: Path, target: str) -> Iterator[str]:
    """Lines of what is fine and what was decided; MaceError with all faults together."""
    from mace_core.run.ready import check

    yield from check(deployment, target, Registry.load())


def list_plugins() -> list[dict[str, Any]]:
    """Describe every plugin: name, distribution, version, what it offers, what is not ready, and the fault of one that is broken."""
    loader = PluginLoader()
    loader.load()
    listed = []
    for plugin in loader.plugins:
        offered = [(kind, name) for (kind, name), owner in loader.owners.items() if owner == plugin]
        count = sum(kind == "ops" for kind, _ in offered)
        offers = [f"{kind[:-1]} {name}" for kind, name in offered if kind != "ops"]
        fault = loader.broken.get(plugin)
        listed.append(
            {
                "name": plugin.name,
                "distribution": plugin.distribution,
                "version": plugin.version,
                "offers": [*offers, f"{count} ops"] if count else offers,
                "missing": _missing(loader, offered),
                "broken": str(fault) if fault else "",
                "conflicts": [str(c) for c in loader.conflicts if str(plugin) in str(c)],
            }
        )
    return listed


def show_plugins(found: list[dict[str, Any]]) -> str:
    """Return a table of plugins, then the whole text of what is broken."""
    rows = [(p["name"], p["version"], ", ".join(p["offers"]), _state(p)) for p in found]
    text = table(("name", "version", "offers", "state"), rows, whole=True)
    return text + "".join(f"{fault}\n" for p in found for fault in [p["broken"], *p["conflicts"]] if fault)


def _state(plugin: Mapping[str, Any]) -> str:
    if plugin["broken"]:
        return "broken: see below"
    return "; ".join(plugin["missing"]) or "ready"


def _missing(loader: PluginLoader, offered: Sequence[tuple[str, str]]) -> list[str]:
    """Say what the targets and toolchains of one plugin lack; one that fails when asked is told, not raised."""
    reasons: list[str] = []
    for kind, name in offered:
        offer = loader.tables[kind][name]
        try:
            if kind == "targets" and (reason := offer.missing()):
                reasons.append(reason)
            if kind == "toolchains":
                reasons += sorted({f"{abi}: {why}" for abi in offer.abis if (why := offer.missing(abi))})
        except (Exception, SystemExit) as error:  # noqa: BLE001  # `mace plugins` must answer whatever a plugin does
            reasons.append(f"{name}: cannot tell what it lacks: {type(error).__name__}: {error}")
    return reasons


def _named(deployment: Deployment, name: str) -> Model:
    models = {m.name: m for m in deployment.models}
    if name and c_name(name) not in models:
        raise MaceError(f"--model {name}", "no such model", f"the deployment has {', '.join(models)}")
    return models[c_name(name)] if name else deployment.models[0]


def _npy(array: Array) -> bytes:
    from io import BytesIO

    data = BytesIO()
    np.save(data, array)
    return data.getvalue()


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.3f}"
