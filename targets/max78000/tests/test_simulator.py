"""The simulator's bus, loader, start and faults, on small networks made by hand.

The answer is that of plain numpy.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mace_frontend_ai8x.network import (
    INPUT,
    Layer,
    LayerActivation,
    LayerPlacement,
    Network,
    Operation,
    Pool,
    Weights,
)
from mace_target_max78000 import simulate as simulator_package
from mace_target_max78000.device import FIFO_CONTROL, FIFO_DATA, FIFO_STATUS, MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.image import Check, Image, Poll, Step, Write
from mace_target_max78000.options import Options
from mace_target_max78000.simulate import SimulationError, Simulator, find_mismatches, replay
from mace_target_max78002.device import MAX78002

DEVICES = [MAX78000, MAX78002]
GO, CLOCK, SYNC, DONE = 1, 1 << 3, 1 << 11, 1 << 12


def network(streaming: bool = False) -> Network:
    """Two convolutions of 3 and 20 channels of 8x7; the second pools."""
    random = np.random.default_rng(7)
    first = Layer(
        "first",
        Operation.CONV2D,
        (INPUT,),
        3,
        (8, 7),
        20,
        weights=Weights(random.integers(-128, 128, (20, 3, 3, 3))),
        bias=None if streaming else random.integers(-128, 128, 20),
        kernel=(3, 3),
        pad=(1, 1),
        activation=LayerActivation.RELU,
    )
    second = Layer(
        "second",
        Operation.CONV2D,
        (0,),
        20,
        (8, 7),
        5,
        weights=Weights(random.integers(-8, 8, (5, 20, 3, 3)), bits=4),
        kernel=(3, 3),
        pad=(1, 1),
        pool=Pool(average=False, size=(2, 2), stride=2),
        output=True,
    )
    places = (
        LayerPlacement(0x7, 0xFFFFF, out_offset=0x800, streaming=streaming),
        LayerPlacement(0xFFFFF, 0x1F, in_offset=0x800, out_offset=0x2000, streaming=streaming),
    )
    return Network("two", (first, second), places, random.integers(-128, 128, (3, 8, 7)))


def program(device: Chip, fifo: bool = False) -> Image:
    """Everything that the program of that network writes."""
    return synthesize(network(fifo), Options(fifo=fifo), device).image


def answer(image: Image) -> np.ndarray:
    """The second layer's result by plain numpy: int64 [5, 4, 3]."""
    result = network(bool(image.inputs[0].fifo is not None))
    x = result.sample
    for layer in result.layers:
        if layer.pool:
            x = np.max([x[:, i:8:2, j : j + 5 : 2] for i in range(2) for j in range(2)], axis=0)
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(x, ((0, 0), (1, 1), (1, 1))), (3, 3), axis=(1, 2)
        )
        assert layer.weights is not None
        sums = np.einsum("cyxij,ocij->oyx", windows, layer.weights.values)
        sums += 0 if layer.bias is None else 128 * layer.bias[:, None, None]
        x = np.clip(
            (sums * 2**layer.shift + 64) >> 7, 0 if layer.activation is LayerActivation.RELU else -128, 127
        )
    return x


def read_result(simulator: Simulator) -> np.ndarray:
    """The result in data memory: int8 [5, 4, 3]."""
    device = simulator.device
    memories = [
        np.frombuffer(simulator.read_block(device.data_address(p, 0x2000), 48), np.int8).reshape(12, 4)
        for p in (0, 4)
    ]
    return np.concatenate(memories, axis=1)[:, :5].T.reshape(5, 4, 3)


def with_register(
    image: Image, name: str, change: Callable[[int], int], layer: int, quadrants: Iterable[int]
) -> Image:
    """The same program with another value in a layer's register of these quadrants."""
    writes = []
    for quadrant in quadrants:
        address = image.device.layer_register(quadrant, name, layer)
        before = sum(
            step.value for step in image.configure if isinstance(step, Write) and step.address == address
        )
        writes.append(Write(address, change(before)))
    return replace(image, configure=(*image.configure, *writes))


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("fifo", [False, True], ids=["memory", "fifo"])
def test_computes_what_the_layers_say(device: Chip, fifo: bool) -> None:
    image = program(device, fifo)
    assert np.array_equal(read_result(replay(image)), answer(image))


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_known_answer_is_compared_word_by_word(device: Chip) -> None:
    image = program(device)
    simulator = replay(image)
    assert list(find_mismatches(simulator, image)) == []
    first = image.known_answer[0]
    wrong = replace(
        image,
        known_answer=(
            Check(first.address, first.mask, (first.values[0] ^ 1, *first.values[1:])),
            *image.known_answer[1:],
        ),
    )
    assert [m.split(":")[0] for m in find_mismatches(simulator, wrong)] == [f"{first.address:#x}"]


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_weights_without_the_packing_loader(device: Chip) -> None:
    image = program(device)
    packed = replay(image)
    simulator = Simulator(device)
    run(
        simulator, (Write(s.address, s.value & ~(1 << 20)) if isinstance(s, Write) else s for s in image.init)
    )
    for chunk in image.kernels:
        data = np.array(chunk.words, ">u4").tobytes()
        for i in range(chunk.count):
            word = int.from_bytes(data[9 * i : 9 * i + 9], "big")
            for j, value in enumerate((word >> 64, word >> 32 & 0xFFFFFFFF, word & 0xFFFFFFFF, 0)):
                simulator.write(device.kernel_address(chunk.processor, chunk.column + i) + 4 * j, value)
    for chunk in image.kernels:
        address, size = device.kernel_address(chunk.processor, chunk.column), 16 * chunk.count
        assert simulator.read_block(address, size) == packed.read_block(address, size)


