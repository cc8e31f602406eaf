"""Simulates the accelerator on its bus: what a program writes, what it starts, what it reads back.

`replay` makes the writes of a program without the program: it runs an image and compares its known answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from mace_target_max78000.device import (
    AON_CONTROL,
    FAST_FIFO,
    FIFO_CONTROL,
    FIFO_DATA,
    FIFO_STATUS,
    KERNEL_BYTES,
    PER_MEMORY,
    PER_QUADRANT,
    QUADRANTS,
    Chip,
)
from mace_target_max78000.image import Block, Chunk, Expect, Image, Poll, Step
from mace_target_max78000.simulate.data_paths import Fifos
from mace_target_max78000.simulate.memory import (
    BiasMemory,
    BusMemory,
    DataMemory,
    Gatherer,
    RowMemory,
    SimulationError,
    WeightMemory,
    spread,
)
from mace_target_max78000.simulate.registers import (
    CLEAR_BIAS,
    CLOCK,
    DONE,
    GO,
    ONE_SHOT,
    SYNC,
    RegisterFile,
    read_start,
)
from mace_target_max78000.simulate.run import ChipState, Inference

PACKING, GATHERING = 1 << 20, 1 << 16
TEST = 12
"""Offset of the self-test's register, which the vendor's programs write in quadrants without a clock, too."""


class Simulator:
    """The accelerator of one part.

    on_done: called when a network has run, as the interrupt is raised then.
    on_layer: called with the hardware's number of each layer that has been executed.

    documented: averages are rounded down, or halves up, as the vendor's document says, else towards zero, or
    halves away from it, as the vendor's tool expects.

    A network runs when the master quadrant's go bit is set; with FIFO input, when the last word of the frame
    has come.
    """

    def __init__(
        self, device: Chip, on_done: Callable[[], None] | None = None, documented: bool = False
    ) -> None:
        self.device = device
        self.data = DataMemory(device)
        self.weights = WeightMemory(device)
        self.bias = BiasMemory(device)
        self.registers = RegisterFile(device, self._act_on_control)
        self.fifos = Fifos()
        self.on_done = on_done
        self.on_layer: Callable[[int], None] | None = None
        state = device, self.registers, self.data, self.weights, self.bias, self.fifos, documented
        self._chip = ChipState(*state, on_layer=self._report_layer)
        self._gatherer = Gatherer(device, self.data)
        self._run: Inference | None = None
        self._plain: dict[int, int] = {}
        self._blocks = self._map()

    def _map(self) -> tuple[tuple[int, int, BusMemory], ...]:
        """Offsets within a quadrant, from and up to, and what lies there; first come first served."""
        device, base = self.device, self.device.control
        slots = PER_QUADRANT // PER_MEMORY
        blocks: tuple[tuple[int, int, BusMemory], ...] = (
            (device.data - base, slots * device.data_pitch, self.data),
            (device.kernels - base, PER_QUADRANT * device.kernel_pitch, self.weights),
            (device.tram - base, PER_QUADRANT * device.tram_pitch, RowMemory()),
            (device.bias - base, 4 * device.bias_bytes, self.bias),
            (device.mlator, 4, self._gatherer),
            (0, device.bias - base, self.registers),
        )
        return tuple((first, first + size, memory) for first, size, memory in blocks)

    def _find(self, address: int, size: int) -> tuple[BusMemory, int, int]:
        quadrant, offset = divmod(address - self.device.control, self.device.quadrant_pitch)
        if 0 <= quadrant < QUADRANTS:
            for first, last, memory in self._blocks:
                if first <= offset and offset + size <= last:
                    return memory, quadrant, offset - first
        raise SimulationError(
            f"address {address:#x}", f"nothing of the {self.device.name}'s accelerator lies there"
        )

    def write(self, address: int, value: int, size: int = 4) -> None:
        """Write 1, 2 or 4 bytes."""
        self.write_block(address, value.to_bytes(size, "little"))

    def write_block(self, address: int, data: bytes) -> None:
        """Write bytes to ascending addresses, words little-endian; to one FIFO all its words."""
        if address >= self.device.control:
            memory, quadrant, offset = self._find(address, len(data))
            tested = memory is self.registers and offset == TEST
            if (
                (offset or memory is not self.registers)
                and not tested
                and not self.registers.control[quadrant]["CTL"] & CLOCK
            ):
                raise SimulationError(
                    f"address {address:#x}",
                    f"quadrant {quadrant} has no clock",
                    "set bit 3 of its CTL before",
                )
            memory.write(quadrant, offset, data)
        elif FIFO_DATA <= address < FIFO_DATA + 4 * QUADRANTS:
            self.fifos.write((address - FIFO_DATA) // 4, data)
            self._go_on()
        elif address == FAST_FIFO + 0x10:
            self._fast(data)
        else:
            self._global(address)
            self._plain[address] = int.from_bytes(data, "little")
            self.fifos.control = self._plain.get(FIFO_CONTROL, 0)

    def read(self, address: int, size: int = 4) -> int:
        """Read 1, 2 or 4 bytes."""
        return int.from_bytes(self.read_block(address, size), "little")

    def read_block(self, address: int, size: int) -> bytes:
        """Read bytes from ascending addresses."""
        if address >= self.device.control:
            memory, quadrant, offset = self._find(address, size)
            return memory.read(quadrant, offset, size)
        self._global(address)
        # No FIFO is ever full: what is written is taken at once
        return (0 if address in (FIFO_STATUS, FAST_FIFO + 4) else self._plain.get(address, 0)).to_bytes(
            size, "little"
        )

    def _global(self, address: int) -> None:
        if (
            address not in (AON_CONTROL, FIFO_CONTROL, FIFO_STATUS)
            and not FAST_FIFO <= address < FAST_FIFO + 0x18
        ):
            raise SimulationError(
                f"address {address:#x}", f"nothing of the {self.device.name}'s accelerator lies there"
            )

    def _fast(self, data: bytes) -> None:
        """Write the fast FIFO: the first FIFO's words, or in its quad form a byte for each quadrant."""
        words = np.frombuffer(data, "<u4")
        quad = self.registers.control[0]["CTL"] >> 31 & 1
        for number in range(QUADRANTS if quad else 1):
            self.fifos.write(number, (words >> 8 * number & 0xFF if quad else words).astype("<u4").tobytes())
        self._go_on()

    def _act_on_control(self, quadrant: int, name: str, before: int) -> None:
        """A control register was written."""
        control = self.registers.control
        if name == "TEST" and control[quadrant]["TEST"] & CLEAR_BIAS:
            self.bias.data[quadrant] = 0
        if name != "CTL":
            return
        value = control[quadrant]["CTL"]
        self.weights.packing[quadrant] = bool(value & PACKING)
        if value & ~before & GATHERING:
            layer, wide = self.registers.layers[quadrant].get(0, {}), 8 if self.device.generation == 2 else 4
            step = (layer.get("LCTL2", 0) >> 4 & (1 << wide) - 1) + 1
            self._gatherer.start(quadrant, layer.get("WPTR_BASE", 0), step, value >> 17 & 3)
        if value & SYNC and not value & GO and not before & DONE:
            self._run = None  # a start from the first layer, not the rest of one that stopped
        if value & ~before & GO and value >> 9 & 3 == quadrant:
            self._start(quadrant)

    def _start(self, master: int) -> None:
        """Begin an inference, or go on with one that stopped after a layer."""
        if self._run is None or self._run.layer is None:
            self._run = Inference(self._chip, read_start(self.device, self.registers, master))
        self._go_on()

    def _go_on(self) -> None:
        """Run if everything is there."""
        run = self._run
        if run is None or run.layer is None or run.missing():
            return
        run.go_on()
        for quadrant in run.start.quadrants:
            self.registers.control[quadrant]["CTL"] |= DONE
        if self.on_done:
            self.on_done()

    def _report_layer(self, number: int) -> None:
        if self.on_layer:
            self.on_layer(number)

    @property
    def done(self) -> bool:
        """Whether the network that was started last has run to its end."""
        return self._run is not None and self._run.layer is None

    @property
    def waits_for(self) -> str:
        """What an inference still waits for; empty where it does not."""
        return self._run.missing() if self._run else "a start"


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
    """Run a program once more with other inputs, on the memories as the last inference left them.

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
    """Write a run of weights as cnn_load_weights does.

    That is through the packing loader, or four words for each word of the memory.
    """
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
    """Go on after every layer of a program that stops there.

    This is what cnn_continue does once the interrupt has been acknowledged.
    """
    control = image.device.control_register(image.quadrants[0], 0)
    while not simulator.done and not simulator.waits_for and simulator.read(control) & ONE_SHOT:
        waiting = simulator.read(control) & ~(DONE | GO)
        simulator.write(control, waiting)
        simulator.write(control, waiting | GO)


def find_mismatches(simulator: Simulator, image: Image) -> Iterator[str]:
    """Yield each word of the known answer that data memory does not hold."""
    for check in image.known_answer:
        words = np.frombuffer(simulator.read_block(check.address, 4 * len(check.values)), "<u4") & check.mask
        for i in np.flatnonzero(words != np.array(check.values, np.uint32)).tolist():
            expected = f"{check.values[i]:#010x}, mask {check.mask:#010x}"
            yield f"{check.address + 4 * i:#x}: {int(words[i]):#010x} instead of {expected}"


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
