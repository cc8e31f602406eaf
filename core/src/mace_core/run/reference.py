"""A graph computed by the ops' numpy references: slow, and the oracle for everything else."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.ir import Array, Graph
from mace_core.quantization import compute


def execute(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of the graph by name, the inputs given by name."""
    values: dict[str, Array] = {**graph.weights, **inputs}
    for node in graph.nodes:
        operands = [(graph.tensors[i], values[i]) if i else None for i in node.inputs]
        values.update(zip(node.outputs, compute(node.op, node.attrs, operands, graph.outputs_of(node)), strict=False))
    return values
