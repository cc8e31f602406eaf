"""Runs a model with states several times in a row beside its framework, and once more after a reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mace_core.deployment import Model
from mace_core.graph_builder import NEXT
from mace_core.io_spec import turn_axes
from mace_core.ir import Array, Tensor
from mace_core.run.framework import Framework, FrameworkSession
from mace_core.run.validation_job import ValidationJob

STEPS = 16
"""Runs in a row where the deployment file names no data: enough for a state that is lost or wrong to show."""

ROUNDS = 2
"""Number of rounds over all steps: from the start values, and again after a reset."""


def carried_states(model: Model, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> dict[str, str]:
    """Return the library's inputs that are states of the application, each with the output of its next value.

    These are each input NAME beside an output NAME.next, by the names in the model file.
    """
    names = {port.alias: port.name for port in (*model.inputs, *model.outputs) if port.alias}
    following = {names.get(tensor.name, tensor.name): tensor.name for tensor in outputs}
    outputs_by_state = {tensor.name: names.get(tensor.name, tensor.name) + NEXT for tensor in inputs}
    return {state: following[after] for state, after in outputs_by_state.items() if after in following}


def run_steps(
    job: ValidationJob, samples: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, Array], str]:
    """Return what the library and the framework compute in consecutive runs, by output, runs along axis 0.

    All runs are done twice, the second time after a reset, which must give the same again. Each side keeps
    its own states. The text says what the framework is. MaceError if it is missing.

    samples: of the inputs that are no states, a run each.
    """
    framework = Framework.of(job.model, job.registry, job.processes)
    session = FrameworkSession(framework)
    steps = [
        {name: array[i] for name, array in samples.items()}
        for i in range(len(next(iter(samples.values()), ())) or STEPS)
    ]
    ports = job.built.model(job.model.name)
    pairs = carried_states(job.model, ports["inputs"], ports["outputs"])
    starts = _start_values(framework, [tensor for tensor in ports["inputs"] if tensor.name in pairs])
    expected: list[dict[str, Array]] = []
    for _ in range(ROUNDS):
        session.reset()
        expected += [session.run({**starts, **step}) for step in steps]
    outputs = _run_carrying(job, steps, starts, pairs) if pairs else _run_session(job, steps)
    names = [name for name in outputs if name in expected[0]]
    theirs = {name: np.stack([np.asarray(row[name]) for row in expected]) for name in names}
    runtime = f"{session.runtime}; {len(steps)} steps in a row, and again after a reset"
    return {name: outputs[name] for name in names}, theirs, runtime


def _run_session(job: ValidationJob, steps: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Run all rounds in one session, which keeps the states."""
    samples = {name: np.stack([step[name] for step in steps] * ROUNDS) for name in steps[0]}
    return job.built.run(job.model.name, samples, job.threads, reset=len(steps))


def _run_carrying(
    job: ValidationJob,
    steps: Sequence[Mapping[str, Array]],
    starts: Mapping[str, Array],
    pairs: Mapping[str, str],
) -> dict[str, Array]:
    """Run all rounds step by step, each handed the states that the one before left."""
    rows = []
    for _ in range(ROUNDS):
        states = dict(starts)
        for step in steps:
            arrays = {name: array[None] for name, array in {**step, **states}.items()}
            outputs = {
                name: array[0] for name, array in job.built.run(job.model.name, arrays, job.threads).items()
            }
            rows.append(outputs)
            states = {state: outputs[after] for state, after in pairs.items()}
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _start_values(framework: Framework, states: Sequence[Tensor]) -> dict[str, Array]:
    """Return what states that the application carries hold before the first run, by name in the library."""
    ports = {port.alias or port.name: port for port in framework.model.inputs}
    known = {state.input: state.start for state in framework.inside}
    values = {}
    for tensor in states:
        port = ports.get(tensor.name)
        start = known.get(port.name if port else tensor.name)
        zero = tensor.quant.zero_point[0] if tensor.quant else 0
        array = (
            np.full(tensor.shape, zero) if start is None else turn_axes(start, port, framework.frontend.order)
        )
        values[tensor.name] = np.ascontiguousarray(np.broadcast_to(array, tensor.shape), tensor.dtype.numpy)
    return values
