"""Networks that need planes, FIFOs, streams or copies, and where their layers are placed.

`placed_memory` tells of each that no word is lost; `place_texts.txt` states which of the right places are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from placed_memory import faults
from test_place import HALF, combined, conv
from test_random_projects import DEVICES, describe_place

from mace_core.errors import MaceError
from mace_frontend_ai8x.network import INPUT, Layer, Pool
from mace_target_max78000.options import Options
from mace_target_max78000.place.search import place_layers

pytestmark = pytest.mark.slow  # six seconds together

QUARTER = Pool(average=False, size=(4, 4), stride=4)
NETWORKS: dict[str, Sequence[Layer]] = {
    "planes": [conv("a", INPUT, 1, (91, 91), 4, pool=HALF)],
    "three planes": [
        conv("a", INPUT, 3, (100, 100), 4, pool=HALF),
        conv("b", 0, 4, (50, 50), 8),
    ],
    "streams of two layers": [
        conv("a", INPUT, 3, (200, 200), 4),
        conv("b", 0, 4, (200, 200), 8, pool=QUARTER),
        conv("c", 1, 8, (50, 50), 16, pool=HALF),
    ],
    "streams into many channels": [
        conv("a", INPUT, 3, (200, 200), 4, pool=HALF),
        conv("b", 0, 4, (100, 100), 8, pool=HALF),
        conv("c", 1, 8, (50, 50), 70, pool=HALF),
    ],
    "three FIFOs": [
        conv("a", INPUT, 12, (100, 100), 8),
        conv("b", 0, 8, (100, 100), 4, pool=QUARTER),
    ],
    "sixteen planes": [conv("a", INPUT, 16, (100, 100), 4, pool=QUARTER)],
    "larger than the second generation's memory": [
        conv("a", INPUT, 3, (300, 300), 4, pool=HALF),
        conv("b", 0, 4, (150, 150), 8, pool=QUARTER),
        conv("c", 1, 8, (37, 37), 8),
    ],
    "a sum in one pass": [
        conv("a", INPUT, 3, (32, 32), 60),
        conv("b", 0, 60, (32, 32), 60),
        combined("s", (0, 1), 60, (32, 32)),
        conv("c", 2, 60, (32, 32), 20, pool=HALF),
    ],
    "other processors for each layer": [
        conv("a", INPUT, 3, (60, 60), 20),
        conv("b", 0, 20, (60, 60), 40),
        conv("c", 1, 40, (60, 60), 12),
    ],
    "a sum with the input": [
        conv("a", INPUT, 17, (16, 16), 40),
        conv("b", 0, 40, (16, 16), 17),
        combined("s", (INPUT, 1), 17, (16, 16)),
    ],
}


def describe_places(name: str, part: str, way: str) -> list[str]:
    """A line for each layer, and one for the memory; or the refusal."""
    *others, last = NETWORKS[name]
    layers, device = [*others, replace(last, output=True)], DEVICES[part]
    try:
        placed = place_layers(
            layers, (layers[0].channels, *layers[0].dim), device, Options(fifo=way == "fifo")
        )
    except MaceError as refusal:
        return str(refusal).splitlines()
    assert faults(placed, device) == []
    lines = list(map(describe_place, placed.layers, placed.places))
    options = [option for option in ("fifo", "overlap_data") if getattr(placed.options, option)]
    return [*lines, " ".join(["touched", str(placed.touched), "highest", str(placed.highest), *options])]


def read_table() -> dict[tuple[str, str, str], list[str]]:
    cases: dict[tuple[str, str, str], list[str]] = {}
    for line in (Path(__file__).parent / "place_texts.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("> "):
            name, part, way = line[2:].split(" | ")
            cases[name, part, way] = lines = []
        elif not line.startswith("#"):
            lines.append(line)
    return cases


TABLE = read_table()


def test_every_network_is_in_the_table() -> None:
    assert {name for name, _, _ in TABLE} == set(NETWORKS)


@pytest.mark.parametrize("case", TABLE, ids=" ".join)
def test_texts(case: tuple[str, str, str]) -> None:
    assert describe_places(*case) == TABLE[case]
