"""What differs between the parts of the family, as one table for each: addresses, memories, registers, limits.

Addresses are bytes on the processor's bus.  A quadrant is 16 processors; four processors share a data memory.
Source: the maker's AHB address tables and training-and-synthesis document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

PROCESSORS = 64
QUADRANTS = 4
PER_QUADRANT = 16
PER_MEMORY = 4
"""Processors that share one data memory."""
KERNEL_BYTES = 9
"""Bytes of a word of weight memory."""
STREAM_LAYERS = 8
"""Layers that can stream."""

FIFO_CONTROL = 0x50000000
FIFO_STATUS = 0x50000004
FIFO_DATA = 0x50000008
AON_CONTROL = 0x50001000
FAST_FIFO = 0x400C0400


@dataclass(frozen=True)
class Device:
    """One part.

    quadrant_pitch: bytes between the same thing of two quadrants.
    registers: number of each register of a layer; of a register that lies elsewhere, see `layer_register`.
    kernel_words: words of 72 bits of a processor's weight memory; the first processor of a quadrant may have
    more.
    data_bytes: of one data memory.  data_pitch: bytes between two data memories.  tram_words: of one
    processor.
    bias_bytes: of one quadrant.  offset_bits: bits of a word's number in a write pointer (the number of the
    memory lies above).
    largest: rows or columns of a layer's input or output.  flash, sram: bytes that the processor beside the
    accelerator has.
    """

    name: str
    quadrant_pitch: int
    control: int
    layers: int
    registers: Mapping[str, int]
    registers_base: int
    register_pitch: int
    layer_pitch: int
    stream_registers: Mapping[str, int]
    frame: int
    conditions: int | None
    """Where the registers for conditional layers lie; None where there are none."""
    mlator: int
    bias: int
    bias_bytes: int
    tram: int
    tram_pitch: int
    tram_words: int
    kernels: int
    kernel_pitch: int
    kernel_words: int
    first_kernel_words: int
    data: int
    data_pitch: int
    data_bytes: int
    offset_bits: int
    largest: int
    channels: int
    flash: int
    sram: int
    pipelined: bool
    """Whether it has the second generation's features: depthwise, dilated pools, conditional layers, a pipeline, binary weights."""

    hertz: int
    """What the accelerator runs at unless its clock is divided."""

    peripheral_hertz: int
    """Half of the processor's clock, which the accelerator may run at as well."""

    def control_register(self, quadrant: int, number: int) -> int:
        """The address of a register that a quadrant has once: 0 control, 1 SRAM control, 2 layer count, 3 SRAM test."""
        return self.control + quadrant * self.quadrant_pitch + 4 * number

    def layer_register(self, quadrant: int, name: str, layer: int) -> int:
        """The address of a layer's register; IFRM, a quadrant's only one, has no layer."""
        base = self.control + quadrant * self.quadrant_pitch
        if name == "IFRM":
            return base + self.frame
        if name in self.stream_registers:
            return base + self.stream_registers[name] + 4 * layer
        return (
            base + self.registers_base + self.registers[name] * self.register_pitch + layer * self.layer_pitch
        )

    def has_stream_registers(self, layer: int) -> bool:
        """Whether the layer has STREAM1 and STREAM2: the second generation has them for the layers that can stream.

        What lies at the address of a later layer's is a register of the first layers, or of the FIFO.
        """
        return layer < (STREAM_LAYERS if self.stream_registers else self.layers)

    def condition_register(self, quadrant: int, number: int) -> int:
        """The address of a register of the conditions under which layers run."""
        assert self.conditions is not None
        return self.control + quadrant * self.quadrant_pitch + self.conditions + 4 * number

    def kernel_address(self, processor: int, word: int) -> int:
        """The address of a word of a processor's weight memory; words are 16 bytes apart."""
        quadrant, p = divmod(processor, PER_QUADRANT)
        return self.kernels + quadrant * self.quadrant_pitch + p * self.kernel_pitch + 16 * word

    def kernel_capacity(self, processor: int) -> int:
        """Words of a processor's weight memory."""
        return self.kernel_words if processor % PER_QUADRANT else self.first_kernel_words

    def bias_address(self, quadrant: int) -> int:
        """The address of a quadrant's bias memory: a byte in each 32-bit word."""
        return self.bias + quadrant * self.quadrant_pitch

    def data_address(self, processor: int, offset: int = 0) -> int:
        """The address of a byte offset in the data memory that a processor reads."""
        quadrant, p = divmod(processor, PER_QUADRANT)
        return self.data + quadrant * self.quadrant_pitch + p // PER_MEMORY * self.data_pitch + offset


MAX78000 = Device(
    name="MAX78000",
    quadrant_pitch=0x400000,
    control=0x50100000,
    layers=32,
    registers={
        name: number
        for number, name in enumerate(
            (
                *(
                    "RCNT",
                    "CCNT",
                    "ONED",
                    "PRCNT",
                    "PCCNT",
                    "STRIDE",
                    "WPTR_BASE",
                    "WPTR_TOFFS",
                    "WPTR_MOFFS",
                    "WPTR_CHOFFS",
                ),
                *("RPTR_BASE", "LCTL", "MCNT", "TPTR", "ENA", "POST", "STREAM1", "STREAM2", "FMAX"),
            )
        )
    }
    | {"LCTL2": 20},
    registers_base=0x10,
    register_pitch=0x80,
    layer_pitch=4,
    stream_registers={},
    frame=0x990,
    conditions=None,
    mlator=0x1000,
    bias=0x50108000,
    bias_bytes=512,
    tram=0x50110000,
    tram_pitch=0x4000,
    tram_words=3072,
    kernels=0x50180000,
    kernel_pitch=0x4000,
    kernel_words=768,
    first_kernel_words=768,
    data=0x50400000,
    data_pitch=0x8000,
    data_bytes=0x8000,
    offset_bits=13,
    largest=1024,
    channels=1024,
    flash=0x80000,
    sram=0x20000,
    pipelined=False,
    hertz=50_000_000,
    peripheral_hertz=50_000_000,
)

DEVICE_NAMES = ("MAX78000", "MAX78002")
"""Parts that have a table, here or in a distribution of their own."""


def device_named(name: str) -> Device:
    """Return the table of a part; the MAX78002's is in a distribution of its own."""
    if name.upper() == MAX78000.name:
        return MAX78000
    found: Device = import_module("mace_target_max78002.device").MAX78002
    return found
