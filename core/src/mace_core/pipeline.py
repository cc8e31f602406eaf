"""The straight line: deployment file in, sources of a library out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mace_core.api import Content, PortNames, Sources, Target
from mace_core.compact_weights import AS_STORED, Compacted, compact_weights
from mace_core.deployment import Deployment, Model, load_deployment
from mace_core.emit import code
from mace_core.errors import MaceError, PluginError
from mace_core.ir import MAX_RANK, Graph
from mace_core.kernel_target import KernelTarget, shared_levels
from mace_core.levels import Level
from mace_core.memory import arena
from mace_core.partition import Split, split
from mace_core.ports import as_stated, in_source_order
from mace_core.program import Program, join
from mace_core.registry import Choice, Registry
from mace_core.target_options import check_target_options
from mace_core.transforms import describe_empty_phases, run_phases
from mace_core.verify import verify

RUNTIMES = ("cpu", "gpu", "dsp", "hta", "htp", "apu")
"""Kinds of hardware that a deployment file may ask for whether or not a target for them is installed."""

MAX_DIMENSION = 2**31 - 1
"""The largest dimension that `mace_tensor` in mace.h can hold."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """Everything that the sources of one library depend on, besides the files that the deployment names."""

    deployment: Deployment
    choice: Choice


def build(job: Job, registry: Registry, progress: Progress = lambda _: None) -> Sources:
    """Turn the models of a deployment into the sources of one library, or of one project each, for one choice."""
    return projects(job, registry, progress) if job.choice.project else library(job, registry, progress)


def projects(job: Job, registry: Registry, progress: Progress = lambda _: None) -> Sources:
    """A folder for each model with the project that the choice's target makes of it."""
    files: dict[str, Content] = {}
    reports: dict[str, object] = {}
    for model in job.deployment.models:
        progress(f"{model.name}: making the project for {job.choice.text}")
        made = project(model, job.choice, registry)
        files |= {f"{model.name}/{name}": content for name, content in made.files.items()}
        reports[model.name] = {"refusals": {}, "transposes": 0, **made.report}
    return Sources(files, report={"models": reports, "notes": list(job.deployment.notes)})


def project(model: Model, choice: Choice, registry: Registry) -> Sources:
    """The project of one model; its report tells the notes of the frontend before the target's own."""
    assert choice.project is not None
    if model.keys.get("weights") == AS_STORED:
        raise _no_widening(model, choice.project)
    notes: list[str] = []

    def read() -> Graph:
        graph = normalise(load(model, registry), registry)
        notes.extend(graph.notes)
        return graph

    made = choice.project.emit(model, read)
    own = made.report.get("notes", ())
    assert isinstance(own, Sequence)
    return replace(made, report={**made.report, "notes": [*dict.fromkeys(notes), *own]})


def file_names(job: Job, registry: Registry) -> tuple[str, ...]:
    """The files that `build` makes, known before any model is read."""
    models, target = job.deployment.models, job.choice.project
    if target:
        return tuple(f"{m.name}/{name}" for m in models for name in target.layout(m).files)
    return code.file_names(job.deployment.library, [m.name for m in models], [i.name for i in isas(job.choice, registry)])


def library(job: Job, registry: Registry, progress: Progress = lambda _: None) -> Sources:
    """The sources of one library that holds all models."""
    placed = []
    notes: dict[str, dict[str, object]] = {}
    if missing := describe_empty_phases(registry):
        progress(f"note: {missing}")
    levels = isas(job.choice, registry)
    for model in job.deployment.models:
        isas(job.choice, registry, model.runtimes)  # refused here, before a large model is read
        progress(f"{model.name}: reading")
        graph = normalise(load(model, registry), registry)
        progress(f"{model.name}: lowering {len(graph.nodes)} nodes")
        targets = registry.targets_for(job.choice, model.runtimes)
        for runtime in sorted({*model.runtimes} - {t.runtime for t in targets}):
            progress(f"{model.name}: no target for runtime {runtime!r} is installed behind {job.choice.abi}; the CPU computes in its place")
        parts = split(graph, targets)
        compacted = lower_model(model, graph, parts, registry)
        placed.append(code.Placed(compacted.program, arena(compacted.program)))
        refusals = {f"{node} on {target}": why for (node, target), why in parts.refusals.items()}
        notes[model.name] = {"transposes": transposes(graph), "refusals": refusals, "notes": list(graph.notes)}
        if compacted.figures:
            notes[model.name]["weights_as_stored"] = dict(compacted.figures)
    sources = code.library(job.deployment.library, placed, levels)
    models = {name: {**dict(figures), **notes[name]} for name, figures in sources.report.items()}  # type: ignore[call-overload]
    return replace(sources, report={"models": models, "notes": list(job.deployment.notes)})


def transposes(graph: Graph) -> int:
    """How many nodes only reorder axes: what two orders of axes in one model cost."""
    return sum(n.op.name == "Transpose" for n in graph.nodes)


