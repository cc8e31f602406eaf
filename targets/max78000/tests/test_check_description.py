"""Mistakes that users make in descriptions: each is reported once and at its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from references import MODELS, Reference, references

from mace_frontend_ai8x.checkpoint import load_checkpoint
from mace_frontend_ai8x.description import read_description
from mace_frontend_ai8x.network import (
    Network,
)
from mace_target_max78000.check import find_faults
from mace_target_max78000.device import MAX78000
from mace_target_max78000.options import Options

MNIST = MODELS / "mnist"


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("reference", references(), ids=lambda r: r.name)
def test_the_makers_networks_are_legal(reference: Reference) -> None:
    assert find_faults(reference.network, reference.device, reference.options) == []


# The mistakes that users make, each in a description that is right otherwise

MISTAKES: Mapping[str, tuple[tuple[str, str, int], str]] = {
    "a pad": (
        ("pad: 2", "pad: 1", 0),
        "layer1: pad: found 1, expected 2, with which layer4 gets the 192 values that its weights have instead of 12 channels of 3x3 = 108;"
        " write pad: 2 if the model has it (so would pad: 2 in layer2)",
    ),
    "a pool beyond the limit": (
        ("max_pool: 2", "max_pool: 20", 0),
        "layer1: max_pool: found 20x20, expected 1 to 16 in each direction; pool in several layers",
    ),
    "processors of 59 bits": (
        ("0xfffffffffffffff0", "0x7ffffffffffffff0", 1),
        "layer2: processors: found 59 bits in 0x7ffffffffffffff0, expected 60 bits for 60 channels;"
        " write processors: 0xfffffffffffffff0 or other processors, as many as that",
    ),
    "output over the input": (
        ("out_offset: 0\n", "out_offset: 0x2000\n", 0),
        "layer1: out_offset: found its output from 0x2000 to 0x2400, expected memory outside its own input,"
        " which lies from 0x2000 to 0x2c40; write out_offset: 0x0000, which is free",
    ),
    "weights wider than quantization": (
        ("op: conv2d", "op: conv2d\n    quantization: 4", 1),
        "layer1: quantization: found weights from -128 to 127, expected 4: weights from -8 to 7;"
        " write quantization: 8, or quantize the weights to 4 bits",
    ),
    "a misaligned offset": (
        ("out_offset: 0x2000", "out_offset: 0x2002", 0),
        "layer0: out_offset: found 0x2002, expected a multiple of 4; write out_offset: 0x2000 or 0x2004",
    ),
    "a pool's stride": (
        ("pool_stride: 2", "pool_stride: 1", 0),
        "layer1: pool_stride: found 1, expected 2, with which layer4 gets the 192 values that its weights have"
        " instead of 12 channels of 7x7 = 588; write pool_stride: 2 if the model has it"
        " (so would pool_stride: 4 in layer3; max_pool: 3, pool_stride: 3 in layer2)",
    ),
    "a kernel": (
        ("op: conv2d", "op: conv2d\n    kernel_size: 1x1", 2),
        "layer2: kernel_size: found 1x1, expected 3x3, as the weights have; write kernel_size: 3x3, or correct the order of layers",
    ),
    "two channels for one": (
        ("0x0000000000000001", "0x0000000000000003", 0),
        "layer0: processors: found 2 bits in 0x0000000000000003, expected 1 bit for 1 channel;"
        " write processors: 0x0000000000000001 or other processors, as many as that",
    ),
    "another operation": (
        ("op: conv2d", "op: conv1d", 2),
        "layer2: operation: found 4: [56, 60, 3, 3], expected weights of 3 axes for conv1d;"
        " check that layers and parameters have the same order",
    ),
}


def mnist(folder: Path, *changes: tuple[str, str, int]) -> Network:
    """The description of the digits' network with other text at the n-th place where the old one stands."""
    (reference,) = (r for r in references() if r.name == "mnist-MAX78000")
    text = (MNIST / reference.content["network"]).read_text()
    for old, new, nth in changes:
        parts = text.split(old)
        text = old.join(parts[: nth + 1]) + new + old.join(parts[nth + 1 :])
    path = folder / "mnist.yaml"
    path.write_text(text)
    checkpoint = load_checkpoint(MNIST / reference.content["checkpoint"])
    return read_description(path, checkpoint, np.load(MNIST / reference.content["sample"]), Options())


@pytest.mark.skipif(not MNIST.is_dir(), reason=f"no networks in {MODELS}; MACE_MODELS names another folder")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_users_mistake_is_told_once_and_at_its_place(mistake: str, tmp_path: Path) -> None:
    change, expected = MISTAKES[mistake]
    network = mnist(tmp_path, change)
    assert [str(fault) for fault in find_faults(network, MAX78000, Options())] == [expected]


@pytest.mark.skipif(not MNIST.is_dir(), reason=f"no networks in {MODELS}; MACE_MODELS names another folder")
def test_several_mistakes_are_told_together(tmp_path: Path) -> None:
    names = ("a pad", "processors of 59 bits", "weights wider than quantization", "a misaligned offset")
    network = mnist(tmp_path, *(MISTAKES[name][0] for name in names))
    assert {str(fault) for fault in find_faults(network, MAX78000, Options())} == {
        MISTAKES[name][1] for name in names
    }