def run(simulator: Simulator, steps: Iterable[Step]) -> None:
    """Writes one by one."""
    for step in steps:
        if isinstance(step, Write):
            simulator.write(step.address, step.value)


def load(simulator: Simulator, image: Image) -> None:
    """Everything up to the start, word by word as a processor does."""
    run(simulator, image.init)
    for chunk in image.kernels:
        simulator.write(chunk.address | 1, 1, size=1)
        for i, word in enumerate(chunk.words):
            simulator.write(chunk.address + 4 * i, word)
    for quadrant, values in image.bias.items():
        for i, value in enumerate(values):
            simulator.write(image.device.bias_address(quadrant) + 4 * i, value)
    run(simulator, image.configure)
    for block in image.inputs:
        for i, word in enumerate(block.words if block.fifo is None else ()):
            simulator.write(block.address + 4 * i, word)


def test_interrupt_and_a_second_inference() -> None:
    image = program(MAX78000)
    done: list[bool] = []
    simulator = Simulator(MAX78000, on_done=lambda: done.append(simulator.done))
    load(simulator, image)
    control = MAX78000.control_register(0, 0)
    run(simulator, image.start[:-1])
    assert not done
    run(simulator, image.start[-1:])
    assert done == [True]
    assert simulator.read(control) & DONE
    first = read_result(simulator)
    simulator.write(control, simulator.read(control) & ~(DONE | GO))
    simulator.write_block(image.device.data_address(0, 0x2000), bytes(48))
    assert not np.array_equal(read_result(simulator), first)
    run(simulator, image.start)
    assert np.array_equal(read_result(simulator), first)
    assert len(done) == 2


def test_one_layer_at_a_time() -> None:
    image = program(MAX78000)
    done: list[int] = []
    simulator = Simulator(MAX78000, on_done=lambda: done.append(1))
    load(simulator, image)
    run(simulator, (Write(s.address, s.value | 1 << 8) for s in image.start if isinstance(s, Write)))
    assert len(done) == 1
    assert not simulator.done
    control = MAX78000.control_register(0, 0)
    simulator.write(control, simulator.read(control) & ~(DONE | GO))
    simulator.write(control, simulator.read(control) | GO)
    assert simulator.done
    assert len(done) == 2
    assert np.array_equal(read_result(simulator), answer(image))


def test_waits_for_the_whole_frame() -> None:
    image = program(MAX78000, fifo=True)
    simulator = Simulator(MAX78000)
    load(simulator, image)
    run(simulator, image.start)
    (block,) = image.inputs
    for word in block.words[:-1]:
        assert not simulator.read(FIFO_STATUS)
        simulator.write(block.address, word)
    assert simulator.waits_for == "FIFO 0 had 55 of 56 words"
    simulator.write(block.address, block.words[-1])
    assert simulator.done
    assert np.array_equal(read_result(simulator), answer(image))


