"""A program's writes without the program: an image on the simulator, and its known answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from mace_target_max78000.device import KERNEL_BYTES
from mace_target_max78000.image import Block, Chunk, Expect, Image, Poll, Step
from mace_target_max78000.simulate.accelerator import Simulator
from mace_target_max78000.simulate.faults import SimulationError
from mace_target_max78000.simulate.memory import spread
from mace_target_max78000.simulate.registers import DONE, GO, ONE_SHOT

Watch = Callable[[Simulator, int], None]
"""Looks at the simulator after each layer, which the hardware's number tells."""


def replay(image: Image, documented: bool = False, watch: Watch | None = None) -> Simulator:
    """Write everything of an image in the order of its program, and run it.

    documented: as `Simulator` has it.

    Raises SimulationError where the hardware could not, and where it still waits for input at the end.
    """
    simulator = Simulator(image.device, documented=documented)
    if watch:
        simulator.on_layer = lambda number: watch(simulator, number)
    _load(simulator, image)
    _infer(simulator, image, image.inputs)
    return simulator


def infer_again(simulator: Simulator, image: Image, inputs: Sequence[Block]) -> None:
    """Run a program once more with other inputs, on what the inference before left in every memory, as an application does.

    Raises SimulationError as `replay` does.
    """
    for quadrant in image.quadrants:
        control = image.device.control_register(quadrant, 0)
        # What the handler of the interrupt does.
        simulator.write(control, simulator.read(control) & ~(DONE | GO))
    _infer(simulator, image, inputs)


def _load(simulator: Simulator, image: Image) -> None:
    """Write everything but the input."""
    _steps(simulator, image.init)
    for chunk in image.kernels:
        _load_run(simulator, chunk, image.packing)
    for quadrant, values in image.bias.items():
        simulator.write_block(
            image.device.bias_address(quadrant), np.frombuffer(values, np.uint8).astype("<u4").tobytes()
        )
    _steps(simulator, image.configure)


def _load_run(simulator: Simulator, chunk: Chunk, packing: bool) -> None:
    """Write a run of weights as cnn_load_weights does: through the packing loader, or four words for each word of the memory."""
    if packing:
        simulator.write(chunk.address | 1, 1, size=1)
        simulator.write_block(chunk.address, _bytes(chunk.words))
        return
    packed = np.array(chunk.words, ">u4").view(np.uint8)[: KERNEL_BYTES * chunk.count]
    address = simulator.device.kernel_address(chunk.processor, chunk.column)
    simulator.write_block(address, spread(packed.reshape(-1, KERNEL_BYTES)))


def _infer(simulator: Simulator, image: Image, inputs: Sequence[Block]) -> None:
    """Write the input and start."""
    streamed = [block for block in inputs if block.fifo is not None]
    for block in inputs:
        if block.fifo is None:
            simulator.write_block(block.address, _bytes(block.words))
    _steps(simulator, image.start)
    for block in streamed:
        simulator.write_block(block.address, _bytes(block.words))
    _continue(simulator, image)
    if not simulator.done:
        raise SimulationError("the accelerator", f"it never ends: {simulator.waits_for}")


def _continue(simulator: Simulator, image: Image) -> None:
    """Go on after every layer of a program that stops there, as cnn_continue does once the interrupt has been acknowledged."""
    control = image.device.control_register(image.quadrants[0], 0)
    while not simulator.done and not simulator.waits_for and simulator.read(control) & ONE_SHOT:
        waiting = simulator.read(control) & ~(DONE | GO)
        simulator.write(control, waiting)
        simulator.write(control, waiting | GO)


def find_mismatches(simulator: Simulator, image: Image) -> Iterator[str]:
    """Each word of the known answer that data memory does not hold."""
    for check in image.known_answer:
        found = np.frombuffer(simulator.read_block(check.address, 4 * len(check.values)), "<u4") & check.mask
        for i in np.flatnonzero(found != np.array(check.values, np.uint32)).tolist():
            yield f"{check.address + 4 * i:#x}: {int(found[i]):#010x} instead of {check.values[i]:#010x}, mask {check.mask:#010x}"


def _bytes(words: Iterable[int]) -> bytes:
    return np.fromiter(words, "<u4").tobytes()


def _steps(simulator: Simulator, steps: Iterable[Step]) -> None:
    for step in steps:
        if isinstance(step, Poll):
            if simulator.read(step.address) & step.mask != step.mask:
                raise SimulationError(
                    f"address {step.address:#x}", f"a program would wait for {step.mask:#x} without end"
                )
        elif isinstance(step, Expect):
            if simulator.read(step.address) & step.errors:
                raise SimulationError(
                    f"address {step.address:#x}", f"a program would fail because of {step.errors:#x}"
                )
        else:
            simulator.write(step.address, step.value)
