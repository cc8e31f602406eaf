"""Real models of int8 and uint8, whole on the DSP, have the bits of the CPU's library."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import assert_equal
from hexagon_models import ANOMALY, LARGER, RealModel


@pytest.mark.exhaustive
def test_the_smallest_model_has_the_bits_of_the_cpu(tmp_path: Path) -> None:
    graph = ANOMALY.read_graph(tmp_path)
    # Little optimization, because the compiler takes most of the time; with none, zig would build its C library again.
    assert_equal(graph, ANOMALY.draw_inputs(graph), tmp_path, flags=("-O1", "-s"))


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("model", [ANOMALY, *LARGER], ids=lambda model: model.name)
def test_whole_models_have_the_bits_of_the_cpu(model: RealModel, tmp_path: Path) -> None:
    graph = model.read_graph(tmp_path)
    assert_equal(graph, model.draw_inputs(graph), tmp_path)
