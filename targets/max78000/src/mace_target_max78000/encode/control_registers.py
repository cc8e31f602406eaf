"""Encodes the steps that bring the accelerator up and start it.

These write the registers that each quadrant has once, not those of layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mace_target_max78000.device import AON_CONTROL, FAST_FIFO, FIFO_CONTROL, PER_QUADRANT, QUADRANTS, Chip
from mace_target_max78000.encode.hardware_layers import HardwareLayer
from mace_target_max78000.image import Expect, Poll, Step, Write
from mace_target_max78000.options import Options

CLOCK = 1 << 3
SRAM = 0x40E
CLEAR = 0x1880
CLEAR_BIAS = 1 << 10
CLEARED = 1 << 25
EXTERNAL_SYNC = 1 << 11
SELF_TESTS = (
    *((1 << 0, 1 << 27 | 1 << 18, 1 << 14), (1 << 2, 1 << 27 | 1 << 19, 1 << 15)),
    *((1 << 4, 1 << 27 | 1 << 20, 1 << 16), (1 << 6, 1 << 27 | 1 << 21, 1 << 17)),
)
"""Self-tests of data, masks, row memories and bias on the first generation, which leave zeros.

Each is three masks: the bits that start it, that it has ended, and that it has failed.  Source: what the
vendor's programs write.
"""
SELF_TESTS_2 = (
    *((0x1001, 1 << 18, 1 << 14), (0x2004, 1 << 19, 1 << 15)),
    *((0x3010, 1 << 20, 1 << 16), (0x1C40, 1 << 21, 1 << 17)),
)
"""The same on the second generation."""
FIFO_PROCESSORS = 0xF
"""Processors of a quadrant that its FIFO feeds."""
CONDITION_REGISTERS = 24
"""Of both conditions together; what a description lists beyond are results to check."""


class Control:
    """Values and order of the control registers for one network."""

    def __init__(
        self, units: Sequence[HardwareLayer], quadrants: Sequence[int], options: Options, device: Chip
    ) -> None:
        self.units = units
        self.quadrants = quadrants
        self.options = options
        self.device = device

    @property
    def fifo(self) -> bool:
        """Whether input comes through any FIFO."""
        return self.options.fifo or self.options.fast_fifo

    @property
    def streaming(self) -> bool:
        """Whether any layer streams."""
        return any(u.place.streaming for u in self.units)

    @property
    def stopped(self) -> int:
        """The control register while nothing runs, without wait states."""
        options = self.options
        # Bit 20 packs written words to 72 bits; bit 5 turns off the pipeline of the second generation.
        flags = (
            (options.mexpress, 20),
            (self.device.features.pipeline and not options.pipeline, 5),
        )
        return CLOCK | sum(1 << bit for flag, bit in flags if flag)

    def init(self, layers: int, biased: bool) -> Iterator[Step]:
        """cnn_init: clocks, memories, and on the second generation registers cleared.

        layers: in hardware.
        """
        second_generation = self.device.generation == 2
        wait = self.options.ready_sel << 1
        if second_generation:
            yield from self._all(0, CLOCK | (not self.options.pipeline) << 5 | wait)
        yield Write(AON_CONTROL, self.options.ready_sel_aon)
        if second_generation:
            # The second generation does not start with zeros in its layer registers. They are cleared
            # here, because the program writes no register whose value is zero.
            yield from self._all(1, SRAM)
            yield from self._all(3, CLEAR | (CLEAR_BIAS if biased else 0))
            yield from (Poll(self.device.control_register(q, 3), CLEARED) for q in self.quadrants)
            yield from self._all(3, 0)
        stop = self.stopped | self._fifo_enable | wait
        counts = layers - 1 | self.options.start_layer << 8
        for quadrant in self.quadrants:
            yield Write(self.device.control_register(quadrant, 0), stop)
            if not second_generation:
                yield Write(self.device.control_register(quadrant, 1), SRAM)
            if counts or self.options.write_zero_registers:
                yield Write(self.device.control_register(quadrant, 2), counts)

        if self.options.zero_sram:
            yield from self._cleared_memories()

    def _cleared_memories(self) -> Iterator[Step]:
        """Yield the self-tests of all memories of all quadrants, one kind after another."""
        registers = [self.device.control_register(quadrant, 3) for quadrant in range(QUADRANTS)]
        for begin, ended, failed in SELF_TESTS_2 if self.device.generation == 2 else SELF_TESTS:
            yield from (Write(register, begin) for register in registers)
            yield from (Poll(register, ended) for register in registers)
            yield from (Expect(register, failed) for register in registers)
            yield from (Write(register, 0) for register in registers)

    def start(self, conditional: bool) -> Iterator[Step]:
        """cnn_start: every quadrant made ready, the master last.

        conditional: some layers run under conditions only.
        """
        # The pipeline has wait states of its own, which are 0.
        waits = not (self.device.features.pipeline and self.options.pipeline)
        common = self._common | conditional << 7 | (self.options.ready_sel << 1 if waits else 0)
        # All other quadrants are started first and wait for the master, so that they begin in the same
        # cycle.
        master = self.quadrants[0]
        for quadrant in self.quadrants:
            value = (
                common
                | self._fifo_enable
                | self._fast(quadrant)
                | EXTERNAL_SYNC
                | master << 9
                | (quadrant != master)
            )
            yield Write(self.device.control_register(quadrant, 0), value)
        if self.options.powerdown:
            unused = sum(1 << quadrant for quadrant in range(QUADRANTS) if quadrant not in self.quadrants)
            yield Write(AON_CONTROL, unused << 12 | self.options.ready_sel_aon)
        loaded = self._fifo_enable if self._loads(master) else 0
        # the master's number is not repeated here: it is the first quadrant, whose number is 0
        yield Write(self.device.control_register(master, 0), common | loaded | self._fast(master) | 1)

    def conditions(self, snoop: Sequence[int]) -> Iterator[Step]:
        """Yield the registers of both conditions in every quadrant; zeros are what they hold anyway."""
        for quadrant in self.quadrants if snoop else ():
            for number, value in enumerate(snoop[:CONDITION_REGISTERS]):
                if value or self.options.write_zero_registers:
                    yield Write(self.device.condition_register(quadrant, number), value)

    def _loads(self, quadrant: int) -> bool:
        """Whether input comes into the quadrant through a FIFO."""
        return self.fifo and bool(self.units[0].place.processors >> quadrant * PER_QUADRANT & FIFO_PROCESSORS)

    def _fast(self, quadrant: int) -> int:
        """Return the fast FIFO's switches in a quadrant that it feeds: on, and all four bytes of its words.

        A single channel in planes that is not processor 0's comes in a byte of its own.
        """
        if not self.options.fast_fifo or not self._loads(quadrant):
            return 0
        processors = self.units[0].place.processors
        several = processors == 1 or processors & 0xE
        return 1 << 22 | bool(several) << 23

    def fifo_control(self) -> Iterator[Step]:
        """Yield the FIFO's thresholds and channels, at the end of cnn_configure."""
        if self.options.fast_fifo:
            yield Write(FAST_FIFO + 8, 0)
            yield Write(FAST_FIFO, 10 << 4)
        elif self.options.fifo:
            # The numbers are those of the vendor's programs; bit 11 is set on the first generation only.
            value = (
                2 << 2
                | 2 << 7
                | self.options.ready_sel_fifo
                | (1 << 11 if self.device.generation == 1 else 0)
            )
            yield Write(FIFO_CONTROL, value | self._channels << 12)

    @property
    def _channels(self) -> int:
        """FIFOs in use, by bit."""
        first = self.units[0]
        inputs = range(min(first.layer.channels, QUADRANTS))
        return sum(1 << i for i in inputs if first.place.processors >> i * PER_QUADRANT & 1)

    @property
    def _fifo_enable(self) -> int:
        return self.fifo << 15

    @property
    def _common(self) -> int:
        options, first = self.options, self.units[0]
        binary = any(u.layer.weights is not None and u.layer.weights.binary for u in self.units)
        big = self.device.generation == 2 and first.place.streaming and first.place.chw
        flags = (
            (self.streaming, 14),
            (options.avg_pool_rounding, 13),
            (options.simple1b, 21),
            (self.fifo, 11),
            (self.fifo and self.streaming, 19),
            (binary, 30),
            (big, 6),
            (options.one_shot, 8),
            (options.fast_fifo_quad, 31),
            (options.ext_rdy, 4),
        )
        return self.stopped | sum(1 << bit for flag, bit in flags if flag)

    def _all(self, number: int, value: int) -> Iterator[Step]:
        return (Write(self.device.control_register(q, number), value) for q in self.quadrants)
