"""Rules of the generator, each by itself: layouts by what is stated of them, programs by what the simulator makes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_simulator_layers import (
    DEVICES,
    convolution,
    depthwise,
    linear,
    one_dimensional,
    passthrough,
    transposed,
)

from mace_frontend_ai8x.network import Layer, LayerPlacement, Network, Operation, Pool, processors_needed
from mace_target_max78000.check import find_faults
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import bias_memory, synthesize, weight_runs
from mace_target_max78000.encode.hardware_layers import HardwareLayer
from mace_target_max78000.image import Write
from mace_target_max78000.options import Options
from mace_target_max78000.simulate import NotModeledError, find_mismatches, replay
from mace_target_max78002.device import MAX78002

COUNTS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 20, 33, 60, 64, 65, 76, 100, 111, 120, 128, 130)
"""Numbers of channels: below, at and above what a word, a quadrant and a pass hold."""


def network(layer: Layer, place: LayerPlacement, random: np.random.Generator) -> Network:
    shape = (layer.channels * layer.operands, *layer.dim[: 1 if layer.one_dimensional else 2])
    return Network("net", (layer,), (place,), random.integers(-128, 128, shape))


def wrong(layer: Layer, place: LayerPlacement, device: Chip, **options: Any) -> list[str]:
    """Words of the known answer that the program does not compute."""
    image = synthesize(network(layer, place, np.random.default_rng(5)), Options(**options), device).image
    return list(find_mismatches(replay(image), image))


def registers(
    layer: Layer, place: LayerPlacement, device: Chip, **options: Any
) -> dict[tuple[str, int], int]:
    """The layer's registers by name and quadrant."""
    image = synthesize(network(layer, place, np.random.default_rng(5)), Options(**options), device).image
    values = {step.address: step.value for step in image.configure if isinstance(step, Write)}
    names = (*device.registers, *device.stream_registers)
    return {(name, q): values.get(device.layer_register(q, name, 0), 0) for name in names for q in range(4)}


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(12))
def test_random_layers_compute_their_arithmetic(seed: int) -> None:
    """Generator and simulator agree on kinds, channels, bits, bias, pools and places that nobody chose."""
    random, checked = np.random.default_rng(seed), 0
    while checked < 20:
        device = DEVICES[int(random.integers(2))]
        layer, place = _random_layer(random, device)
        given = network(layer, place, random)
        if find_faults(given, device, Options()):
            continue
        image = synthesize(given, Options(), device).image
        try:
            assert list(find_mismatches(replay(image), image)) == [], (device.name, layer, place)
        except NotModeledError:
            continue
        checked += 1


def _random_layer(random: np.random.Generator, device: Chip) -> tuple[Layer, LayerPlacement]:
    channels, outputs = (int(n) for n in random.choice(COUNTS, 2))
    bits = int(random.choice([1, 2, 4, 8]))
    pointwise: dict[str, Any] = {"kernel": (1, 1), "pad": (0, 0)} if random.integers(2) else {}
    kind = str(random.choice(["full", "transposed", "line", "linear", "pass", "depthwise"]))
    if kind == "depthwise" and device.features.depthwise and channels > 1:
        layer = convolution(channels, channels, bits, groups=channels, **pointwise)
    elif kind == "transposed":
        layer = transposed(channels, outputs, int(random.integers(3)))
    elif kind == "line":
        layer = one_dimensional(channels, outputs, int(random.integers(1, 10)), 0)
    elif kind == "linear":
        layer = linear(channels, outputs, bits)
    else:
        layer = passthrough(channels) if kind == "pass" else convolution(channels, outputs, bits, **pointwise)
    if layer.weights is not None and random.integers(2):
        layer = replace(layer, bias=random.integers(-128, 128, layer.out_channels))
    if layer.operation in (Operation.CONV2D, Operation.PASSTHROUGH) and random.integers(2):
        window = int(random.integers(1, 4))
        layer = replace(
            layer, pool=Pool(bool(random.integers(2)), (window, window), int(random.integers(1, 4)))
        )
    reading, slots = (_mask(layer.channels, random), _mask(layer.out_channels, random))
    same = layer.operation is Operation.PASSTHROUGH or (layer.groups > 1 and random.integers(2))
    ahead = device.features.read_ahead and layer.operation is Operation.CONV2D and not random.integers(4)
    four = (
        device.generation == 2
        and layer.groups == 1
        and layer.operation is Operation.CONV2D
        and not random.integers(4)
    )
    gap = int(random.integers(2))
    return layer, LayerPlacement(
        reading,
        reading if same else slots,
        0,
        0x4000,
        write_gap=gap,
        read_ahead=bool(ahead),
        calcx4=bool(four),
    )


