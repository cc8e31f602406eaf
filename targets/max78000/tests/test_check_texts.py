"""The text of each fault that `check` finds, and each limit from both sides: what is inside says nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import check_networks
import numpy as np
import pytest
from check_networks import C2, layer, network, place

import mace_frontend_ai8x.network
from mace_frontend_ai8x.network import Layer, LayerPlacement, Network
from mace_target_max78000.check import find_faults
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.options import Options
from mace_target_max78002.device import MAX78002

# The table's words besides those of `check_networks`.
FIRST, SECOND, FIFO = {"device": MAX78000}, {"device": MAX78002}, {"device": MAX78000, "fifo": True}
SECOND_FIFO = {"device": MAX78002, "fifo": True}


def one(made: Layer, **changes: Any) -> Network:
    """A network of one layer."""
    return network(made, places=(place(made, **changes),))


def stacked(*made: Layer, places: tuple[dict[str, Any], ...] = (), **changes: Any) -> Network:
    """Layers that write side by side, each to memory of its own."""
    given = places or ({},) * len(made)
    beside = [
        replace(place(m, 0x200 * i, 0x200 * (i + 1)), **p)
        for i, (m, p) in enumerate(zip(made, given, strict=True))
    ]
    return network(*made, places=tuple(beside), **changes)


def chain(count: int, **changes: Any) -> Network:
    """So many convolutions of 4 channels of 4x4, in two places in turn."""
    layers = [
        replace(layer(C2, (4, 4, 4), inputs=(i - 1,), **changes), name=f"layer{i}") for i in range(count)
    ]
    places = [place(m, 0x100 * (i % 2), 0x100 * (1 - i % 2)) for i, m in enumerate(layers)]
    return network(*layers, places=tuple(places))


def streams(*made: Layer, distance: int = 0x1000, processors: int = 0xF, **last: Any) -> Network:
    """Streaming layers one after the other in the same memories, their buffers a distance apart."""
    layers = [replace(m, inputs=(i - 1,), name=f"layer{i}") for i, m in enumerate(made)]
    places = [
        LayerPlacement(processors, processors, distance * i, distance * (i + 1), streaming=True)
        for i in range(len(made))
    ]
    places[-1] = replace(places[-1], **last)
    first = layers[0]
    sample = np.zeros((first.channels, *first.dim), np.int64)
    return Network("net", tuple(layers), tuple(places), sample)


def texts(given: Network, device: Chip, **options: Any) -> list[str]:
    return [str(fault) for fault in find_faults(given, device, Options(**options))]


def read_cases() -> list[tuple[str, str, list[str]]]:
    """Network, what it is checked for, and the texts of its faults, of each case of `check_texts.txt`."""
    cases: list[tuple[str, str, list[str]]] = []
    for line in (Path(__file__).parent / "check_texts.txt").read_text().splitlines():
        if line.startswith("> "):
            given, _, checked = line[2:].rpartition(" | ")
            cases.append((given, checked, []))
        elif not line.startswith("#"):
            cases[-1][2].append(line)
    return cases


CASES = read_cases()

SHARES = 20
"""Tests among which the cases are divided: a test of its own for each takes longer than the case."""


@pytest.mark.parametrize("share", range(SHARES))
def test_texts(share: int) -> None:
    cases = CASES[share::SHARES]
    words = {**vars(mace_frontend_ai8x.network), **vars(check_networks), **globals()}
    results = [
        texts(eval(given, words), **eval(checked, words)) for given, checked, _ in cases
    ]  # our own table
    assert [(*case[:2], text) for case, text in zip(cases, results, strict=True)] == cases
