"""Runs a model with states several times in a row, what it leaves handed to the next run, beside its framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mace_core.api import Frontend
from mace_core.deployment import Model
from mace_core.ir import Array, Tensor
from mace_core.ports import from_framework
from mace_core.run.framework import Framework
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


def run_steps(question: Question, samples: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array], str]:
    """Return what the library and what the framework give in each of several runs in a row, by output, runs along the first axis.

    samples: of the inputs that are no states, a run each. Each side is handed its own states. The text says what the framework is.
    MaceError if it is missing.
    """
    model, built = question.model, question.built
    ports = built.model(model.name)
    framework = Framework.of(model, question.registry)
    start = first_states(model, framework.frontend, ports["inputs"])
    steps = [{name: array[i] for name, array in samples.items()} for i in range(len(next(iter(samples.values()), ())) or STEPS)]
    kept = framework.frontend.recurrent(model.files, model)
    reference = kept or framework.reference()
    pairs = public_pairs(model)
    expected = _carried_through(partial(framework.run, reference, is_partial=bool(kept)), steps, start, {} if kept else pairs)
    found, states = [], dict(start)
    for step in steps:
        given = {name: array[None] for name, array in {**step, **states}.items()}
        outputs = {name: array[0] for name, array in built.run(model.name, given, question.threads).items()}
        found.append(outputs)
        states = {state: outputs[after] for state, after in pairs.items()}
    names = [name for name in found[0] if name in expected[0]]
    return _joined(found, names), _joined(expected, names), reference.runtime


def _joined(steps: Sequence[Mapping[str, Array]], names: Sequence[str]) -> dict[str, Array]:
    return {name: np.stack([np.asarray(step[name]) for step in steps]) for name in names}


def _carried_through(
    run: Callable[[Mapping[str, Array]], dict[str, Array]],
    steps: Sequence[Mapping[str, Array]],
    start: Mapping[str, Array],
    pairs: Mapping[str, str],
) -> list[dict[str, Array]]:
    """Run the framework step by step; pairs: states, which begin with `start`, each with the output that is its next value."""
    current, found = start, []
    for step in steps:
        outputs = run({**step, **current})
        current = {**current, **{state: outputs[after] for state, after in pairs.items()}}
        found.append(outputs)
    return found
