"""Writes to the simulated memories that no program may make, and what they hold afterwards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_simulator import CLOCK, DEVICES, SYNC, network, program

from mace_frontend_ai8x.network import INPUT, Layer, LayerPlacement, Network, Operation, Weights
from mace_target_max78000.device import FAST_FIFO, MAX78000, QUADRANTS, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.image import Image, Write
from mace_target_max78000.options import Options
from mace_target_max78000.simulate import SimulationError, Simulator, find_mismatches, replay

PACKING = 1 << 20
BOTH = pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)


def simulator_of(device: Chip, control: int = 0) -> Simulator:
    simulator = Simulator(device)
    simulator.write(device.control_register(0, 0), CLOCK | control)
    return simulator


@BOTH
def test_the_packing_loader_takes_one_command(device: Chip) -> None:
    simulator = simulator_of(device, PACKING)
    with pytest.raises(
        SimulationError, match=r"weight memory of processor 3: the loader takes a byte 1, not 2"
    ):
        simulator.write(device.kernel_address(3, 0) | 1, 2, size=1)
    with pytest.raises(SimulationError, match="2 bytes at 0x0; weights are written as words"):
        simulator.write(device.kernel_address(0, 0), 0, size=2)


@BOTH
def test_a_word_of_weights_is_written_from_its_first_part_on(device: Chip) -> None:
    simulator = simulator_of(device)
    with pytest.raises(SimulationError, match="is completed at 0x1c that was not begun"):
        simulator.write(device.kernel_address(0, 1) + 12, 0)
    parts = (0x01, 0x02030405, 0x06070809, 0)
    for i, part in enumerate(parts):
        simulator.write(device.kernel_address(0, 1) + 4 * i, part)
    assert tuple(simulator.read(device.kernel_address(0, 1) + 4 * i) for i in range(4)) == parts
    assert simulator.weights.data[0, 1].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]


@BOTH
@pytest.mark.parametrize(("quad", "words"), [(0, [0x04030201]), (1, [1, 2, 3, 4])])
def test_a_fast_fifo_feeds_the_first_fifo_or_a_byte_to_each(
    device: Chip, quad: int, words: list[int]
) -> None:
    simulator = simulator_of(device, quad << 31)
    simulator.write(FAST_FIFO + 0x10, 0x04030201)
    waiting = [word for number in range(QUADRANTS) for word in simulator.fifos.take(number, 1).tolist()]
    assert waiting == words


@BOTH
def test_weights_are_read_within_their_memory(device: Chip) -> None:
    simulator = simulator_of(device)
    last = device.kernel_capacity(5)
    assert simulator.read_block(device.kernel_address(5, last - 1), 16) == bytes(16)
    with pytest.raises(SimulationError, match=f"words {last} to {last + 1} are read, {last} exist"):
        simulator.read_block(device.kernel_address(5, last), 16)


@BOTH
def test_a_row_memory_holds_nothing_that_is_read(device: Chip) -> None:
    simulator = simulator_of(device)
    simulator.write(device.tram, 0x1234)
    assert simulator.read(device.tram) == 0


@BOTH
def test_gathered_bytes_are_read_while_they_are_switched_on(device: Chip) -> None:
    simulator = simulator_of(device)
    address = device.control + device.mlator
    with pytest.raises(SimulationError, match="gathered bytes: they can only be read"):
        simulator.write(address, 0)
    with pytest.raises(SimulationError, match="read while switched off; set bit 16 of CTL"):
        simulator.read(address)
    # Of four positions from here on, the last one lies behind the last data memory.
    memory, word = 15, device.data_bytes // 4 - 3
    simulator.write(device.layer_register(0, "WPTR_BASE", 0), memory << device.offset_bits | word)
    simulator.write(device.control_register(0, 0), CLOCK | 1 << 16)
    assert simulator.read(address) == 0
    with pytest.raises(SimulationError, match=f"memory 15, byte {device.data_bytes:#x}: there is none"):
        simulator.read(address)


def last_start(image: Image, bits: int) -> Image:
    """The same program with other bits in the write that starts its master."""
    *others, master = image.start
    assert isinstance(master, Write)
    return replace(image, start=(*others, Write(master.address, master.value ^ bits)))


def with_control(image: Image, number: int, value: int, quadrants: tuple[int, ...] = (0, 1)) -> Image:
    writes = tuple(Write(image.device.control_register(q, number), value) for q in quadrants)
    return replace(image, configure=(*image.configure, *writes))


@BOTH
def test_starts_that_quadrants_are_not_ready_for(device: Chip) -> None:
    image = program(device)
    with pytest.raises(SimulationError, match="the master waits for a start from elsewhere; clear bit 11"):
        replay(last_start(image, SYNC))
    with pytest.raises(SimulationError, match="layers 3 to 1, "):
        replay(with_control(image, 2, 3 << 8 | 1))
    with pytest.raises(SimulationError, match=f"layers 0 to {device.layers}, {device.layers} exist"):
        replay(with_control(image, 2, device.layers))
    with pytest.raises(SimulationError, match="quadrant 1, SRAM control: 0x0: memories are not switched on"):
        replay(with_control(image, 1, 0, (1,)))
    with pytest.raises(SimulationError, match="quadrant 1, LCNT: counts other layers than the master does"):
        replay(with_control(image, 2, 0, (1,)))
    bit = Image(
        **{**image.__dict__, "start": tuple(Write(s.address, s.value | 1 << 19) for s in image.start)}
    )
    with pytest.raises(SimulationError, match="bit 19 belongs to streaming from a FIFO, and only there"):
        replay(bit)


@BOTH
def test_bits_of_the_control_register_that_mean_nothing(device: Chip) -> None:
    """Bit 30, for weights of one bit that stand for -1 and 1, is the second generation's; bit 31 a fast FIFO's."""
    image = program(device)
    unknown = []
    for bit in range(32):
        start = tuple(Write(s.address, s.value | 1 << bit) for s in image.start if isinstance(s, Write))
        try:
            replay(replace(image, start=start))
        except SimulationError as error:
            if f"bits {1 << bit:#x} mean nothing here" in str(error):
                unknown.append(bit)
    assert unknown == [24, 25, 26, 27, 28, 29, *([30] if device is MAX78000 else []), 31]


@BOTH
def test_self_tests_end_without_faults(device: Chip) -> None:
    image = synthesize(network(), Options(zero_sram=True), device).image
    assert list(find_mismatches(replay(image), image)) == []


@BOTH
def test_sums_that_no_float32_holds_are_exact(device: Chip) -> None:
    """127 * 127 * 9 taps * 192 channels is above 2 ** 24, where a float32 holds even numbers only."""
    sample = np.full((192, 3, 3), 127)
    sample[0, 1, 1] = 126
    layer = Layer(
        "sums",
        Operation.CONV2D,
        (INPUT,),
        192,
        (3, 3),
        4,
        weights=Weights(np.full((4, 192, 3, 3), 127)),
        kernel=(3, 3),
        pad=(1, 1),
        wide=True,
        output=True,
    )
    place = LayerPlacement((1 << 64) - 1, 0xF, out_offset=0x1000)
    image = synthesize(Network("sums", (layer,), (place,), sample), Options(), device).image
    expected = 127 * 127 * 9 * 192 - 127
    assert expected > 1 << 24
    assert any(expected in check.values for check in image.known_answer)
    assert list(find_mismatches(replay(image), image)) == []


def test_chunks_hold_the_words_that_they_count() -> None:
    chunks = program(MAX78000).kernels
    assert any(chunk.column for chunk in chunks)
    for chunk in chunks:
        assert len(chunk.words) == -(-9 * chunk.count // 4)


@BOTH
def test_only_the_test_register_clears_the_bias(device: Chip) -> None:
    simulator = simulator_of(device)
    simulator.bias.data[0, 3] = simulator.bias.data[1, 3] = 7
    simulator.write(device.control_register(0, 1), 1 << 10)
    assert simulator.bias.data[0, 3] == 7
    simulator.write(device.control_register(0, 3), 1 << 10)
    assert (simulator.bias.data[0, 3], simulator.bias.data[1, 3]) == (0, 7)
