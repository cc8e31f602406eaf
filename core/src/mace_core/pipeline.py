"""Reads a model's files into the graph that transforms and targets work on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from mace_core.api import PortNames
from mace_core.deployment import Deployment, Model, load_deployment
from mace_core.errors import MaceError
from mace_core.io_spec import apply_io_spec, in_framework_layout
from mace_core.ir import MAX_RANK, Graph
from mace_core.numerics import read_numerics
from mace_core.registry import Registry
from mace_core.states import add_pairs, assign_states, paired_states, read_starts
from mace_core.target_options import check_target_options
from mace_core.verify import verify

RUNTIMES = ("cpu", "gpu", "dsp", "hta", "htp", "apu")
"""Kinds of hardware that a deployment file may ask for whether or not a target for them is installed."""


def load(model: Model, registry: Registry) -> Graph:
    """The verified graph of a model, its inputs and outputs as the deployment file states them."""
    graph = assign_states(read(model, registry), model)
    stated = apply_io_spec(graph.with_name(model.name), model, registry.frontend(model).order)
    numerics = read_numerics(model.keys)
    return _describable(verify(replace(stated, notes=graph.notes, origin=graph.origin, numerics=numerics)))


def read(model: Model, registry: Registry) -> Graph:
    """Return the graph as the framework has it, with its own types and order of axes, and with all states."""
    frontend = registry.frontend(model)
    for file in model.files:
        if not file.exists():
            raise MaceError(
                file, "no such file", f"correct the path of model {model.name!r} in the deployment file"
            )
    if model.keys.get("input_values") and not frontend.fixes_inputs:
        remedy = "export the model with constants there, or convert it to ONNX, whose frontend supports it"
        raise MaceError(
            f"model {model.name!r}",
            f"input_values: the frontend {frontend.name!r} does not support it",
            remedy,
        )
    model_in_framework_order = in_framework_layout(model, frontend.order)
    graph = frontend.load(model.files, model_in_framework_order, registry.ops)
    if not paired_states(model):
        return graph
    starts = frontend.starts(model.files, model_in_framework_order)
    return add_pairs(graph, model, {**starts, **read_starts(graph, model)})


def load_with(registry: Registry, deployment: Path) -> Deployment:
    """Read a deployment file and check it against the installed frontends, runtimes and targets."""
    runtimes = {*RUNTIMES, *registry.targets, *(t.device for t in registry.targets.values())}
    parsed = load_deployment(
        deployment, tuple(registry.frontends), partial(own_names, registry=registry), sorted(runtimes)
    )
    return check_target_options(parsed, registry)


def own_names(model: Model, registry: Registry) -> PortNames | None:
    """The names of a model's own inputs and outputs, for deployment files that do not name them."""
    frontend = registry.frontend(model)
    if any(not file.exists() for file in model.files):
        return None
    return frontend.port_names(model.files)


def _describable(graph: Graph) -> Graph:
    """Return the graph; MaceError for inputs and outputs of more axes than a library describes."""
    remedy = f"at most {MAX_RANK} are supported: let the model reshape it, or cut the graph at another tensor"
    tensors = [graph.tensors[name] for name in (*graph.inputs, *graph.outputs)]
    faults = [
        f"{graph.name}: {t.name!r} has {len(t.shape)} axes; {remedy}"
        for t in tensors
        if len(t.shape) > MAX_RANK
    ]
    if faults:
        raise MaceError.of(faults)
    return graph
