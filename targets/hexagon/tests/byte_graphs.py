"""Inputs for graphs of bytes, and the kernels that compute them on HVX."""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array, Graph
from mace_target_hexagon.isa import HVX
from mace_target_hexagon.processor import Hvx


def draw(graph: Graph) -> dict[str, Array]:
    """Return random inputs over the whole range of their types, among them both ends."""
    rng = np.random.default_rng(3)
    inputs = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        limits = np.iinfo(tensor.dtype.numpy)
        values = rng.integers(limits.min, limits.max + 1, tensor.shape)
        ends = rng.choice([limits.min, limits.max], tensor.shape)
        inputs[name] = np.where(rng.random(tensor.shape) < 0.2, ends, values).astype(tensor.dtype.numpy)
    return inputs


def name_templates(graph: Graph) -> set[str]:
    """Return the templates of the kernels that are called at the level with vectors."""
    calls = Hvx().lower(graph, "hexagon-v66").restrict([str(HVX.name)]).calls
    return {call.kernel.template.name for call in calls}
