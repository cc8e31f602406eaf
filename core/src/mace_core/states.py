"""Decides who keeps the states of a model, the tensors whose values last from one run to the next.

A frontend finds the states that a model file keeps by itself. A deployment file may pair inputs with outputs,
which are states then, too. The session of the library keeps them, unless the deployment file says that the
application does, or that every run begins with the start values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph, State, Tensor, frozen
from mace_core.rewrite import copy_nodes

RESET = "reset"
"""The value of the key `states` that gives every state its start value at the beginning of each run."""

APPLICATION = "application"
"""The value of the key `states` that makes every state an input and an output of the library."""

KEY = "states"

STARTS = "state_starts"
"""The files of start values that the key `states` names, as the parsed deployment file has them."""


def is_reset(model: Model) -> bool:
    """Tell whether every run begins with the start values of the states."""
    return model.keys.get(KEY) == RESET


def paired_states(model: Model) -> dict[str, str]:
    """Return the inputs that the deployment file declares as states, with their next values' outputs."""
    stated = model.keys.get(KEY)
    return dict(stated) if isinstance(stated, Mapping) else {}


def start_files(model: Model) -> dict[str, Path]:
    """Return the files that the deployment file names for values before the first run, by input."""
    stated = model.keys.get(STARTS)
    return {name: Path(file) for name, file in stated.items()} if isinstance(stated, Mapping) else {}


def read_starts(graph: Graph, model: Model) -> dict[str, Array]:
    """Return the values of those files; raises MaceError unless each has the state's type and shape."""
    starts = {}
    for name, file in start_files(model).items():
        if name not in graph.tensors:  # which add_pairs reports
            continue
        tensor = graph.tensors[name]
        try:
            array = np.load(file, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise MaceError(
                file, f"cannot be read as an array: {error}", "write it with numpy.save"
            ) from None
        if not isinstance(array, np.ndarray) or (array.dtype, array.shape) != (
            tensor.dtype.numpy,
            tensor.shape,
        ):
            content = "several arrays"
            if isinstance(array, np.ndarray):
                content = f"{array.dtype} {list(array.shape)}"
            raise MaceError(
                file, f"holds {content}, and the state is {tensor}", "save the value before the first run"
            )
        starts[name] = array
    return starts


def add_pairs(graph: Graph, model: Model, starts: Mapping[str, Array]) -> Graph:
    """Return the graph with the states that the deployment file pairs beside those of the model file.

    starts: values before the first run, by input; other states begin with the number 0.
    Raises one MaceError for all pairs that are no states.
    """
    pairs = paired_states(model)
    faults = list(
        chain.from_iterable(_pair_faults(graph, model, before, after) for before, after in pairs.items())
    )
    if faults:
        raise MaceError.of(faults)
    states = [
        State(before, after, _start_value(graph.tensors[before], starts.get(before)))
        for before, after in pairs.items()
    ]
    return replace(graph, states=(*graph.states, *states)) if states else graph


def _pair_faults(graph: Graph, model: Model, before: str, after: str) -> Iterator[str]:
    place = f"model {model.name!r}: {KEY}"
    missing = False
    for side, name, names in (("input", before, graph.port_inputs), ("output", after, graph.port_outputs)):
        if name not in names:
            missing = True
            choice = f"name one of {', '.join(names) or 'none'}, or add it to {side}_tensors"
            yield f"{place}: {name!r} is no {side} of the model; {choice}"
    if missing:
        return
    old, builder = graph.tensors[before], graph.tensors[after]
    if (old.dtype, old.shape, old.quant) != (builder.dtype, builder.shape, builder.quant):
        remedy = "pair it with the output that is its next value, of the same shape, type and quantization"
        yield f"{place}: {old} cannot become {builder}; {remedy}"
    port = next((port for port in model.inputs if port.name == before), None)
    if port is not None and port.preparation:
        problem = f"{before!r} is kept by the session, which prepares nothing"
        yield f"{place}: {problem}; remove its input_mean, input_scale, input_std"
    if port is not None and port.data:
        problem = f"{before!r} is kept by the session, and validation_inputs_data has files for it"
        yield f"{place}: {problem}; remove them"


def _start_value(tensor: Tensor, start: Array | None) -> Array:
    if start is None:
        zero = tensor.quant.zero_point[0] if tensor.quant else 0
        return frozen(np.full(tensor.shape, zero, tensor.dtype.numpy))
    return frozen(np.broadcast_to(start, tensor.shape).astype(tensor.dtype.numpy))


def assign_states(graph: Graph, model: Model) -> Graph:
    """Return the graph with those states that the session keeps, the others as the deployment file says.

    A state is a port of the library where the file says `states: application`, or names it in
    `input_tensors`.
    With `states: reset` it is a constant. MaceError for an output that the session keeps.
    """
    if not graph.states:
        return graph
    if model.keys.get(KEY) == APPLICATION:
        return replace(graph, states=())
    pairs = paired_states(model)
    named = {port.name for port in model.inputs} - pairs.keys()
    listed = {port.name for port in model.outputs}
    kept_states = [state for state in graph.states if state.input not in named]
    visible = [state for state in kept_states if state.output in listed and state.input not in pairs]
    unread = {state.output for state in graph.states if state.input in named} - listed
    if is_reset(model):
        return _bind(
            graph,
            {state.input: state.start for state in kept_states},
            {state.output for state in graph.states} - listed,
        )
    if visible:
        raise MaceError.of(_shown_fault(model, state) for state in visible)
    return _bind(replace(graph, states=tuple(kept_states)), {}, unread)


def _shown_fault(model: Model, state: State) -> str:
    problem = f"output {state.output!r} is the next value of state {state.input!r}, which the session keeps"
    remedy = f"add {state.input!r} to input_tensors for the application to carry it, or remove the output"
    return f"model {model.name!r}: {problem}; {remedy}"


def _bind(graph: Graph, constants: Mapping[str, Array], unread: Collection[str]) -> Graph:
    """Return the graph with constants in place of some inputs, and without some outputs."""
    if not constants and not unread:
        return graph
    builder = Builder(graph.name)
    # A constant must not take the name of a tensor that is still to come.
    builder.reserved = frozenset(graph.tensors)
    builder.storages = {name: tensor.storage for name, tensor in graph.tensors.items() if tensor.storage}
    builder.notes = list(graph.notes)
    # With constants every run begins with the start values, so that no state is left to keep.
    builder.states = [] if constants else list(graph.states)
    renamed = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if name in constants:
            renamed[name] = builder.weight(name, constants[name], tensor.quant)
        else:
            builder.input(name, tensor.dtype, tensor.shape, tensor.quant)
    renamed = copy_nodes(graph, builder, renamed)
    outputs = [name for name in graph.outputs if name not in unread]
    return replace(
        builder.finish([renamed.get(name, name) for name in outputs], outputs), origin=graph.origin
    )
