"""What tests of quantized tensors compare: sessions of the processor, and inputs of the whole range of a type."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mace_core.ir import Array, Graph
from mace_core.levels import with_levels
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.testing.compiled import generate_library, load_library, random_inputs


def load_on_cpu(graph: Graph, folder: Path) -> dict[str, native.LoadedModel]:
    cpu = Registry.load().targets["cpu"]
    cpu = with_levels(cpu, cpu.levels("host")[-1:])
    return load_library(generate_library([cpu], [graph]), folder)


def full_range(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Return random inputs, integers of the whole range of their type where they stand for numbers."""
    rng = np.random.default_rng(seed)
    inputs = random_inputs(graph, seed)
    for name in graph.port_inputs:
        tensor = graph.tensors[name]
        if tensor.quant:
            limits = np.iinfo(tensor.dtype.numpy)
            inputs[name] = rng.integers(limits.min, limits.max + 1, tensor.shape).astype(tensor.dtype.numpy)
    return inputs
