"""Descriptions beside what is read of them, or the texts of their faults: each key and each limit from both sides.

`description_texts.txt` has the descriptions; of a layer all is stated that differs from a layer of nothing.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from described_files import HEAD, parameters

from mace_core.errors import MaceError
from mace_frontend_ai8x.checkpoint import Checkpoint
from mace_frontend_ai8x.description import read_description
from mace_frontend_ai8x.network import Layer, LayerPlacement, Network, Pool, Weights
from mace_frontend_ai8x.options import NetworkOptions

TABLE = Path(__file__).parent / "description_texts.txt"


def read_cases() -> list[tuple[str, str, str]]:
    """One case: the context of a description, its text, and the expected network or faults."""
    cases = []
    for block in TABLE.read_text().split("\n> ")[1:]:
        given, _, rest = block.partition("\n")
        lines = rest.splitlines()
        expected = [line[2:] for line in lines if line.startswith("= ")]
        written = [line for line in lines if not line.startswith(("= ", "#"))]
        cases.append((given, "\n".join(written), "\n".join(expected)))
    return cases


CASES = read_cases()

SHARES = 20
"""Tests among which the cases are divided: a test of its own for each takes longer than the case."""


def shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def become(given: str, written: str, folder: Path) -> str:
    """The network, a line for each layer, or the faults.

    given: words; `2x8x8` is the sample's shape, `w4x2x3x3` one of weights, `bits=2`, `shift=1` and `bias` are of the
    checkpoint, and `option=value` is one of `NetworkOptions`.
    """
    path = folder / "net.yaml"
    path.write_text(HEAD + written + "\n")
    words = given.split()
    stated: dict[str, Any] = {"bits": None, "shift": 0, "bias": "bias" in words}
    stated |= {
        k: eval(v) for k, _, v in (word.partition("=") for word in words if "=" in word)
    }  # our own table
    options = {key: stated.pop(key) for key in list(stated) if key not in ("bits", "shift", "bias")}
    stored: Checkpoint = parameters(*(shape(word[1:]) for word in words if word.startswith("w")), **stated)
    try:
        network = read_description(
            path, stored, np.zeros(shape(words[0]), np.int64), NetworkOptions(**options)
        )
    except MaceError as error:
        return str(error).replace(f"{path}:", "").replace(f"{path}", "")
    return "\n".join(describe(network))


def describe(network: Network) -> list[str]:
    lines = [
        f"{layer.name}: {' '.join((*differences(layer), *differences(place)))}"
        for layer, place in zip(network.layers, network.places, strict=True)
    ]
    lines += [f"unload {' '.join(differences(unload))}" for unload in network.unloads]
    lines += [
        f"buffer {' '.join(differences(buffer))} pitch={buffer.pitch} end={buffer.end}"
        for buffer in network.buffers
    ]
    lines += [f"snoop {len(network.snoop)}"] if network.snoop else []
    lines += [f"sampled {network.sampled}"] if network.sampled else []
    return [*lines, *(f"note: {note}" for note in network.notes)]


def differences(item: Any) -> list[str]:
    """Return the fields of a dataclass that differ from their defaults."""
    found = []
    for field in fields(item):
        value = getattr(item, field.name)
        is_default = (
            field.default is not MISSING and not isinstance(value, np.ndarray) and value == field.default
        )
        if field.name != "name" and not is_default:
            found.append(f"{field.name}={show(value)}")
    if isinstance(item, Layer):
        found.append(f"makes={item.out_channels}x{show(item.out_dim)}")
        found += [f"takes={show(item.weights_shape)}"] if item.weights else []
    return found


def show(value: Any) -> str:
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, Weights):
        return f"{show(value.values.shape)}of{value.bits}{'binary' if value.binary else ''}"
    if isinstance(value, Pool):
        kind = "mean" if value.average else "max"
        return f"{kind}{show(value.size)}by{value.stride}dilated{show(value.dilation)}"
    if isinstance(value, np.ndarray):
        return "+".join(map(str, value.tolist()))
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return str(value)


@pytest.mark.parametrize("share", range(SHARES))
def test_texts(share: int, tmp_path: Path) -> None:
    cases = CASES[share::SHARES]
    assert [(*case[:2], become(*case[:2], tmp_path)) for case in cases] == cases


@pytest.mark.parametrize("kind", [Layer, LayerPlacement])
def test_fields_without_effect_are_the_defaults(kind: type) -> None:
    """The defaults mean no padding, no pool, no shift, no streaming and no sharing."""
    defaults = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    ones = {"kernel", "dilation", "groups", "stride", "operands"}
    assert {
        name for name, value in defaults.items() if value in (1, (1, 1)) and value is not True
    } == ones & set(defaults)
    assert {name for name, value in defaults.items() if value is True} == {"pool_first"} & set(defaults)


def test_the_table_names_every_key() -> None:
    from mace_frontend_ai8x.description.keys import AREA_KEYS, GLOBAL_KEYS, LAYER_KEYS, UNLOAD_KEYS

    text = "\n".join(HEAD + written for _, written, _ in CASES)
    keys = {*AREA_KEYS, *GLOBAL_KEYS, *LAYER_KEYS, *UNLOAD_KEYS}
    assert sorted(key for key in keys if f"{key}:" not in text) == []
