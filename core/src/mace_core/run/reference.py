"""A graph computed by the ops' numpy references: slow, and the oracle for everything else."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.ir import Array, Graph
from mace_core.quantization import compute


def execute(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of the graph by name, the inputs given by name.

    States that are not given have their start values.
    """
    starts = {state.input: state.start for state in graph.states}
    values: dict[str, Array] = {**graph.weights, **starts, **inputs}
    for node in graph.nodes:
        operands = [(graph.tensors[i], values[i]) if i else None for i in node.inputs]
        values.update(
            zip(node.outputs, compute(node.op, node.attrs, operands, graph.outputs_of(node)), strict=False)
        )
    return values


class ReferenceSession:
    """Computes a graph run by run as a session does: its states last from one run to the next."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._states: dict[str, Array] = {}

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return every tensor of the graph by name, and keep what its states are after the run."""
        values = execute(self.graph, {**inputs, **self._states})
        self._states = {state.input: values[state.output] for state in self.graph.states}
        return values

    def reset(self) -> None:
        """Give every state its start value."""
        self._states = {}
