"""Faults of a description: those of keys, links, weights and hardware in one list with their lines, and layers that are missing."""

from __future__ import annotations

import random
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from references import Reference, references

from mace_core.errors import MaceError
from mace_frontend_ai8x.described_model import parameter_reader
from mace_frontend_ai8x.description import read_description
from mace_frontend_ai8x.network import Network
from mace_target_max78000.device import MAX78000
from mace_target_max78000.options import Options
from mace_target_max78000.project import make_project
from mace_target_max78000.target import Max78000
from mace_target_max78002.target import Max78002

NAMES = (
    "mnist-MAX78000",
    "cats-dogs-MAX78000",
    "cifar-10-MAX78000",
    "kws20_v3-MAX78000",
    "camvid_unet-MAX78000",
)
DIGITS = [r for r in references() if r.name == "mnist-MAX78000"]
TARGETS = {"MAX78000": Max78000, "MAX78002": Max78002}


def text_of(reference: Reference) -> str:
    return (reference.path.parent / reference.content["network"]).read_text()


def items_of(text: str) -> tuple[str, list[str]]:
    """What precedes the layers, and each layer's text."""
    head, _, tail = text.partition("layers:")
    first, *layers = re.split(r"(?m)^(?= *- )", tail)
    return head + "layers:" + first.rstrip() + "\n", layers


def read(folder: Path, reference: Reference, text: str) -> Network:
    path = folder / "net.yaml"
    path.write_text(text)
    checkpoint = reference.path.parent / reference.content["checkpoint"]
    sample = np.load(reference.path.parent / reference.content["sample"])
    return read_description(
        path,
        parameter_reader(checkpoint, reference.options),
        sample,
        reference.options,
        partial(TARGETS[reference.device.name].add_limit_faults, reference.options),
    )


def faults(folder: Path, reference: Reference, text: str) -> list[str]:
    with pytest.raises(MaceError) as error:
        read(folder, reference, text)
    return [line.removeprefix(f"{folder / 'net.yaml'}:") for line in str(error.value).splitlines()]


@pytest.mark.parametrize("reference", DIGITS, ids=lambda r: r.name)
def test_faults_of_keys_contradictions_and_hardware_are_one_list_with_lines(
    tmp_path: Path, reference: Reference
) -> None:
    head, layers = items_of(text_of(reference))
    layers[0] += "    colour: blue\n"
    layers[1] = layers[1].replace("max_pool: 2", "max_pool: 20")
    layers[2] = layers[2].replace("pad: 1", "pad: 1\n    avg_pool: 2")
    layers[3] = layers[3].rstrip() + "\n    kernel_size: 5x5\n    output_shift: 100\n"
    text = head + "".join(layers)
    lines = text.splitlines()

    def line(word: str, nth: int = 0) -> int:
        return [number for number, found in enumerate(lines, 1) if word in found][nth]

    found = faults(tmp_path, reference, text)
    assert [f.split(";")[0].split(", expected")[0] for f in found] == [
        f"{line('colour')}: layer 0: unknown key 'colour'",
        f"{line('max_pool: 20')}: layer 1: max_pool: found 20x20",
        f"{line('avg_pool')}: layer 2: avg_pool: is given beside max_pool",
        f"{line('kernel_size')}: layer 3: kernel_size: found 5x5",
        f"{line('output_shift')}: layer 3: output_shift: found 100",
    ]


@pytest.mark.parametrize("reference", DIGITS, ids=lambda r: r.name)
def test_what_is_told_without_a_part_has_lines_as_well(tmp_path: Path, reference: Reference) -> None:
    path = tmp_path / "digits.yaml"
    path.write_text(text_of(reference).replace("out_offset: 0x2000", "out_offset: 0x2002"))
    folder = reference.path.parent
    sample = np.load(folder / reference.content["sample"])
    network = read_description(
        path, parameter_reader(folder / reference.content["checkpoint"], Options()), sample, Options()
    )
    with pytest.raises(MaceError) as error:
        make_project(network, Options(), MAX78000)
    lines = [n for n, line in enumerate(path.read_text().splitlines(), 1) if "0x2002" in line]
    told = [int(line.removeprefix(f"{path}:").partition(":")[0]) for line in str(error.value).splitlines()]
    assert set(lines) <= set(told)


