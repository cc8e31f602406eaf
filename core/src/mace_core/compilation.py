"""The straight line from a model's files to its plan.

Build, explain, check, validate and report read its one result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from mace_core.api import BuildConfig, Region, Target
from mace_core.calibration import check_costs
from mace_core.candidates import check_tuning
from mace_core.compact_weights import AS_STORED
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.numerics import read_numerics
from mace_core.part import Part
from mace_core.partition import partition
from mace_core.pipeline import load
from mace_core.plan import Plan, make_plan
from mace_core.refusal import NodeRefusal
from mace_core.registry import Choice, Registry
from mace_core.report import ModelReport, report_plan
from mace_core.transforms import run_phases
from mace_core.tuning import tuning_of
from mace_core.verify import verify

MAX_DIMENSION = 2**31 - 1
"""The largest dimension that `mace_tensor` in mace.h can hold."""

CPU = "cpu"
"""The device that every build has, and that takes what others refuse."""

Progress = Callable[[str], None]


def be_silent(text: str) -> None:
    """Show no progress."""


@dataclass(frozen=True)
class Compilation:
    """The settings with which models are compiled.

    no_fallback: refuse a model of which a node would go to a target that nobody named: `--no-fallback`.
    progress: hears a line for each stage that may take long.
    """

    choice: Choice
    registry: Registry
    no_fallback: bool = False
    progress: Progress = be_silent

    def targets(self, model: Model) -> tuple[Target, ...]:
        """Return the targets of a model, by preference, each with the model's options."""
        chosen = self.registry.targets_for(self.choice, model.runtimes)
        return tuple(target.configure(model) for target in chosen)


@dataclass(frozen=True)
class CompiledModel:
    """A model with everything that was decided about it on the way to its plan.

    graph: after the transforms.  regions: in the order in which they run, a part of the plan each.
    refusals: every target that was asked for a node and refused it.  notes: decisions that the user should
    know of.
    """

    model: Model
    graph: Graph
    regions: tuple[Region, ...]
    plan: Plan
    refusals: tuple[NodeRefusal, ...]
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    def report(self) -> ModelReport:
        """Describe the model for people and programs."""
        transposes = sum(node.op.name == "Transpose" for node in self.graph.nodes)
        return replace(
            report_plan(self.plan), refusals=self.refusals, notes=self.notes, transposes=transposes
        )


def compile_model(model: Model, compilation: Compilation) -> CompiledModel:
    """Read a model, transform it, divide it among its targets, and plan how their parts run.

    MaceError with all faults of the first stage that finds one.
    """
    targets = compilation.targets(model)
    refuse_unknown_forms(model, targets)
    compilation.progress(f"{model.name}: reading")
    graph = run_phases(load(model, compilation.registry), compilation.registry)
    return compile_graph(model, graph, compilation)


def compile_graph(model: Model, graph: Graph, compilation: Compilation) -> CompiledModel:
    """Go on from the model's graph as the transforms left it; the same graph serves several choices."""
    targets = compilation.targets(model)
    refuse_unknown_forms(model, targets)
    compilation.progress(f"{model.name}: compiling {len(graph.nodes)} nodes for {compilation.choice.text}")
    for runtime in sorted({*model.runtimes} - {target.device for target in targets}):
        place = f"no target for runtime {runtime!r} is installed behind {compilation.choice.abi}"
        compilation.progress(f"{model.name}: {place}; the CPU computes in its place")
    divided = partition(graph, targets)
    if compilation.no_fallback:
        _refuse_fallback(model, divided.regions, divided.refusals, compilation)
    _refuse_states(graph, divided.regions)
    config = BuildConfig(
        compilation.choice.abi,
        compilation.choice.text,
        model,
        partial(read_file, registry=compilation.registry),
    )
    plan = _with_small_dimensions(
        make_plan(graph, [compile_region(region, config) for region in divided.regions])
    )
    if plan.drivers and model.keys.get("fallback") == CPU:
        plan = replace(plan, fallback=_plan_fallback(graph, targets, config))
    # Only now all nodes with candidates are known: a wrong name in the file must not be passed over without a
    # word.
    tuning = tuning_of(model, compilation.choice.abi)
    check_tuning(tuning, plan.selections)
    check_costs(tuning, compilation.registry.targets)
    notes = (*graph.notes, *chain.from_iterable(part.notes for part in plan.parts))
    return CompiledModel(model, graph, divided.regions, plan, divided.refusals, tuple(dict.fromkeys(notes)))


