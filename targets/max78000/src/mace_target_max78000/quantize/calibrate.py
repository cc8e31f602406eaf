"""Observes the tensors of a graph on samples, and chooses the power of two that each one counts in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, Graph
from mace_core.run.reference import execute

MAX_KEPT = 1 << 16
"""Numbers of each tensor that are kept to try storages on."""

RANDOM_SAMPLES = 8
"""Random inputs where none are given."""


@dataclass(frozen=True, eq=False)
class TensorStatistics:
    """A tensor over all samples.

    values: evenly spaced ones of all, float32.  mean, power: by channel, of the numbers and of their squares.
    minimum, maximum: of all.
    """

    values: Array
    mean: Array
    power: Array
    minimum: float
    maximum: float

    @property
    def variance(self) -> Array:
        """By channel."""
        return np.asarray(np.maximum(self.power - self.mean**2, 0))


def random_inputs(
    graph: Graph, limits: tuple[float, float], count: int = RANDOM_SAMPLES
) -> list[dict[str, Array]]:
    """Make inputs where no real ones are given: uniform between two limits."""
    # A fixed seed: the same graph always gets the same network.
    random = np.random.default_rng(0)
    return [
        {n: random.uniform(*limits, graph.tensors[n].shape).astype(np.float32) for n in graph.inputs}
        for _ in range(count)
    ]


def observe(graph: Graph, samples: Sequence[Mapping[str, Array]]) -> dict[str, TensorStatistics]:
    """Return the statistics of every real tensor that is computed or given, over some inputs."""
    computed = [*graph.inputs]
    for node in graph.nodes:
        computed += node.outputs
    names = [n for n in computed if graph.tensors[n].dtype.is_float]
    gathered: dict[str, list[Array]] = {n: [] for n in names}
    moments: dict[str, list[tuple[Array, Array]]] = {n: [] for n in names}
    limits: dict[str, list[tuple[float, float]]] = {n: [] for n in names}
    for sample in samples:
        values = execute(graph, sample)
        for name in names:
            value = values[name]
            flat = value.reshape(-1, value.shape[-1] if value.ndim else 1).astype(np.float64)
            moments[name].append((flat.mean(axis=0), (flat**2).mean(axis=0)))
            limits[name].append((float(flat.min()), float(flat.max())))
            # Evenly spaced values of all samples: as good to try steps on, and bounded in memory.
            step = max(1, value.size * len(samples) // MAX_KEPT)
            gathered[name].append(value.reshape(-1)[::step].astype(np.float32))
    return {n: _summarize(gathered[n], moments[n], limits[n]) for n in names}


def _summarize(
    values: Sequence[Array], moments: Sequence[tuple[Array, Array]], limits: Sequence[tuple[float, float]]
) -> TensorStatistics:
    mean, power = (np.mean(part, axis=0) for part in zip(*moments, strict=True))
    minima, maxima = zip(*limits, strict=True)
    return TensorStatistics(np.concatenate(values), mean, power, min(minima), max(maxima))


SAME_STEP_OPS = ("Add", "Sub", "Relu", "Clip", "AveragePool")
"""Ops besides those that only move whose result counts in the steps of their operands."""

STEPS_PER_POWER = 8
"""Steps of any size are tried at so many places between two powers of two."""

FINER_POWERS = 4
"""Powers of two below the one that holds every number seen that are tried."""


def group_same_steps(graph: Graph, names: Iterable[str]) -> list[list[str]]:
    """Group the tensors of these names by those that must count in equal steps."""
    leader = {name: name for name in names}

    def first(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for node in graph.nodes:
        # The hardware adds, pools and moves bytes as they are, so operands and result count alike.
        if not (node.op.moves or node.op.name in SAME_STEP_OPS):
            continue
        members = [n for n in (*node.inputs, *node.outputs) if n in leader]
        for other in members[1:]:
            leader[first(other)] = first(members[0])
    groups_by_leader: dict[str, list[str]] = {}
    for name in leader:
        groups_by_leader.setdefault(first(name), []).append(name)
    return list(groups_by_leader.values())


def choose_powers(graph: Graph, seen: Mapping[str, TensorStatistics], names: Iterable[str]) -> dict[str, int]:
    """Choose for each tensor the power of two of its steps that loses least of what was observed."""
    chosen: dict[str, int] = {}
    for group in group_same_steps(graph, names):
        chosen.update(dict.fromkeys(group, _choose_power([seen[n] for n in group])))
    return chosen


def _choose_power(group: list[TensorStatistics]) -> int:
    # Bytes reach one step further down than up.
    peak = max(max(s.maximum, -s.minimum * 127 / 128) for s in group)
    if peak <= 0:
        return -7
    # The finest power that holds every number; finer ones clip outliers, which may lose less in all.
    holding = math.ceil(math.log2(peak / 127))
    return min(
        range(holding, holding - FINER_POWERS, -1),
        key=lambda power: sum(_measure_loss(s.values, 2.0**power) for s in group),
    )


def find_best_step(values: Array) -> float:
    """Return the step, of any size, that loses least of some numbers."""
    peak = max(float(np.max(values)), -float(np.min(values)), 1e-30)
    tried = [peak / 127 * 2.0 ** (-i / STEPS_PER_POWER) for i in range(FINER_POWERS * STEPS_PER_POWER)]
    return float(min(tried, key=lambda step: _measure_loss(values, step)))


def _measure_loss(values: Array, step: float) -> float:
    """Return what rounding to steps and saturation lose of numbers, as a share of their variance."""
    exact = values.astype(np.float64)
    error = exact - np.clip(np.rint(exact / step), -128, 127) * step
    return float(np.mean(error**2)) / max(float(np.var(exact)), 1e-30)
