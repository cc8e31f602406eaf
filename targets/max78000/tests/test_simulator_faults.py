"""Faults of programs that the simulator must refuse, each planted in a program that is right otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from test_program_texts import DEVICES, synthesize_case
from test_simulator_layers import changed, convolution, depthwise, pair, program

from mace_frontend_ai8x.network import LayerPlacement, Network, Pool
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.image import Image, Write
from mace_target_max78000.options import Options
from mace_target_max78000.simulate import NotModeledError, SimulationError, find_mismatches, replay
from mace_target_max78002.device import MAX78002


def planted(image: Image, name: str, quadrant: int, value: Callable[[int], int]) -> Image:
    """The program with another value in a register of layer 0; written anew where it was 0."""
    address = image.device.layer_register(quadrant, name, 0)
    written = {s.address: s.value for s in image.configure if isinstance(s, Write)}
    others = tuple(s for s in image.configure if not (isinstance(s, Write) and s.address == address))
    return replace(image, configure=(*others, Write(address, value(written.get(address, 0)))))


def caught(wrong: Image, right: Image) -> bool:
    """Whether the simulator refuses a program, or computes something else with it."""
    try:
        return any(find_mismatches(replay(wrong), right))
    except SimulationError:
        return True


# Streams


@pytest.mark.parametrize(
    ("device", "planar", "name", "value"),
    [
        (MAX78000, False, "STREAM1", lambda v: v - 1),
        (MAX78000, True, "STREAM1", lambda v: v // 4),
        (MAX78000, True, "STREAM2", lambda v: v - (1 << 16)),
        (MAX78000, False, "STREAM2", lambda v: v - (1 << 4)),
        (MAX78002, False, "STREAM2", lambda v: v - (2 << 16)),
        (MAX78002, True, "STREAM2", lambda v: v - (2 << 16)),
        (MAX78002, True, "STREAM2", lambda v: v & ~0x1F0),
        (MAX78002, False, "STREAM1", lambda v: v - 1),
        (MAX78002, True, "STREAM1", lambda v: v - 1),
    ],
    ids=lambda value: value.name if isinstance(value, Chip) else None,
)
def test_a_first_layer_that_waits_too_little(
    device: Chip, planar: bool, name: str, value: Callable[[int], int]
) -> None:
    (first, second), places = pair(streaming=True, planar=planar, biased=False)
    pooled = replace(first, pool=Pool(False, (2, 2), 2))
    layers = pooled, replace(second, dim=pooled.out_dim)
    image = program(layers, places, device, Options(fifo=True))
    assert list(find_mismatches(replay(image), image)) == []
    quadrants = image.quadrants
    wrong = image
    for quadrant in quadrants:
        wrong = planted(wrong, name, quadrant, value)
    with pytest.raises(
        SimulationError, match="its first window is there after" if name == "STREAM1" else "its windows need"
    ):
        replay(wrong)


@pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
@pytest.mark.parametrize("less", [1 << 4, 1 << 16])
def test_a_later_layer_that_waits_too_little(device: Chip, less: int) -> None:
    image = program(*pair(streaming=True, planar=False, biased=False), device, Options(fifo=True))
    with pytest.raises(SimulationError, match=r"layer 1, STREAM2: .*its windows need"):
        replay(changed(image, "STREAM2", 1, lambda v: v - less))


def test_bits_between_the_waits_mean_nothing() -> None:
    image = program(*pair(streaming=True, planar=False, biased=False), MAX78000, Options(fifo=True))
    with pytest.raises(SimulationError, match=r"STREAM2.*mean nothing"):
        replay(changed(image, "STREAM2", 1, lambda v: v | 1 << 10))


def test_results_of_the_last_layer_over_its_own_buffer() -> None:
    """A claim of the results' words, after the claims of all buffers."""
    layers, places = pair(streaming=True, planar=False, biased=False)
    over = replace(places[1], output_processors=0xF0, out_offset=0x1010)
    image = program(layers, (places[0], over), MAX78000, Options(fifo=True))
    with pytest.raises(
        SimulationError, match=r"words 1028 to \d+ of memory 1 are written while others use 1024 to"
    ):
        replay(image)


# Bias


def biased_convolution(device: Chip) -> Image:
    layer = convolution(20, 4, bias=np.arange(4) + 1)
    return program((layer,), (LayerPlacement(0xFFFFF, 0xF, out_offset=0x4000),), device, Options())


@pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
def test_a_bias_in_two_quadrants(device: Chip) -> None:
    image = biased_convolution(device)
    with pytest.raises(SimulationError, match="a bias in each of the quadrants"):
        replay(planted(image, "POST", 1, lambda v: v | 1 << 12))