@pytest.mark.slow
@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("reference", [r for r in references() if r.name in NAMES], ids=lambda r: r.name)
def test_a_layer_that_is_missing_is_named(tmp_path: Path, reference: Reference) -> None:
    """Each layer with weights but the last is left out once.

    Those that shapes do not tell apart are named together.
    """
    head, layers = items_of(text_of(reference))
    weighted = [index for index, layer in enumerate(reference.network.layers) if layer.weights is not None]
    parameters = reference._parameters([]).layers
    names, shapes = [p.name for p in parameters], [p.weights.shape for p in parameters]
    for number, index in enumerate(weighted[:-1]):
        # Nothing tells that it is not the last one which is missing.
        if shapes[number:-1] == shapes[number + 1 :]:
            continue
        result = faults(tmp_path, reference, head + "".join(layers[:index] + layers[index + 1 :]))
        (told,) = [fault for fault in result if "a layer is missing: " in fault]
        assert f"{names[number]!r} (" in told
        assert all("in_sequences" in fault for fault in result if fault != told), result


@pytest.mark.parametrize("reference", DIGITS, ids=lambda r: r.name)
def test_a_layer_too_many_is_named(tmp_path: Path, reference: Reference) -> None:
    head, layers = items_of(text_of(reference))
    text = head + "".join(
        [*layers[:3], "  - processors: 0x0000000000000fff\n    op: conv1d\n    kernel_size: 9\n", *layers[3:]]
    )
    (found,) = faults(tmp_path, reference, text)
    line = text.splitlines().index("    op: conv1d")
    assert found.startswith(
        f"{line}: layer 3: needs weights, which are missing; the parameters hold those of 5 layers, 6 need them; "
    )


@pytest.mark.parametrize("reference", DIGITS, ids=lambda r: r.name)
def test_weights_behind_the_last_layer_are_noted(tmp_path: Path, reference: Reference) -> None:
    head, layers = items_of(text_of(reference))
    network = read(tmp_path, reference, head + "".join(layers[:-1]))
    assert (
        "the checkpoint's last layers have no description, and their weights are not used: fc"
        in network.notes
    )


@pytest.mark.parametrize("reference", DIGITS, ids=lambda r: r.name)
def test_faults_of_the_checkpoint_follow_those_of_the_description(
    tmp_path: Path, reference: Reference
) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(text_of(reference).replace("pad: 2", "padding: 2"))
    with pytest.raises(MaceError) as error:
        read_description(
            path,
            parameter_reader(tmp_path / "none.pth.tar", Options()),
            np.zeros((1, 28, 28)),
            Options(),
            partial(Max78000.add_limit_faults, Options()),
        )
    first, second = str(error.value).splitlines()
    assert "unknown key 'padding'" in first
    assert "none.pth.tar" in second


@pytest.mark.exhaustive
@pytest.mark.parametrize("reference", DIGITS, ids=lambda r: r.name)
def test_damaged_descriptions_end_in_messages(tmp_path: Path, reference: Reference) -> None:
    """Whatever stands in a line: no later stage breaks on what an earlier one could not read."""
    lines = text_of(reference).splitlines()
    values = [
        "0",
        "-1",
        "x",
        "[]",
        "0x0",
        "conv3d",
        "passthrough",
        "4096",
        "[1, 2]",
        "{a: 1}",
        "convtranspose2d",
        "linear",
    ]
    keys = [
        "in_channels",
        "in_dim",
        "in_sequences",
        "operands",
        "eltwise",
        "groups",
        "in_crop",
        "out_channels",
        "streaming",
        "bypass",
    ]
    rng = random.Random(7)
    refused = 0
    for _ in range(150):
        changed = list(lines)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(8, len(changed))
            key, colon, _ = changed[at].partition(":")
            added = f"    {rng.choice(keys)}: {rng.choice(values)}"
            changed[at] = rng.choice([f"{key}{colon} {rng.choice(values)}", f"{changed[at]}\n{added}", ""])
        try:
            read(tmp_path, reference, "\n".join(changed) + "\n")
        except MaceError:
            refused += 1
    assert refused > 100
