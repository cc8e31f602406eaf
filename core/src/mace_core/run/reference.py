"""A graph computed by the ops' numpy references: slow, and the oracle for everything else."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.ir import Array, Graph


def execute(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of the graph by name, the inputs given by name."""
    values: dict[str, Array] = {**graph.weights, **inputs}
    for node in graph.nodes:
        results = node.op.compute([values[i] if i else None for i in node.inputs], node.attrs)
        for name, result in zip(node.outputs, results, strict=False):
            tensor = graph.tensors[name]
            values[name] = result.astype(tensor.dtype.numpy, copy=False).reshape(tensor.shape)
    return values
