"""Single bits of programs turned over: the simulator must find what the changed network computes, and refuse what no hardware can do."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import mutation
import numpy as np
import pytest

from mace_core.testing.requirements import require

SEED = 20260
WEIGHTS, REGISTERS = 5, 6
"""Flips of each network."""
LARGE = 1 << 16
"""Weights of networks that are left to the benchmark."""
LEAST_CAUGHT = 0.75


@cache
def small() -> tuple[Any, ...]:
    """The unit networks on both parts."""
    sized = (
        (s, sum(layer.weights.values.size for layer in s.network.layers if layer.weights))
        for s in mutation.subjects()
    )
    return tuple(s for s, size in sized if size < LARGE)


@pytest.fixture(autouse=True)
def networks() -> None:
    require(
        None
        if small()
        else "the networks are not beside the checkout, and MACE_MODELS names no folder with them"
    )


@pytest.mark.slow
@pytest.mark.exhaustive
def test_weights(record_testsuite_property: Callable[[str, object], None]) -> None:
    random = np.random.default_rng(SEED)
    flips = [flip for subject in small() for flip in mutation.weight_flips(subject, WEIGHTS, random)]
    # those that the arithmetic of the changed network says change the answer, and only those
    assert [f.what for f in flips if f.must != (f.outcome == mutation.ANSWER)] == []
    assert len(flips) >= 500
    record_testsuite_property("weight flips", mutation.table(flips))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_registers(record_testsuite_property: Callable[[str, object], None]) -> None:
    random = np.random.default_rng(SEED)
    flips = [flip for subject in small() for flip in mutation.register_flips(subject, REGISTERS, random)]
    caught = [f for f in flips if f.outcome in mutation.CAUGHT]
    assert len(flips) >= 500
    assert len(caught) >= LEAST_CAUGHT * len(flips), mutation.table(flips)
    record_testsuite_property("register flips", mutation.table(flips))
    assert [
        f.what for f in flips if f not in caught and f.weighted and f.register in mutation.ALWAYS_CAUGHT
    ] == []


@pytest.mark.slow
@pytest.mark.exhaustive
def test_shifts_and_activations() -> None:
    random = np.random.default_rng(SEED)
    flips = [
        f for subject in small() for f in mutation.register_flips(subject, 2, random, mutation.ARITHMETIC)
    ]
    answered = [f for f in flips if f.must is not None]
    assert [f.what for f in answered if f.must != (f.outcome == mutation.ANSWER)] == []
    assert len(answered) >= 50
