"""Random networks placed and made to projects: the places of each layer, and digests of the files.

That they are right is checked without the table: `placed_memory` tells that no word is lost, and a project is made
only of a program that computes in the simulator what its layers say. Which places are chosen among the right ones,
and how the program is written, is what `random_projects.txt` states. After a change that is meant to alter that,
`PYTHONPATH=targets/max78000/tests:targets/max78000/benchmarks uv run python -m test_random_projects` writes it anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import random_networks
from placed_memory import faults

from mace_core.api import Content
from mace_core.errors import MaceError
from mace_frontend_ai8x.network import Layer, LayerPlacement, Network
from mace_target_max78000.device import MAX78000
from mace_target_max78000.options import Options
from mace_target_max78000.place.search import PlacedNetwork, place_layers
from mace_target_max78000.project import make_project
from mace_target_max78002.device import MAX78002

pytestmark = pytest.mark.slow

DEVICES = {device.name: device for device in (MAX78000, MAX78002)}
TABLE = Path(__file__).parent / "random_projects.txt"
COUNT = 22
"""Networks of each part."""

VARIANTS = (
    Options(),
    Options(table_driven=True),
    Options(compact_weights=True),
    Options(softmax=True, timer=0),
    Options(riscv=True),
    Options(unload=False),
    Options(known_answer=False, boost=(2, 5)),
    Options(mexpress=False, verify_weights=True),
    Options(wfi=False, one_shot=True),
    Options(mlator=True, deepsleep=True),
    Options(table_driven=True, zero_unused=True, riscv=True),
)
"""What the projects are asked for in turn."""

FILES = ("cnn.c", "weights.h", "sampledata.h", "sampleoutput.h", "main.c", "report.json", "memory.svg")
"""Those that depend on the network; the others are in `test_project_files.py`."""


def describe_place(layer: Layer, place: LayerPlacement) -> str:
    """A layer in one line: what it computes, and where it reads and writes."""
    rows, columns = layer.dim
    inputs = ",".join(map(str, layer.inputs))
    words = [f"{layer.name}: {layer.operation.value} of {layer.channels}x{rows}x{columns} from {inputs}"]
    words += [
        f"in {place.processors:#x}@{place.in_offset:#x} out {place.output_processors:#x}@{place.out_offset:#x}"
    ]
    words += [f"gaps {place.read_gap} {place.write_gap}"] if place.read_gap or place.write_gap else []
    plain = LayerPlacement(place.processors, place.output_processors)
    others = (
        "streaming",
        "chw",
        "bias_groups",
        "next",
        "in_crop",
        "weight_source",
        "read_ahead",
        "calcx4",
        "tcalc",
    )
    words += [
        f"{name} {getattr(place, name)}" for name in others if getattr(place, name) != getattr(plain, name)
    ]
    return " ".join(words)


def digest(content: Content) -> str:
    data = content.encode() if isinstance(content, str) else bytes(content)
    return hashlib.sha256(data).hexdigest()[:8]


def describe_network(part: str, number: int) -> Iterator[str]:
    """The lines of one network: its layers' places, and digests of what is made of it."""
    device, random = DEVICES[part], np.random.default_rng((2, number))
    pick = partial(random_networks.choice, random)
    layers, sample = random_networks.random_network(device, pick, random)
    asked = random_networks.random_options(layers, pick)
    try:
        placed = place_layers(layers, sample.shape, device, asked)
    except MaceError as refusal:
        yield from str(refusal).splitlines()
        return
    assert faults(placed, device) == []
    yield from map(describe_place, placed.layers, placed.places)
    yield f"{describe_options(placed)} touched {placed.touched} highest {placed.highest}"
    variant = VARIANTS[number % len(VARIANTS)]
    changes = {
        name: getattr(variant, name)
        for name in vars(variant)
        if getattr(variant, name) != getattr(Options(), name)
    }
    options = replace(placed.options, **changes)
    network = Network("random", placed.layers, placed.places, sample)
    try:
        project = make_project(network, options, device)
    except MaceError as refusal:
        yield from str(refusal).splitlines()
        return
    digests = (f"{name}={digest(project.files[name])}" for name in FILES if name in project.files)
    yield " ".join([*(changes or ["plain"]), *digests])


def describe_options(placed: PlacedNetwork) -> str:
    names = ("fifo", "overlap_data", "avg_pool_rounding")
    return " ".join(["options", *(name for name in names if getattr(placed.options, name))])


def read_table() -> dict[tuple[str, int], list[str]]:
    cases: dict[tuple[str, int], list[str]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("> "):
            part, number = line[2:].split()
            cases[part, int(number)] = lines = []
        elif not line.startswith("#"):
            lines.append(line)
    return cases


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("number", range(COUNT))
@pytest.mark.parametrize("part", DEVICES)
def test_projects_of_random_networks(part: str, number: int) -> None:
    assert list(describe_network(part, number)) == read_table()[part, number]


def write_table() -> None:
    """Write the table as the code is now."""
    lines = [
        "# Random networks, their places and digests of their projects; `test_random_projects.py` reads and writes this.",
        "# > names the part and the seed; then a line for each layer, the memory in use, and the files.",
    ]
    for part, number in product(DEVICES, range(COUNT)):
        lines += [f"> {part} {number}", *describe_network(part, number)]
    TABLE.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    write_table()
