"""Defines states, the tensors whose values a model keeps from one run to the next, and what a deployment file says of them.

A library keeps nothing between runs. A state is therefore an input and an output that the application carries from one run to the
next, or, where the deployment file says `states: reset`, it has its start value at the beginning of every run. What is neither is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.ports import stated_shape

NEXT = ".next"
"""Behind the name of a state, as an output: the state's value after the run."""

RESET = "reset"
"""The value of the key `states` that gives every state its start value at the beginning of each run."""


@dataclass(frozen=True, eq=False)
class State:
    """Describes a state as the model file holds it.

    start: the value before the first run, in the framework's order of axes; for stored integers their zero point,
        unless the file says otherwise.
    named: whether the graph can be cut at the state, so that an input and an output may bear its name.
    """

    name: str
    start: Array
    named: bool = True

    def __str__(self) -> str:
        return f"{self.name!r} ({self.start.dtype.name} {list(self.start.shape)}, at first {self._start()})"

    def _start(self) -> str:
        values = np.unique(self.start)
        return str(values[0]) if values.size == 1 else "an array that the model file holds"


@dataclass(frozen=True)
class Ends:
    """Names the inputs and outputs of the part of a model that is read; order: of the framework's own axes."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    order: str = "NHWC"


def is_reset(model: Model) -> bool:
    """Tell whether every run begins with the start values of the states."""
    return model.keys.get("states") == RESET


def carried(model: Model) -> dict[str, str]:
    """Return the inputs that are states, each with the output that is its value after the run, by the names that the model file uses.

    These are the pairs under `states`, and every input NAME beside an output NAME.next.
    """
    outputs = {port.name for port in model.outputs}
    pairs = {port.name: port.name + NEXT for port in model.inputs if port.name + NEXT in outputs}
    stated = model.keys.get("states")
    if isinstance(stated, Mapping):
        pairs.update(stated)
    return pairs


def refuse_lost(place: str, states: Iterable[State], model: Model, ends: Ends) -> None:
    """Raise one MaceError for states that the library would lose, with the lines to write in the deployment file; none are no error."""
    lost = sorted(states, key=lambda state: state.name)
    if not lost or is_reset(model):
        return
    count = f"{len(lost)} state{'s' * (len(lost) > 1)}"
    problem = f"keeps {count} from run to run, which a library does not: {', '.join(map(str, lost))}"
    begin = f"if every run is to begin with these values, as for a whole sequence at once, write\n{_line('states', RESET)}"
    inside = [repr(state.name) for state in lost if not state.named]
    if inside:
        cause = f"{', '.join(inside)} cannot be an input, since it lies inside a branch, loop or function"
        raise MaceError(place, problem, f"{cause}, so convert the model without it; or, {begin}")
    lines = "\n".join(_recipe(lost, model, ends))
    carry = "either let the application carry them from each run to the next, from these values on: write"
    raise MaceError(place, problem, f"{carry}\n{lines}\nor, {begin}")


def _recipe(lost: Sequence[State], model: Model, ends: Ends) -> list[str]:
    """The lines of a deployment file that make the states inputs and outputs beside those that there are."""
    shapes = {port.name: shape for port in model.inputs if (shape := stated_shape(port, ends.order)) is not None}
    names = [state.name for state in lost]
    inputs = [*(name for name in ends.inputs if name not in names), *names]
    outputs = [*(name for name in ends.outputs if not (name.endswith(NEXT) and name.removesuffix(NEXT) in names))]
    lines = [_line("input_tensors", inputs)]
    if shapes:
        shapes.update((state.name, state.start.shape) for state in lost)
        if all(name in shapes for name in inputs):
            lines.append(_line("input_shapes", [",".join(map(str, shapes[name])) for name in inputs]))
    return [*lines, _line("output_tensors", [*outputs, *(name + NEXT for name in names)])]


def _line(key: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"    {key}: {text}"
