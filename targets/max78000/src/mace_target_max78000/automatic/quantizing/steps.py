"""Which power of two each tensor counts in, tensors that the hardware keeps in equal steps together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from mace_core.ir import Array, Graph
from mace_target_max78000.automatic.quantizing.observe import Seen

ALIKE = ("Add", "Sub", "Relu", "Clip", "AveragePool")
"""Ops besides those that only move whose result counts in the steps of their operands."""

EIGHTHS = 8
"""Steps of any size are tried at so many places between two powers of two."""

FINER = 4
"""Powers of two below the one that holds every number seen that are tried."""


def groups(graph: Graph, names: Iterable[str]) -> list[list[str]]:
    """The tensors of these names, those together that must count in equal steps."""
    leader = {name: name for name in names}

    def first(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for node in graph.nodes:
        if not (node.op.moves or node.op.name in ALIKE):
            continue
        members = [n for n in (*node.inputs, *node.outputs) if n in leader]
        for other in members[1:]:
            leader[first(other)] = first(members[0])
    found: dict[str, list[str]] = {}
    for name in leader:
        found.setdefault(first(name), []).append(name)
    return list(found.values())


def powers(graph: Graph, seen: Mapping[str, Seen], names: Iterable[str]) -> dict[str, int]:
    """For each tensor the power of two of its steps that loses least of what was seen."""
    found: dict[str, int] = {}
    for group in groups(graph, names):
        found.update(dict.fromkeys(group, _best([seen[n] for n in group])))
    return found


def _best(group: list[Seen]) -> int:
    most = max(max(s.most, -s.least * 127 / 128) for s in group)
    if most <= 0:
        return -7
    holding = math.ceil(math.log2(most / 127))
    return min(
        range(holding, holding - FINER, -1), key=lambda power: sum(_loss(s.values, 2.0**power) for s in group)
    )


def best_step(values: Array) -> float:
    """The step, of any size, that loses least of some numbers."""
    most = max(float(np.max(values)), -float(np.min(values)), 1e-30)
    tried = [most / 127 * 2.0 ** (-i / EIGHTHS) for i in range(FINER * EIGHTHS)]
    return float(min(tried, key=lambda step: _loss(values, step)))


def _loss(values: Array, step: float) -> float:
    """What rounding to steps and saturation lose of numbers, as a share of what they carry."""
    exact = values.astype(np.float64)
    error = exact - np.clip(np.rint(exact / step), -128, 127) * step
    return float(np.mean(error**2)) / max(float(np.var(exact)), 1e-30)
