"""A model in its framework, with the inputs and outputs of the application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mace_core.api import Frontend, Reference
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.io_spec import entry_graph, exit_graph
from mace_core.ir import Array, Graph, State
from mace_core.pipeline import read
from mace_core.registry import Registry
from mace_core.run.framework_process import FrameworkProcesses, ReferenceSource
from mace_core.run.reference import execute
from mace_core.states import assign_states, is_reset, paired_states


@dataclass(frozen=True)
class Framework:
    """A model's framework behind what the deployment file states: order of axes, types, names, preparation.

    graph: the graph as the framework has it.  entry, exit: the graphs before and after it for the
    application.
    source: what gives references of the framework.
    inside: the states that the model file keeps by itself; its framework is not given them, unless the
    deployment file names them.
    """

    frontend: Frontend
    model: Model
    graph: Graph
    entry: Graph
    exit: Graph
    source: ReferenceSource
    inside: tuple[State, ...] = ()

    @classmethod
    def of(cls, model: Model, registry: Registry, processes: FrameworkProcesses | None = None) -> Framework:
        """The framework of a model, not yet loaded; MaceError for a model that cannot be read.

        processes: those that compute for several models; None to start one for this model.
        """
        frontend = registry.frontend(model)
        model_graph = read(model, registry)
        graph = assign_states(model_graph, model)
        pairs = paired_states(model)
        inside = tuple(state for state in model_graph.states if state.input not in pairs)
        entry, exit_ = entry_graph(graph, model, frontend.order), exit_graph(graph, model, frontend.order)
        source = (processes or FrameworkProcesses()).source(frontend)
        return cls(frontend, model, graph, entry, exit_, source, inside)

    @property
    def paired(self) -> tuple[State, ...]:
        """The states that the deployment file pairs, which the framework is given and gives back."""
        inside = {state.input for state in self.inside}
        return tuple(state for state in self.graph.states if state.input not in inside)

    def model_with_states(self) -> Model:
        """Return the model with the next values of states among its outputs, if the application gets them."""
        if not {state.output for state in self.inside}.intersection(self.graph.port_outputs):
            return self.model
        return replace(self.model, outputs=tuple(Port(name) for name in self.graph.port_outputs))

    def convert_inputs(self, sample: Mapping[str, Array]) -> dict[str, Array]:
        """Convert one sample of the application to the framework's inputs, by the framework's names.

        Paired states begin.
        """
        values = execute(self.entry, sample)
        hidden = {state.input for state in self.inside} - {port.name for port in self.model.inputs}
        ports = zip(self.graph.port_inputs, self.entry.outputs, strict=True)
        # numpy gives one of several samples without axes as a number; frameworks take arrays alone.
        inputs = {name: np.asarray(values[entry]) for name, entry in ports if name not in hidden}
        return inputs | {state.input: state.start for state in self.paired}

    def run(
        self, reference: Reference, sample: Mapping[str, Array], *, is_partial: bool = False
    ) -> dict[str, Array]:
        """Run the framework on one sample of the application and return outputs by public name.

        is_partial: leave out what the framework does not give, instead of a MaceError.
        """
        return self.convert_outputs(reference(self.convert_inputs(sample)), is_partial=is_partial)

    def convert_outputs(self, computed: Mapping[str, Array], *, is_partial: bool = False) -> dict[str, Array]:
        """Convert the framework's outputs to those of the application, by public name.

        is_partial as for `run`.
        """
        absent = [name for name in self.graph.port_outputs if name not in computed]
        if absent and not is_partial:
            place = f"model {self.model.name!r}"
            raise MaceError(
                place,
                f"its framework does not give {', '.join(absent)}",
                "name files under validation_outputs_data",
            )
        inputs = {}
        for name, output in zip(self.exit.inputs, self.graph.port_outputs, strict=True):
            tensor = self.exit.tensors[name]
            array = computed.get(output, np.zeros(tensor.shape, tensor.dtype.numpy))
            if array.size != tensor.elements:
                shapes = f"{list(array.shape)}, not {list(tensor.shape)}"
                problem = f"its framework gives {output} the shape {shapes}: it depends on the input"
                remedy = "name files under validation_outputs_data, or other outputs"
                raise MaceError(f"model {self.model.name!r}", problem, remedy)
            inputs[name] = array.reshape(tensor.shape).astype(tensor.dtype.numpy, copy=False)
        values = execute(self.exit, inputs)
        public = {p.name: p.alias or p.name for p in self.model.outputs}
        pairs = zip(self.graph.port_outputs, self.exit.outputs, strict=True)
        return {public.get(output, output): values[name] for output, name in pairs if output in computed}

    def reference(self) -> Reference:
        """The framework itself; MaceError with the line that installs it where it is missing."""
        run = self.source.reference(self.model.files, self.model)
        if run is None:
            files = "name files under validation_inputs_data and validation_outputs_data"
            remedy = f"{installation(self.frontend)}, or {files}" if self.frontend.needs else files
            problem = f"there are no stored outputs, and {absence(self.frontend)}"
            raise MaceError(f"model {self.model.name!r}", problem, remedy)
        return run

    def inner(self, names: Sequence[str]) -> Reference | None:
        """The framework with inner tensors as its outputs; None if it is not installed."""
        model = replace(self.model, outputs=tuple(Port(name) for name in names))
        return self.source.reference(self.model.files, model)


class FrameworkSession:
    """Runs a model in its framework as a session of the library does: states last from run to run."""

    def __init__(self, framework: Framework) -> None:
        self.framework = framework
        self._paired: dict[str, Array] = {}
        self._recurrent: Reference | None = None
        self._plain: Reference | None = None
        self.reset()

    @property
    def runtime(self) -> str:
        """The name and version of what computes."""
        return self._reference.runtime

    def reset(self) -> None:
        """Give every state its start value.

        MaceError with the line that installs the framework where it is missing.
        """
        framework, model = self.framework, self.framework.model
        self._paired = {}
        if framework.inside and not is_reset(model):
            self._recurrent = framework.source.recurrent(model.files, framework.model_with_states())
        if self._recurrent is None and self._plain is None:
            self._plain = framework.reference()

    def run(self, sample: Mapping[str, Array]) -> dict[str, Array]:
        """Return what the application gets for one sample, by public name.

        Next values of states where the framework shows them.
        """
        computed = self._reference({**self.framework.convert_inputs(sample), **self._paired})
        self._paired = {state.input: computed[state.output] for state in self.framework.paired}
        return self.framework.convert_outputs(computed, is_partial=self._recurrent is not None)

    @property
    def _reference(self) -> Reference:
        reference = self._recurrent or self._plain
        assert reference is not None
        return reference


def installation(frontend: Frontend) -> str:
    """Return the line that installs a frontend's framework."""
    return f"pip install '{frontend.needs}'"


def absence(frontend: Frontend) -> str:
    """Say why a frontend gives no reference: its framework is missing, or it knows of none."""
    if frontend.needs:
        return f"the framework behind {frontend.name!r} is not installed"
    return f"the frontend {frontend.name!r} runs no framework"
