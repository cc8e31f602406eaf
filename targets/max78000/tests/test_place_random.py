"""Random networks through the automatic placement: legal word by word, and on the simulator what the arithmetic says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import random_networks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placed_memory import faults

from mace_core.errors import MaceError
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.place.search import place_layers
from mace_target_max78002.device import MAX78002

EXAMPLES = 150
REFUSALS = {"weights", "data"}


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_simulator_equals_arithmetic(device: Chip, data: st.DataObject) -> None:
    def pick(of: Any) -> Any:
        return data.draw(st.sampled_from(of))

    layers, sample = random_networks.random_network(
        device, pick, np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    )
    try:
        placed = place_layers(layers, sample.shape, device, random_networks.random_options(layers, pick))
    except MaceError as refusal:
        assert set(map(kind, str(refusal).splitlines())) <= REFUSALS  # noqa: PT017  # what does not fit is told, nothing else is refused
        return
    assert random_networks.different(placed, sample, device) == []
    assert faults(placed, device) == []


def kind(fault: str) -> str:
    """What is told, without names and numbers."""
    return (
        "weights"
        if fault.startswith("weight memory: layer")
        else "data"
        if "bytes of a data memory" in fault
        else fault
    )
