"""A model in its own framework, given and giving what the application gives and gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mace_core.api import Frontend, Reference
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_core.pipeline import read
from mace_core.ports import entry_graph, exit_graph
from mace_core.registry import Registry
from mace_core.run.reference import execute


@dataclass(frozen=True)
class Framework:
    """A model's framework behind what the deployment file states: order of axes, types, names, preparation.

    own: the graph as the framework has it.  entry, exit: what stands before and behind it for the application.
    """

    frontend: Frontend
    model: Model
    own: Graph
    entry: Graph
    exit: Graph

    @classmethod
    def of(cls, model: Model, registry: Registry) -> Framework:
        """The framework of a model, not yet loaded; MaceError for a model that cannot be read."""
        frontend = registry.frontend(model)
        own = read(model, registry)
        return cls(frontend, model, own, entry_graph(own, model, frontend.order), exit_graph(own, model, frontend.order))

    def given(self, sample: Mapping[str, Array]) -> dict[str, Array]:
        """What the framework gets for one sample of the application, by the framework's names."""
        values = execute(self.entry, sample)
        return {own: values[name] for own, name in zip(self.own.inputs, self.entry.outputs, strict=True)}

    def run(self, reference: Reference, sample: Mapping[str, Array], *, is_partial: bool = False) -> dict[str, Array]:
        """What the application gets for one sample, by public name, when the framework computes.

        is_partial: leave out what the framework does not give, instead of a MaceError.
        """
        found = reference(self.given(sample))
        absent = [name for name in self.own.outputs if name not in found]
        if absent and not is_partial:
            place = f"model {self.model.name!r}"
            raise MaceError(place, f"its framework does not give {', '.join(absent)}", "name files under validation_outputs_data")
        inputs = {}
        for name, own in zip(self.exit.inputs, self.own.outputs, strict=True):
            tensor = self.exit.tensors[name]
            array = found.get(own, np.zeros(tensor.shape, tensor.dtype.numpy))
            inputs[name] = array.reshape(tensor.shape).astype(tensor.dtype.numpy, copy=False)
        values = execute(self.exit, inputs)
        public = {p.name: p.alias or p.name for p in self.model.outputs}
        pairs = zip(self.own.outputs, self.exit.outputs, strict=True)
        return {public.get(own, own): values[name] for own, name in pairs if own in found}

    def reference(self) -> Reference:
        """The framework itself; MaceError with the line that installs it where it is missing."""
        run = self.frontend.reference(self.model.files, self.model)
        if run is None:
            raise MaceError(
                f"model {self.model.name!r}",
                f"no stored outputs, and the framework behind {self.frontend.name!r} is not installed",
                f"{installation(self.frontend)}, or name files under validation_inputs_data and validation_outputs_data",
            )
        return run

    def inner(self, names: Sequence[str]) -> Reference | None:
        """The framework with inner tensors as its outputs; None if it is not installed."""
        whole = replace(self.model, outputs=tuple(Port(n) for n in names))
        return self.frontend.reference(self.model.files, whole)


def installation(frontend: Frontend) -> str:
    """The line that installs a frontend's framework."""
    return f"pip install '{frontend.needs}'" if frontend.needs else "install it"
