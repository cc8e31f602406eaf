"""Programs register by register: what each kind of layer, placement and option writes.

The generator's programs equal the vendor's word by word (`test_references.py`) where the vendor's networks are at
hand; this table holds the same, and what no network of the vendor's has, where they are not.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import check_networks
import numpy as np
import pytest
import test_check_texts
from check_networks import layer

import mace_frontend_ai8x.network
from mace_frontend_ai8x.network import Layer, Network, Operation, Weights
from mace_target_max78000.check import find_faults
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.image import Block, Check, Chunk, Image, Poll, Step, Write
from mace_target_max78000.options import Options
from mace_target_max78000.simulate import find_mismatches, replay
from mace_target_max78000.simulate.memory import NotModeledError
from mace_target_max78002.device import MAX78002

pytestmark = pytest.mark.slow  # nine seconds together

DEVICES = {device.name: device for device in (MAX78000, MAX78002)}
CONTROL = ("CTL", "SRAM", "LCNT", "TEST")


def fill(given: Network, bits: int = 8, bias: bool = True) -> Network:
    """The network with random weights, biases and data instead of ones and zeros, and results at its end."""
    rng = np.random.default_rng(11)

    def filled(made: Layer) -> Layer:
        if made.weights is None:
            return made
        values = rng.integers(-(1 << bits - 1), 1 << bits - 1, made.weights.values.shape)
        values = np.where(values < 0, -1, 1) if made.weights.binary else values
        added = rng.integers(-128, 128, made.out_channels) if bias else None
        return replace(made, weights=replace(made.weights, values=values, bits=min(bits, 8)), bias=added)

    sample = rng.integers(-128, 128, given.sample.shape)
    *others, last = map(filled, given.layers)
    return replace(given, layers=(*others, replace(last, output=True)), sample=sample)


@cache
def name_registers(part: str) -> Mapping[int, str]:
    """The registers of a part by address, as quadrant, name and layer; the first of those that share one."""
    device = DEVICES[part]
    names: dict[int, str] = {}
    for quadrant in range(4):
        for number, name in enumerate(CONTROL):
            names.setdefault(device.control_register(quadrant, number), f"{quadrant}.{name}")
        names.setdefault(device.layer_register(quadrant, "IFRM", 0), f"{quadrant}.IFRM")
        for name in (*device.registers, *device.stream_registers):
            for index in range(10):
                address = device.layer_register(quadrant, name, index)
                names.setdefault(address, f"{quadrant}.{name}[{index}]")
    return names


def name_register(device: Chip, address: int) -> str:
    """A register by its name; other addresses as they are."""
    return name_registers(device.name).get(address, f"{address:#x}")


def describe_step(device: Chip, step: Step) -> str:
    if isinstance(step, Write):
        return f"{name_register(device, step.address)}={step.value:#x}"
    mark, mask = ("?", step.mask) if isinstance(step, Poll) else ("!", step.errors)
    return f"{name_register(device, step.address)}{mark}{mask:#x}"


def describe_words(words: tuple[int, ...]) -> str:
    digest = hashlib.sha256(struct.pack(f">{len(words)}I", *words)).hexdigest()[:8]
    return f"{len(words)}:{digest}"


def describe_part(part: Chunk | Block | Check) -> str:
    if isinstance(part, Chunk):
        return f"{part.processor}+{part.column}@{part.address:#x}:{describe_words(part.words)}"
    if isinstance(part, Block):
        place = f"{part.address:#x}" if part.fifo is None else f"fifo{part.fifo}"
        return f"{part.processor}@{place}:{describe_words(part.words)}"
    return f"{part.address:#x}&{part.mask:#x}:{describe_words(part.values)}"


def describe_image(image: Image) -> Iterator[str]:
    """A line for each part of a program that has any."""
    for name, steps in (("init", image.init), ("configure", image.configure), ("start", image.start)):
        yield f"{name}: " + " ".join(describe_step(image.device, step) for step in steps)
    if image.kernels:
        yield "kernels: " + " ".join(map(describe_part, image.kernels))
    if image.bias:
        yield "bias: " + " ".join(f"{q}={values.hex()}" for q, values in image.bias.items())
    yield "inputs: " + " ".join(map(describe_part, image.inputs))
    yield "answer: " + " ".join(map(describe_part, image.known_answer))
    yield f"quadrants: {image.quadrants} packing: {image.packing}"


def read_cases() -> list[tuple[str, str, list[str]]]:
    """Network, part with options, and program, of each case of `program_texts.txt`."""
    cases: list[tuple[str, str, list[str]]] = []
    for line in (Path(__file__).parent / "program_texts.txt").read_text().splitlines():
        if line.startswith("> "):
            given, _, asked = line[2:].rpartition(" | ")
            cases.append((given, asked, []))
        elif not line.startswith("#"):
            cases[-1][2].append(line)
    return cases


@cache
def synthesize_case(given: str, asked: str) -> Image:
    """The program of a network, checked against the limits of the part first."""
    part, *words = asked.split()
    words_known = {
        **vars(mace_frontend_ai8x.network),
        **vars(check_networks),
        **vars(test_check_texts),
        **globals(),
    }
    network = eval(given, words_known)  # our own table
    options, device = Options.of_arguments(words), DEVICES[part]
    assert find_faults(network, device, options) == []
    return synthesize(network, options, device).image


CASES = read_cases()

SHARES = 20
"""Tests among which the cases are divided: a test of its own for each takes longer than the case."""


@pytest.mark.parametrize("share", range(SHARES))
def test_texts(share: int) -> None:
    cases = CASES[share::SHARES]
    assert [(*case[:2], list(describe_image(synthesize_case(*case[:2])))) for case in cases] == cases


UNEQUAL = (
    ("read_gap=1, in_offset=0", "the sample is loaded without the gaps that the layer leaves out"),
    ("bypass=True", "every weight counts as 1, and those of the table are random"),
    ("--start-layer 1", "the layer before it, which makes its input, does not run"),
    ("pool=Pool(False, (3, 3), 2, (2, 2))", "its last row is not written; `check_program` refuses it"),
)
"""What the simulator computes otherwise than the arithmetic, part of the case's text, and why."""
NOT_MODELED = "kernel=(1, 1), pad=(0, 0)), calcx4=True"
"""A kernel of one position in four memories."""


@pytest.mark.parametrize("share", range(SHARES))
def test_programs_compute_what_their_layers_say(share: int) -> None:
    for given, asked, _ in CASES[share::SHARES]:
        check_case(given, asked)


def check_case(given: str, asked: str) -> None:
    """Run the program of a network in the simulator."""
    image = synthesize_case(given, asked)
    if NOT_MODELED in given:
        with pytest.raises(NotModeledError, match="kernels that are not 3x3 in four memories"):
            replay(image)
        return
    is_unequal = any(text in f"{given} {asked}" for text, _ in UNEQUAL)
    assert bool(list(find_mismatches(replay(image), image))) == is_unequal, f"{given} {asked}"


def test_binary_weights() -> None:
    """One bit of the control register says for all layers that a bit stands for -1 and +1."""
    weights = Weights(np.ones((4, 4, 3, 3), np.int64), 1, binary=True)
    result = layer(Operation.CONV2D, (4, 4, 4), weights=weights, output=True)
    image = synthesize(check_networks.network(result), Options(), MAX78002).image
    assert [step.value >> 30 & 1 for step in image.start if isinstance(step, Write)] == [1, 1]