def _mask(channels: int, random: np.random.Generator) -> int:
    count = processors_needed(channels)
    first = int(random.integers(0, 65 - count)) // 4 * 4
    return ((1 << count) - 1) << first


# Weight memory


@pytest.mark.parametrize(("bits", "outputs"), [(1, 76), (1, 120), (2, 70), (4, 66), (1, 131)])
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_narrow_kernels_go_on_over_output_passes(bits: int, outputs: int, device: Chip) -> None:
    """An output pass that is no multiple of the kernels in a byte leaves no gap before the next one."""
    slots = processors_needed(outputs)
    assert (
        wrong(convolution(4, outputs, bits), LayerPlacement(0xF, (1 << slots) - 1, 0, 0x4000), device) == []
    )
    unit = HardwareLayer(convolution(4, outputs, bits), LayerPlacement(0xF, (1 << slots) - 1), 0)
    positions = weight_runs.lay_out_runs(unit).bytes
    assert np.array_equal(positions, np.arange(len(positions)))


def test_words_of_unused_slots_stay_free() -> None:
    """The words before the first slot in use are the next layer's, and its kernels are counted from there."""
    first = HardwareLayer(convolution(4, 3), LayerPlacement(0xF, 0xE), 0)
    layout = weight_runs.lay_out_runs(first)
    assert layout.used.tolist() == [False, True, True, True]
    gaps = weight_runs.lay_out_runs(HardwareLayer(convolution(4, 2), LayerPlacement(0xF, 0b1001), 0))
    assert gaps.used.tolist() == [True, False, False, True]
    small = HardwareLayer(convolution(4, 1, kernel=(1, 1), pad=(0, 0)), LayerPlacement(0xF, 1), 1)
    # the first words are free for a layer that needs one of them
    assert weight_runs.place_runs((first, small), MAX78000) == {
        0: weight_runs.WeightRun(0, 4),
        1: weight_runs.WeightRun(0, 1),
    }
    aligned = HardwareLayer(convolution(4, 3), LayerPlacement(0xF, 0x7), 0)
    assert weight_runs.place_runs((aligned, small), MAX78000) == {
        0: weight_runs.WeightRun(0, 3),
        1: weight_runs.WeightRun(4, 1),
    }


def test_a_layer_in_words_that_another_one_leaves_computes_its_own() -> None:
    first, second = (
        replace(convolution(4, 3), output=False),
        replace(convolution(3, 1, kernel=(1, 1), pad=(0, 0)), inputs=(0,), name="second"),
    )
    places = LayerPlacement(0xF, 0xE, 0, 0x1000), LayerPlacement(0xE, 0x1, 0x1000, 0x2000)
    sample = np.random.default_rng(0).integers(-128, 128, (4, 8, 7))
    for device in DEVICES:
        image = synthesize(Network("net", (first, second), places, sample), Options(), device).image
        assert list(find_mismatches(replay(image), image)) == []


def test_larger_memories_are_filled_from_the_top() -> None:
    """By steps that are the vendor's: below a run from a multiple of four on, so that up to three words stay free."""
    tops = [
        HardwareLayer(convolution(1, n), LayerPlacement(1, (1 << n) - 1), i)
        for i, n in enumerate((10, 10, 4))
    ]
    for unit in tops:
        weights = unit.layer.weights
        assert weights is not None
        weights.values.flat[0] = unit.index  # otherwise they might share a run
    placed = weight_runs.place_runs(tops, MAX78002)
    assert [placed[i].column for i in range(3)] == [5108, 5092, 5084]


@pytest.mark.parametrize(
    ("start", "count", "fits"),
    [(0, 1024, True), (1020, 4, False), (1016, 4, True), (4096, 256, True), (4348, 4, False)],
)
def test_depthwise_kernels_lie_in_one_physical_memory(start: int, count: int, fits: bool) -> None:
    assert weight_runs._in_one_instance(np.array([start]), count, MAX78002).tolist() == [fits]


@pytest.mark.parametrize("outputs", [4, 8, 20, 64, 128])
@pytest.mark.parametrize("channels", [4, 70, 300])
def test_four_channels_at_once(channels: int, outputs: int) -> None:
    reading, slots = ((1 << processors_needed(n)) - 1 for n in (channels, outputs))
    assert (
        wrong(
            convolution(channels, outputs), LayerPlacement(reading, slots, 0, 0x10000, calcx4=True), MAX78002
        )
        == []
    )
    biased = convolution(channels, outputs, bias=np.arange(outputs) - 8)
    assert (
        wrong(biased, LayerPlacement(reading, slots, 0, 0x10000, calcx4=True, read_ahead=True), MAX78002)
        == []
    )