def test_a_bias_that_nobody_adds() -> None:
    image = biased_convolution(MAX78000)
    unheard = planted(planted(image, "POST", 0, lambda v: v & ~(1 << 12)), "POST", 1, lambda v: v | 1 << 12)
    assert list(find_mismatches(replay(unheard), image))  # heard, but there is another byte
    deaf = planted(unheard, "LCTL", 0, lambda v: v & ~0xF000)
    with pytest.raises(SimulationError, match="whose sums are not added"):
        replay(deaf)


@pytest.mark.parametrize(("quadrant", "value"), [(0, lambda v: v | 1 << 12), (1, lambda v: v & ~(1 << 12))])
def test_a_depthwise_bias_in_other_quadrants_than_channels(
    quadrant: int, value: Callable[[int], int]
) -> None:
    layer = replace(depthwise(20, 3), bias=np.arange(20))
    image = program(
        (layer,), (LayerPlacement(0xFFFFF << 16, 0xFFFFF, out_offset=0x4000),), MAX78002, Options()
    )
    with pytest.raises(SimulationError, match="have channels"):
        replay(planted(image, "POST", quadrant, value))


@pytest.mark.parametrize("value", [lambda v: v + 1, lambda v: v - 1, lambda v: v + 16])
def test_a_depthwise_bias_at_another_byte_is_another_answer(value: Callable[[int], int]) -> None:
    layer = replace(depthwise(20, 3), bias=np.arange(20) * 5 - 50)
    both = Network(
        "net", (layer,), (LayerPlacement(0xFFFFF << 8, 0xFFFFF, 0, 0x4000),), np.full((20, 8, 7), 3)
    )
    image = synthesize(both, Options(), MAX78002).image
    assert list(find_mismatches(replay(image), image)) == []
    assert caught(planted(image, "POST", 1, value), image)


# Write pointers


@pytest.mark.parametrize("quadrant", [1, 2])
def test_a_scattering_layers_write_pointer_at_another_memory(quadrant: int) -> None:
    layer = depthwise(17, 3)
    image = program(
        (layer,), (LayerPlacement(0x1FFFF << 24, 0x1FFFF << 12, out_offset=0x2000),), MAX78002, Options()
    )
    assert list(find_mismatches(replay(image), image)) == []
    assert caught(planted(image, "WPTR_BASE", quadrant, lambda v: v + (1 << 15)), image)


# Planes


def test_planes_that_share_a_memory() -> None:
    layer = convolution(2, 4)
    image = program((layer,), (LayerPlacement(0x11, 0xF, out_offset=0x4000, chw=True),), MAX78000, Options())
    assert list(find_mismatches(replay(image), image)) == []
    with pytest.raises(SimulationError, match="channels in planes share a data memory"):
        replay(planted(image, "ENA", 0, lambda _: 0x00030003))


# What is not modeled is told apart from what is wrong


def test_not_modeled() -> None:
    layer = depthwise(20, 3)
    place = LayerPlacement(0xFFFFF, 0xFFFFF, out_offset=0x4000, read_ahead=True)
    with pytest.raises(NotModeledError, match="depthwise layers that read ahead"):
        replay(program((layer,), (place,), MAX78002, Options()))
    four = convolution(4, 8, kernel=(1, 1), pad=(0, 0))
    with pytest.raises(NotModeledError, match="kernels that are not 3x3"):
        replay(
            program(
                (four,), (LayerPlacement(0xF, 0xFF, out_offset=0x4000, calcx4=True),), MAX78002, Options()
            )
        )


@pytest.mark.parametrize("part", DEVICES)
def test_a_frame_from_a_fifo_is_complete_and_inside_the_memory(part: str) -> None:
    """The input's 20 words: the layer begins after all of them, and they end with the memory's last word."""
    image = synthesize_case("fill(one(layer(C2, (4, 4, 5))))", f"{part} --fifo")
    last = image.device.data_bytes // 4 - 20
    for register, value in (("RPTR_BASE", last), ("STREAM1", 20)):
        assert list(find_mismatches(replay(planted(image, register, 0, lambda _, v=value: v)), image)) == []
    with pytest.raises(SimulationError, match=f"20 words do not fit a data memory from word {last + 1} on"):
        replay(planted(image, "RPTR_BASE", 0, lambda _: last + 1))
    with pytest.raises(SimulationError, match="STREAM1: it begins after 19 of 20 words"):
        replay(planted(image, "STREAM1", 0, lambda _: 19))
