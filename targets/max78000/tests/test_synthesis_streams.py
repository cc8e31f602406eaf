"""Rules of streams and FIFOs, each by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_simulator_layers import (
    DEVICES,
    convolution,
)
from test_synthesis_rules import network, registers

from mace_frontend_ai8x.network import Layer, LayerPlacement, Network, Pool
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.encode.hardware_layers import make_hardware_layers
from mace_target_max78000.encode.streaming import list_streams
from mace_target_max78000.image import Write
from mace_target_max78000.options import Options
from mace_target_max78000.simulate.decode import decode
from mace_target_max78000.simulate.streaming import find_minimum_wait
from mace_target_max78002.device import MAX78002


def test_quadrants_of_the_fast_fifo() -> None:
    """On in the quadrant that it feeds, and all bytes of its words unless one channel comes that is not the first processor's."""
    for processors, bits in ((0x1, 0b11), (0x7, 0b11), (0x2, 0b11)):
        layer = convolution(processors.bit_count(), 4)
        options = Options(fast_fifo=True, riscv=True)
        image = synthesize(
            network(layer, LayerPlacement(processors, 0xF0000, 0, 0x1000), np.random.default_rng(1)),
            options,
            MAX78000,
        ).image
        starts = [(step.address, step.value) for step in image.start if isinstance(step, Write)]
        first, second = (MAX78000.control_register(q, 0) for q in (0, 1))
        assert {value >> 22 & 3 for address, value in starts if address == first} == {bits}
        assert {value >> 22 & 3 for address, value in starts if address == second} == {0}
        inits = [
            step.value for step in image.init if isinstance(step, Write) and step.address in (first, second)
        ]
        assert {value >> 22 & 3 for value in inits} == {0}


# Streams


@pytest.mark.parametrize(
    ("device", "start", "wait"),
    [(MAX78000, 38, 0x110000), (MAX78002, 11, 0x20010)],
    ids=["MAX78000", "MAX78002"],
)
def test_planes_through_a_fifo_with_pooling(device: Chip, start: int, wait: int) -> None:
    """The first generation counts positions, the second one words, of which each holds four positions of a plane."""
    layer = convolution(4, 15, pool=Pool(False, (2, 2), 1))
    place = LayerPlacement(0x0001000100010001, 0xFFFE, 0, 0x400, chw=True, streaming=True)
    moved = replace(layer, dim=(11, 17))
    given = registers(moved, place, device, fifo=True)
    assert (given["STREAM1", 0], given["STREAM2", 0]) == (start, wait)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(10))
def test_streams_wait_as_long_as_their_windows_need(seed: int) -> None:
    """What the generator computes from layers and what the simulator asks for of registers are two derivations."""
    random = np.random.default_rng(seed)
    for _ in range(20):
        device = DEVICES[int(random.integers(2))]
        layers, places = _streaming(random)
        sample = np.zeros((layers[0].channels, *layers[0].dim), np.int64)
        image = synthesize(Network("net", layers, places, sample), Options(fifo=True), device).image
        values = {step.address: step.value for step in image.configure if isinstance(step, Write)}
        before = None
        for number in range(2):
            results = {
                q: {
                    n: values.get(device.layer_register(q, n, number), 0)
                    for n in (*device.registers, *device.stream_registers)
                }
                for q in image.quadrants
            }
            setting = decode(device, number, results)
            needed = find_minimum_wait(setting, before, device)
            stream = setting.stream
            assert (
                stream.start >= needed.start,
                stream.columns >= needed.columns,
                stream.rows >= needed.rows,
            ) == (True,) * 3
            before = setting


def _streaming(random: np.random.Generator) -> tuple[tuple[Layer, ...], tuple[LayerPlacement, ...]]:
    def pool() -> Pool | None:
        stride = int(random.integers(1, 4))
        return (
            Pool(False, (int(random.integers(1, 4)), int(random.integers(1, 4))), stride)
            if random.integers(2)
            else None
        )

    dim = int(random.integers(12, 40)), int(random.integers(12, 40))
    first = replace(convolution(4, 8, pool=pool()), dim=dim)
    second = replace(convolution(8, 4, pool=pool()), inputs=(0,), dim=first.out_dim, name="second")
    planar = bool(random.integers(2))
    reading = 0x0001000100010001 if planar else 0xF
    return (first, second), (
        LayerPlacement(reading, 0xFF0, 0, 0x1000, chw=planar, streaming=True),
        LayerPlacement(0xFF0, 0xF000, 0x1000, 0x4000, streaming=True),
    )


def test_options_of_streams_act_on_one_layer() -> None:
    """Those that begin with `override` are the first layer's, those that begin with `increase` the following ones'."""
    layers, places = _streaming(np.random.default_rng(3))
    sample = np.zeros((4, *layers[0].dim), np.int64)
    given = Network("net", layers, places, sample)

    def waits(**options: Any) -> list[Any]:
        return list(
            list_streams(
                make_hardware_layers(given, MAX78000), Options(fifo=True, **options), MAX78000
            ).values()
        )

    plain, told = (
        waits(),
        waits(override_start=77, override_delta1=5, override_delta2=6, override_rollover=99),
    )
    assert (told[0].start, told[0].columns, told[0].rows, told[0].rollover) == (77, 5, 6, 99)
    assert told[1] == plain[1]
    more = waits(increase_delta1=1, increase_delta2=2, increase_start=5)
    assert more[0] == plain[0]
    assert (
        more[1].columns - plain[1].columns,
        more[1].rows - plain[1].rows,
        more[1].start - plain[1].start,
    ) == (1, 2, 3)


def test_a_1x1_kernel_behind_a_stream_is_widened() -> None:
    """The layer that reads what streamed waits for rows as well, though it does not stream itself."""
    first = replace(convolution(4, 4), output=False)
    second = replace(convolution(4, 4, kernel=(1, 1), pad=(0, 0)), inputs=(0,), name="second")
    places = LayerPlacement(0xF, 0xF0, 0, 0x1000, streaming=True), LayerPlacement(0xF0, 0xF, 0x1000, 0x4000)
    given = Network("net", (first, second), places, np.zeros((4, 8, 7), np.int64))
    assert [unit.layer.kernel for unit in make_hardware_layers(given, MAX78000)] == [(3, 3), (3, 3)]
    plain = replace(given, places=tuple(replace(place, streaming=False) for place in places))
    assert [unit.layer.kernel for unit in make_hardware_layers(plain, MAX78000)] == [(3, 3), (1, 1)]
