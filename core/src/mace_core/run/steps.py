"""Runs a model with states several times in a row, what it leaves handed to the next run, beside its framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mace_core.api import Frontend, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array, Tensor
from mace_core.ports import from_framework, to_framework
from mace_core.states import carried

if TYPE_CHECKING:
    from mace_core.run.validate import Question

STEPS = 16
"""Runs in a row where the deployment file names no data: enough for a state that is lost or wrong to show."""


def public_pairs(model: Model) -> dict[str, str]:
    """Return the states that are inputs, each with the output that is its next value, by the names in the library."""
    aliases = {port.name: port.alias or port.name for port in (*model.inputs, *model.outputs)}
    return {aliases.get(state, state): aliases.get(after, after) for state, after in carried(model).items()}


def first_states(model: Model, frontend: Frontend, tensors: Sequence[Tensor]) -> dict[str, Array]:
    """Return what the states that are inputs hold before the first run, by the names in the library."""
    pairs = public_pairs(model)
    names = {port.alias or port.name: port for port in model.inputs}
    known = frontend.starts(model.files, model)
    found = {}
    for tensor in tensors:
        if tensor.name not in pairs:
            continue
        start = known.get(names[tensor.name].name)
        if start is None:
            zero = tensor.quant.zero_point[0] if tensor.quant else 0
            found[tensor.name] = np.full(tensor.shape, zero, tensor.dtype.numpy)
        else:
            array = _as_stated(start, tensor.name, model, frontend)
            found[tensor.name] = np.ascontiguousarray(np.broadcast_to(array, tensor.shape), tensor.dtype.numpy)
    return found


def _as_stated(array: Array, name: str, model: Model, frontend: Frontend) -> Array:
    """Return a state's value with its axes in the order that the deployment file states for the input."""
    port = next(port for port in model.inputs if name in (port.alias, port.name))
    outputs = Model(model.name, model.files, outputs=(port,))
    return next(iter(from_framework({port.name: array}, outputs, frontend.order).values()))


def run_steps(question: Question, samples: Mapping[str, Array], frontend: Frontend) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return what the library and what the framework give in each of several runs in a row, by output, runs along the first axis.

    samples: of the inputs that are no states, a run each. Each side is handed its own states. MaceError if the framework is missing.
    """
    model, built = question.model, question.built
    ports = built.model(model.name)
    start = first_states(model, frontend, ports["inputs"])
    steps = [{name: array[i] for name, array in samples.items()} for i in range(len(next(iter(samples.values()), ())) or STEPS)]
    expected = _by_framework(steps, start, model, frontend)
    pairs = public_pairs(model)
    found, states = [], dict(start)
    for step in steps:
        given = {name: array[None] for name, array in {**step, **states}.items()}
        outputs = {name: array[0] for name, array in built.run(model.name, given, question.threads).items()}
        found.append(outputs)
        states = {state: outputs[after] for state, after in pairs.items()}
    names = [name for name in found[0] if name in expected[0]]
    return _joined(found, names), _joined(expected, names)


def _joined(steps: Sequence[Mapping[str, Array]], names: Sequence[str]) -> dict[str, Array]:
    return {name: np.stack([np.asarray(step[name]) for step in steps]) for name in names}


def _by_framework(
    steps: Sequence[Mapping[str, Array]], start: Mapping[str, Array], model: Model, frontend: Frontend
) -> list[dict[str, Array]]:
    """Return what the framework gives in each run: from states that it keeps, or from those that it is handed."""
    kept = frontend.recurrent(model.files, model)
    run = kept or frontend.reference(model.files, model)
    if run is None:
        problem = f"no stored outputs, and the framework behind {frontend.name!r} is not installed"
        remedy = "name files under validation_inputs_data and validation_outputs_data, or install the framework"
        raise MaceError(f"model {model.name!r}", problem, remedy)
    return _carried_through(run, steps, (start, {} if kept else public_pairs(model)), (model, frontend))


def _carried_through(
    run: Reference,
    steps: Sequence[Mapping[str, Array]],
    states: tuple[Mapping[str, Array], Mapping[str, str]],
    of: tuple[Model, Frontend],
) -> list[dict[str, Array]]:
    """Run the framework step by step; states: what they are at first, and each with the output that is its next value."""
    (current, pairs), (model, frontend) = states, of
    found = []
    for step in steps:
        given = to_framework({**step, **current}, model, frontend.order)
        outputs = from_framework(run(given), model, frontend.order)
        current = {**current, **{state: outputs[after] for state, after in pairs.items()}}
        found.append(outputs)
    return found