def load(model: Model, registry: Registry) -> Graph:
    """The verified graph of a model, its inputs and outputs as the deployment file states them."""
    graph = read(model, registry)
    stated = as_stated(graph.renamed(model.name), model, registry.frontend(model).order)
    return _describable(verify(replace(stated, notes=graph.notes)))


def read(model: Model, registry: Registry) -> Graph:
    """The graph of a model as its framework has it, its inputs and outputs in the framework's own types and order of axes."""
    frontend = registry.frontend(model)
    for file in model.files:
        if not file.exists():
            raise MaceError(file, "no such file", f"correct the path of model {model.name!r} in the deployment file")
    if model.keys.get("input_values") and not frontend.fixes_inputs:
        remedy = "export the model with constants there, or convert it to ONNX, whose frontend heeds it"
        raise MaceError(f"model {model.name!r}", f"input_values: the frontend {frontend.name!r} does not heed it", remedy)
    return frontend.load(model.files, in_source_order(model, frontend.order), registry.ops)


def load_with(registry: Registry, deployment: Path) -> Deployment:
    """Read a deployment file with what is installed: its frontends, runtimes, and the names that models have."""
    runtimes = {*RUNTIMES, *registry.targets, *(t.runtime for t in registry.targets.values())}
    parsed = load_deployment(deployment, tuple(registry.frontends), partial(own_names, registry=registry), sorted(runtimes))
    return check_target_options(parsed, registry)


def own_names(model: Model, registry: Registry) -> PortNames | None:
    """The names of a model's own inputs and outputs, for deployment files that do not name them."""
    frontend = registry.frontend(model)
    if any(not file.exists() for file in model.files):
        return None
    return frontend.port_names(model.files)


def _describable(graph: Graph) -> Graph:
    """Return the graph; MaceError for inputs and outputs of more axes than a library describes."""
    remedy = f"a library's inputs and outputs have at most {MAX_RANK}: let the model reshape it, or cut the graph at another tensor"
    tensors = [graph.tensors[name] for name in (*graph.inputs, *graph.outputs)]
    faults = [f"{graph.name}: {t.name!r} has {len(t.shape)} axes; {remedy}" for t in tensors if len(t.shape) > MAX_RANK]
    if faults:
        raise MaceError.of(faults)
    return graph


def normalise(graph: Graph, registry: Registry) -> Graph:
    """Return the graph after every installed transform, verified."""
    return run_phases(graph, registry)


def lower(graph: Graph, parts: Split, registry: Registry) -> Program:
    """The program of a whole graph, region by region."""
    programs = []
    for region in parts.regions:
        target = _kernel_target(region.target)
        programs.append(target.lower(verify(region.graph)))
    return _with_small_dimensions(join(graph, programs))


def lower_model(model: Model, graph: Graph, parts: Split, registry: Registry) -> Compacted:
    """The program of a model's graph, with its weights in the form that the deployment file asks for.

    MaceError where the targets of its regions have no kernels for that form.
    """
    program = lower(graph, parts, registry)
    targets = [_kernel_target(region.target) for region in parts.regions]
    if model.keys.get("weights") != AS_STORED or not targets:
        return Compacted(program, {})
    for target in targets:
        if target.widening_kernels() is None:
            raise _no_widening(model, target)
    # One target's kernels serve all: two targets may call different ones alike.
    kernels = targets[-1].widening_kernels()
    assert kernels is not None
    return compact_weights(program, kernels)


def _no_widening(model: Model, target: Target) -> MaceError:
    problem = f"weights: {AS_STORED}: target {target.name!r} has no kernels that widen weights"
    return MaceError(f"model {model.name!r}", problem, "leave the key out, or build without this target")


def _with_small_dimensions(program: Program) -> Program:
    """Return the program; MaceError that names every tensor with a dimension that `mace_tensor` cannot hold."""
    faults = []
    for name, tensor in program.tensors.items():
        if max(tensor.shape, default=0) > MAX_DIMENSION:
            problem = f"has shape {list(tensor.shape)}, a dimension above {MAX_DIMENSION}"
            faults.append(f"{program.name}: tensor {name!r} {problem}; state a smaller one under input_shapes")
    if faults:
        raise MaceError.of(faults)
    return program


def isas(choice: Choice, registry: Registry, runtimes: Sequence[str] = ()) -> Sequence[Level]:
    """The instruction-set levels that a library for this choice holds; MaceError where its targets disagree about them."""
    kernels = [t for t in registry.targets_for(choice, runtimes) if isinstance(t, KernelTarget)]
    return shared_levels(kernels, choice.abi, f"target={choice.text}")


def _kernel_target(target: Target) -> KernelTarget:
    if not isinstance(target, KernelTarget):
        raise PluginError(f"target {target.name!r}", "took nodes, and offers no kernels for them", "derive it from KernelTarget")
    return target
