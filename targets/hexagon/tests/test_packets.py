"""Packets of a program for the DSP, by its readings of the clock."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from emulated import ABI, FLAGS, require_compiler
from hexagon_models import ANOMALY

from mace_core.errors import MaceError
from mace_core.run.compile import program
from mace_core.run.operators import multiply_adds
from mace_core.testing.compiled import generate_library
from mace_target_hexagon.packets import PacketCounter
from mace_target_hexagon.processor import Hvx


def test_only_qemu_counts() -> None:
    with pytest.raises(MaceError, match="counts no packets"):
        PacketCounter().count(["hexagon-sim", "mace_benchmark"])


def test_a_processor_of_libraries_for_the_dsp_is_counted() -> None:
    assert isinstance(Hvx().counter(), PacketCounter)


@pytest.mark.slow
@pytest.mark.emulator
def test_layers_add_up_to_a_run(tmp_path: Path) -> None:
    graph = ANOMALY.read_graph(tmp_path)
    path = program(
        "mace_benchmark", generate_library([Hvx()], [graph], ABI), require_compiler(), tmp_path, FLAGS
    )
    words = ["qemu-hexagon", str(path), "--rounds=1", "--warmup=0", "--layers=1"]
    counted = PacketCounter().count(words)
    layers = json.loads(counted.printed)["layers"]
    assert len(counted.readings) == 5 + 2 * len(layers)
    steps = [
        [a - b for a, b in zip(after, before, strict=True)] for before, after in pairwise(counted.readings)
    ]
    run, layer_steps = steps[2], steps[4::2]
    packets, vectors, products, accesses = (sum(column) for column in zip(*layer_steps, strict=True))
    # The engine observes layers with packets of its own, none of which has vectors.
    assert abs(packets - run[0]) < 0.05 * run[0]
    assert [vectors, products, accesses] == run[1:]
    # A product of two registers is 128 multiply-adds; the models' are matrices of whole registers but one.
    macs = sum(multiply_adds(node, graph) for node in graph.nodes)
    assert macs / 128 <= products < 1.1 * macs / 128
