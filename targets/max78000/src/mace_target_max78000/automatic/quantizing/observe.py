"""What the tensors of a graph hold for typical inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, Graph
from mace_core.run.reference import execute

KEPT = 1 << 16
"""Numbers of each tensor that are kept to try storages on."""

SAMPLES = 8
"""Random inputs where none are given."""


@dataclass(frozen=True, eq=False)
class Seen:
    """A tensor over all samples.

    values: evenly spaced ones of all, float32.  mean, power: by channel, of the numbers and of their squares.
    least, most: of all.
    """

    values: Array
    mean: Array
    power: Array
    least: float
    most: float

    @property
    def variance(self) -> Array:
        """By channel."""
        return np.asarray(np.maximum(self.power - self.mean**2, 0))


def random_inputs(graph: Graph, limits: tuple[float, float], count: int = SAMPLES) -> list[dict[str, Array]]:
    """Inputs for want of real ones: uniform between two limits."""
    random = np.random.default_rng(0)
    return [
        {n: random.uniform(*limits, graph.tensors[n].shape).astype(np.float32) for n in graph.inputs}
        for _ in range(count)
    ]


def observe(graph: Graph, samples: Sequence[Mapping[str, Array]]) -> dict[str, Seen]:
    """Every real tensor that is computed or given, over some inputs."""
    computed = (*graph.inputs, *(o for node in graph.nodes for o in node.outputs))
    names = [n for n in computed if graph.tensors[n].dtype.is_float]
    gathered: dict[str, list[Array]] = {n: [] for n in names}
    moments: dict[str, list[tuple[Array, Array]]] = {n: [] for n in names}
    limits: dict[str, list[tuple[float, float]]] = {n: [] for n in names}
    for sample in samples:
        made = execute(graph, sample)
        for name in names:
            value = made[name]
            flat = value.reshape(-1, value.shape[-1] if value.ndim else 1).astype(np.float64)
            moments[name].append((flat.mean(axis=0), (flat**2).mean(axis=0)))
            limits[name].append((float(flat.min()), float(flat.max())))
            step = max(1, value.size * len(samples) // KEPT)
            gathered[name].append(value.reshape(-1)[::step].astype(np.float32))
    return {n: _seen(gathered[n], moments[n], limits[n]) for n in names}


def _seen(
    values: Sequence[Array], moments: Sequence[tuple[Array, Array]], limits: Sequence[tuple[float, float]]
) -> Seen:
    mean, power = (np.mean(part, axis=0) for part in zip(*moments, strict=True))
    least, most = zip(*limits, strict=True)
    return Seen(np.concatenate(values), mean, power, min(least), max(most))
