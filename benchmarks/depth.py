"""Measure how the time of a build grows with the layers of a network: `uv run python benchmarks/depth.py [BLOCKS ...]`.

Residual networks of so many blocks of two convolutions of 16 channels at 16 x 16 go through all of a build that
MACE itself computes, from the imported graph to the C sources. Prints processor seconds of each stage, the least
of 3 rounds, and in brackets how many times more than linear it grew from the row before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

from mace_core.build_manifest import library_levels
from mace_core.compilation import Compilation, compile_graph
from mace_core.deployment import Model
from mace_core.emit import code
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.part import Stream
from mace_core.registry import Registry
from mace_core.transforms import run_phases

BLOCKS = (25, 100, 400)
CHANNELS, SIZE, ROUNDS = 16, 16, 3
CONVOLUTION = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}


@dataclass(frozen=True)
class Stages:
    """Processor seconds of the stages of a build."""

    transform: float
    compile: float
    write: float


def residual_network(blocks: int) -> Graph:
    """Return a network of so many residual blocks with random weights."""
    random = np.random.default_rng(7)
    builder = Builder("depth")
    x = builder.input("x", DType.F32, (1, SIZE, SIZE, CHANNELS))
    for _ in range(blocks):
        y = x
        for _ in range(2):
            filters = random.standard_normal((CHANNELS, 3, 3, CHANNELS)).astype(np.float32) / 12
            y = builder.one("Conv", [y, builder.weight("w", filters)], CONVOLUTION)
            y = builder.one("Relu", [y])
        x = builder.one("Add", [x, y])
    return builder.finish([x])


def measure(blocks: int, registry: Registry) -> Stages:
    """Take a network of so many blocks through a build for this machine."""
    compilation = Compilation(registry.select("host")[0], registry)
    levels = library_levels(registry.targets_for(compilation.choice, ()), compilation.choice.abi)
    graph = residual_network(blocks)
    times = [time.process_time()]
    transformed = run_phases(graph, registry)
    times.append(time.process_time())
    compiled = compile_graph(Model("depth", ()), transformed, compilation)
    times.append(time.process_time())
    for content in code.library("depth", [compiled.plan], levels).files.values():
        if isinstance(content, Stream):
            for _ in content.make():
                pass
    times.append(time.process_time())
    return Stages(*(after - before for before, after in pairwise(times)))


def show(counts: Sequence[int], rows: Sequence[Stages]) -> str:
    """Return the table of these counts of blocks."""
    names = [stage.name for stage in fields(Stages)]
    lines = ["| convolutions | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for index, (blocks, stages) in enumerate(zip(counts, rows, strict=True)):
        cells = []
        for name in names:
            seconds = getattr(stages, name)
            growth = ""
            if index:
                ratio = seconds / getattr(rows[index - 1], name)
                growth = f" ({ratio / (blocks / counts[index - 1]):.2f})"
            cells.append(f"{seconds:.3f}{growth}")
        lines.append(f"| {2 * blocks} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    counts = [*map(int, sys.argv[1:])] or BLOCKS
    registry = Registry.load()
    measure(1, registry)  # modules and templates that are loaded once
    rows = []
    for blocks in counts:
        rounds = [measure(blocks, registry) for _ in range(ROUNDS)]
        least = [min(getattr(row, stage.name) for row in rounds) for stage in fields(Stages)]
        rows.append(Stages(*least))
    sys.stdout.write(f"{show(counts, rows)}\n")


if __name__ == "__main__":
    main()