# Bias


def place_bias(*layers: tuple[Layer, LayerPlacement]) -> tuple[dict[int, bias_memory.Bias], dict[int, bytes]]:
    results = [HardwareLayer(layer, place, i) for i, (layer, place) in enumerate(layers)]
    return bias_memory.place_bias(results, (0, 1, 2, 3), MAX78002, ignore_groups=False)


def test_a_scattering_layers_bias_begins_with_its_first_processor() -> None:
    """The gap before the first processor lies at the end of its quadrant, as the vendor's programs have it."""
    deep = replace(depthwise(20, 3), bias=np.arange(1, 21))
    (found, memories) = place_bias((deep, LayerPlacement(((1 << 20) - 1) << 8, (1 << 20) - 1)))
    assert memories == {0: bytes([*range(1, 9), *[0] * 8]), 1: bytes(range(9, 21))}
    assert found[0].offsets == {0: 0, 1: 0}


def test_a_broadcasting_layers_bias_lies_by_its_place_in_four_memories() -> None:
    deep = replace(depthwise(6, 3), bias=np.arange(1, 7))
    _, memories = place_bias((deep, LayerPlacement(0x3F, 0x3F)))
    assert memories == {0: bytes([1, 5, 0, 0, 2, 6, 0, 0, 3, 0, 0, 0, 4])}


@pytest.mark.parametrize("first", [0, 4, 8, 12, 16, 20, 40])
@pytest.mark.parametrize("channels", [5, 17, 20, 24, 111])
def test_bias_of_depthwise_layers_wherever_they_begin(first: int, channels: int) -> None:
    slots = processors_needed(channels)
    first = min(first, (64 - slots) // 4 * 4)
    deep = replace(depthwise(channels, 3), bias=np.arange(channels) - 50)
    reading, zero = ((1 << slots) - 1) << first, (1 << slots) - 1
    assert wrong(deep, LayerPlacement(reading, zero, 0, 0x4000), MAX78002) == []
    if reading & 0xFFFF:  # the first quadrant must be in use
        assert wrong(deep, LayerPlacement(reading, reading, 0, 0x4000), MAX78002) == []


def test_only_quadrants_that_read_have_a_bias() -> None:
    """Layer 1 reads in quadrant 1 alone; the other quadrants of the network must not add anything."""
    deep = replace(depthwise(8, 3), bias=np.arange(8) + 1)
    given = registers(deep, LayerPlacement(0xFF << 16, 0xFF), MAX78002)
    assert [given["POST", q] >> 12 & 1 for q in range(4)] == [0, 1, 0, 0]


# Registers


def test_write_pointers_of_layers_that_scatter() -> None:
    """Every quadrant continues behind the channels of those before.

    One below the first that is read in points nowhere.
    """
    deep = depthwise(17, 3)
    given = registers(deep, LayerPlacement(0x1FFFF << 24, 0x1FFFF << 12, 0, 0x2000), MAX78002)
    assert [given["WPTR_BASE", q] for q in range(3)] == [0, 0x18800, 0x28800]
    assert wrong(deep, LayerPlacement(0x1FFFF << 24, 0x1FFFF << 12, 0, 0x2000), MAX78002) == []


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("average", "size", "bit"), [(False, 1, 0), (False, 2, 1), (True, 2, 1), (True, 1, 0)]
)
def test_a_pool_of_one_position_is_no_pool(device: Chip, average: bool, size: int, bit: int) -> None:
    pooled = convolution(4, 4, pool=Pool(average, (size, size), 2))
    given = registers(pooled, LayerPlacement(0xF, 0xF, 0, 0x4000), device)
    assert given["LCTL", 0] >> 7 & 1 == bit
    assert wrong(pooled, LayerPlacement(0xF, 0xF, 0, 0x4000), device) == []


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("reading", "slots"), [(0x11111, 0x1000F), (0x1111, 0xF), (0x8421, 0xF), (0xF, 0xF0)]
)
def test_results_of_passthrough_layers_are_packed(device: Chip, reading: int, slots: int) -> None:
    assert wrong(passthrough(reading.bit_count()), LayerPlacement(reading, slots, 0, 0x4000), device) == []