def test_a_frame_that_is_too_short() -> None:
    image = program(MAX78000, fifo=True)
    (block,) = image.inputs
    with pytest.raises(SimulationError, match="never ends: FIFO 0 had 50 of 56 words"):
        replay(replace(image, inputs=(replace(block, words=block.words[:50]),)))


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_gathers_four_positions_of_a_channel(device: Chip) -> None:
    image = program(device)
    simulator = replay(image)
    expected = answer(image)[2].astype(np.int8).reshape(-1)
    control = device.control_register(0, 0)
    simulator.write(device.layer_register(0, "WPTR_BASE", 0), 0x2000 // 4)
    simulator.write(device.layer_register(0, "LCTL2", 0), 0)
    simulator.write(control, CLOCK | 1 << 16 | 2 << 17)
    simulator.read(device.control + device.mlator)
    words = [simulator.read(device.control + device.mlator) for _ in range(3)]
    assert np.array_equal(np.array(words, "<u4").view(np.int8), expected)


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_memory_reads_back(device: Chip) -> None:
    simulator = Simulator(device)
    for quadrant in range(4):
        simulator.write(device.control_register(quadrant, 0), CLOCK)
    simulator.write_block(device.data_address(63, device.data_bytes - 4), b"\x01\x02\x03\x04")
    assert simulator.read(device.data_address(63, device.data_bytes - 4)) == 0x04030201
    assert simulator.read(device.data_address(63, device.data_bytes - 1), size=1) == 4
    simulator.write(device.bias_address(2) + 8, 0x1F0)
    assert simulator.read(device.bias_address(2) + 8) == 0xF0
    simulator.write(device.layer_register(3, "ENA", 5), 0x10001)
    assert simulator.read(device.layer_register(3, "ENA", 5)) == 0x10001
    simulator.write(FIFO_CONTROL, 0x1108)
    assert simulator.read(FIFO_CONTROL) == 0x1108


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_addresses_where_nothing_lies(device: Chip) -> None:
    simulator = Simulator(device)
    simulator.write(device.control_register(0, 0), CLOCK)
    for address in (
        device.data_address(12, device.data_bytes),
        device.bias_address(0) + 4 * device.bias_bytes,
        device.control + 4 * device.quadrant_pitch,
        device.control + (0x20 if device.generation == 2 else 0x99C),
        0x50002000,
    ):
        with pytest.raises(SimulationError):
            simulator.write(address, 1)
    with pytest.raises(
        SimulationError,
        match=rf"words {device.kernel_words} to {device.kernel_words + 1}, {device.kernel_words} exist",
    ):
        simulator.write_block(device.kernel_address(5, device.kernel_words), bytes(16))


def test_second_generation_must_clear_its_registers() -> None:
    image = program(MAX78002)
    polls = [s for s in image.init if isinstance(s, Poll)]
    test = {p.address for p in polls}
    assert test
    without = replace(image, init=tuple(s for s in image.init if s.address not in test))
    with pytest.raises(SimulationError, match="never cleared"):
        replay(without)
    with pytest.raises(SimulationError, match="quadrant 0 has no clock"):
        replay(replace(image, init=tuple(s for s in image.init if s.address != image.device.control)))
    with pytest.raises(SimulationError, match="wait for 0x2000000 without end"):
        replay(
            replace(image, init=tuple(s for s in image.init if isinstance(s, Poll) or s.address not in test))
        )


def test_loader_takes_words_in_order() -> None:
    simulator = Simulator(MAX78000)
    simulator.write(MAX78000.control_register(0, 0), CLOCK | 1 << 20)
    address = MAX78000.kernel_address(1, 0)
    with pytest.raises(SimulationError, match="processor 1: a word at 0x0"):
        simulator.write(address, 1)
    simulator.write(address | 1, 1, size=1)
    simulator.write(address, 0x01020304)
    with pytest.raises(SimulationError, match="where the loader is at 0x4"):
        simulator.write(address + 8, 1)


def test_no_run_begins_while_the_packing_loader_is_off() -> None:
    simulator = Simulator(MAX78000)
    simulator.write(MAX78000.control_register(0, 0), CLOCK)
    with pytest.raises(
        SimulationError, match="processor 1: a run begins while the packing loader is off; set bit 20 of CTL"
    ):
        simulator.write(MAX78000.kernel_address(1, 0) | 1, 1, size=1)


def test_registers_bias_and_fifos_are_words() -> None:
    simulator = Simulator(MAX78000)
    simulator.write(MAX78000.control_register(0, 0), CLOCK)
    for address in (MAX78000.layer_register(0, "ENA", 0), MAX78000.bias_address(0), FIFO_DATA):
        with pytest.raises(SimulationError, match="1 bytes are written where there are words"):
            simulator.write(address, 1, size=1)
    with pytest.raises(SimulationError, match="there is none"):
        simulator.write(MAX78000.layer_register(0, "ENA", 0) + 2, 1)


def test_knows_only_the_device_and_the_image() -> None:
    """And how to multiply matrices, and to word a count."""
    folder = Path(simulator_package.__file__).parent
    imported = {
        name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        for name in [".".join(node.module.split(".")[:2])]
        if node.module.startswith("mace_") and not node.module.startswith("mace_core")
    }
    package = "mace_target_max78000"
    assert imported == {
        *(f"{package}.{name}" for name in ("device", "image", "simulate", "wording")),
        "mace_frontend_ai8x.products",
    }