def read_file(file: Path, registry: Registry) -> Graph:
    """Return the graph of a model that no deployment describes, as the transforms leave it.

    MaceError if there is none.
    """
    if not file.exists():
        raise MaceError(file, "no such file", "correct its path, or leave the option out")
    graph = load(Model(file.stem, (file,)), registry)
    # The caller compares layers: where tensors have an origin, transforms keep all channels of the file.
    return run_phases(replace(graph, origin=graph.origin or file), registry)


def _plan_fallback(graph: Graph, targets: Sequence[Target], config: BuildConfig) -> Plan:
    """Return the plan of the same graph for the CPU alone."""
    regions = partition(graph, [target for target in targets if target.device == CPU]).regions
    return make_plan(graph, [compile_region(region, config) for region in regions])


def compile_region(region: Region, config: BuildConfig) -> Part:
    """Let a target compile a region that every later stage may trust."""
    verify(region.graph)
    return region.target.compile(region, config)


def refuse_unknown_forms(model: Model, targets: Sequence[Target]) -> None:
    """Raise MaceError if a target of the model would ignore a form of numbers in the deployment file.

    That is the form of weights, or the rule by which results are rounded.
    """
    numerics = read_numerics(model.keys)
    for target in targets:
        if not target.can_round(numerics):
            problem = f"numerics: {numerics.value}: target {target.name!r} does not round so"
            remedy = "leave the key out, or build without this target"
            raise MaceError(f"model {model.name!r}", problem, remedy)
        if model.keys.get("weights") == AS_STORED and not target.widens_weights():
            problem = f"weights: {AS_STORED}: target {target.name!r} has no kernels that widen weights"
            raise MaceError(
                f"model {model.name!r}", problem, "leave the key out, or build without this target"
            )


def _refuse_fallback(
    model: Model, regions: Sequence[Region], refusals: Sequence[NodeRefusal], compilation: Compilation
) -> None:
    """Raise MaceError with the ledger of every node that went to a target which nobody named."""
    named = {target.name for target in compilation.choice.targets}
    if not named:  # then the deployment file names them under `runtime:`
        named = {target.name for target in compilation.targets(model) if target.device in model.runtimes}
    reasons = {(r.node, r.target): r.refusal for r in refusals}
    faults = []
    for region in regions:
        if region.target.name in named:
            continue
        for node in region.graph.nodes:
            why = "; ".join(
                f"{target}: {reasons[node.name, target]}"
                for target in sorted(named)
                if (node.name, target) in reasons
            )
            faults.append(
                f"{model.name}: node {node.name!r} ({node.op.name}): "
                f"would fall back to {region.target.name}; {why}"
            )
    if faults:
        raise MaceError.of(faults)


def _refuse_states(graph: Graph, regions: Sequence[Region]) -> None:
    """Raise MaceError for a model with states that a target computes whole: its program keeps no states."""
    targets = [region.target.name for region in regions if region.target.scope == "model"]
    if targets and graph.states:
        problem = (
            f"target {targets[0]!r} keeps no states, and the model has {', '.join(map(str, graph.states))}"
        )
        remedy = "write `states: application` or `states: reset` in the deployment file"
        raise MaceError(f"model {graph.name!r}", problem, remedy)


def _with_small_dimensions(plan: Plan) -> Plan:
    """Return the plan; MaceError that names every tensor with a dimension that `mace_tensor` cannot hold."""
    faults = []
    for name, tensor in plan.program.tensors.items():
        if max(tensor.shape, default=0) > MAX_DIMENSION:
            problem = f"has shape {list(tensor.shape)}, a dimension above {MAX_DIMENSION}"
            faults.append(f"{plan.name}: tensor {name!r} {problem}; state a smaller one under input_shapes")
    if faults:
        raise MaceError.of(faults)
    return plan
