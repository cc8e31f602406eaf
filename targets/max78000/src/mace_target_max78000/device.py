"""States every fact and limit of the chips of the family once: addresses, memories, registers, features.

What all chips have in common is a constant of this module; what differs is a field of `Chip`, `ChipFeatures`
or `ChipLimits`, of which each chip has one value.  Rules, placement and register generation ask for the named
feature or limit that they mean (`device.features.depthwise`, `device.limits.write_step`), never for a part's
name.

Only the simulator states facts of its own: it checks what is written here, so it must not read it.

Addresses are bytes on the processor's bus.  A quadrant is 16 processors; four processors share a data memory.
Source: the vendor's AHB address tables and training-and-synthesis document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mace_frontend_ai8x.network import Operation

PROCESSORS = 64
QUADRANTS = 4
PER_QUADRANT = 16
PER_MEMORY = 4
"""Processors that share one data memory."""
KERNEL_BYTES = 9
"""Bytes of a word of weight memory."""
WORD_BYTES = 4
"""Bytes of a word of data memory."""
LANES = 4
"""Memories that hold a fourth each of the output channels of a layer that computes four of them at once."""
FIFO_CHANNELS = 16
"""Channels that the FIFOs carry, four each."""

WEIGHT_BITS = (1, 2, 4, 8)
SHIFTS = range(-15, 16)
"""Powers of two by which a layer can multiply its sums."""
UNIT_SHIFT = 7
"""The accumulator counts 128ths: 2 ** 7 of its steps are one step of weight times data."""

COPY_BITS = 2
"""Bits of the weights of a layer that only copies: the fewest that hold 0 and 1, as one bit is 0 or -1."""

MAX_POOL = 16
"""Rows or columns of a pool's window, its dilation included, and its stride."""
MAX_OPERANDS = 16
"""Operands of an element-wise operation."""
MAX_OPERANDS_BEFORE_POOL = 2
"""Operands that can be combined before they are pooled."""
MAX_FLATTENED = 16384
"""Inputs of a flattened layer."""
MAX_FLATTENED_POSITIONS = 256
"""Rows times columns that a flattened layer joins."""
MAX_KERNEL_1D = 9
"""Length of the kernel of a Conv1d; of a dilated one, with the zeros between its weights."""
MAX_DILATED_KERNEL_1D = 3
"""Length of the kernel of a Conv1d that is dilated beyond `MAX_KERNEL_1D`; such a layer has no padding."""
KERNELS: Mapping[Operation, tuple[tuple[int, int], ...]] = {
    Operation.CONV2D: ((1, 1), (3, 3)),
    Operation.CONV_TRANSPOSE2D: ((3, 3),),
}
"""Kernels of the operations that have only some."""
MAX_PADS: Mapping[Operation, int] = {
    Operation.CONV1D: 3,
    Operation.CONV2D: 2,
    Operation.CONV_TRANSPOSE2D: 2,
}
"""Padding on each side; operations that are not listed have none."""

MAX_STREAMING_LAYERS = 8
MAX_STREAM_PASSES = 15
"""Passes of all layers before a streaming one: the field of STREAM2 has four bits."""
MAX_STREAM_POSITIONS = (1 << 21) - 1
"""Positions of a streaming layer's input, in all passes."""
STREAM_COLUMN_BITS = 5
"""Of the words that a streaming layer waits for at each column."""

FIFO_CONTROL = 0x50000000
FIFO_STATUS = 0x50000004
FIFO_DATA = 0x50000008
AON_CONTROL = 0x50001000
FAST_FIFO = 0x400C0400


@dataclass(frozen=True)
class ChipFeatures:
    """What one part's accelerator does and another's does not.  Source: the vendor's lists of limitations.

    pipeline: it computes in a pipeline, behind a PLL of its own. depthwise: a convolution may have a kernel
    for each channel instead of for each pair of channels. dilated_pools: the windows of pools may be dilated.
    binary_weights: one-bit weights may stand for -1 and +1 instead of -1 and 0. next_layer: a layer may name
    the layer that follows it. conditional_layers: a layer may name one that follows where conditions on data
    are met ("snoop"). read_gaps: a layer may leave out words between the positions that it reads. bypass: a
    layer may copy as if each of its weights were 1, and store none. read_ahead: a layer may read its next
    input while it computes, and go through its passes by fours (tcalc). calcx4: a layer may compute four
    output channels at once. wide_pools: a layer that only pools may have more than 64 channels.
    wide_operands: element-wise operations of more than 64 channels take any operands, and a convolution
    without bias after them; else only two operands of up to 128 channels are convolved or pooled.
    wide_padded_conv1d: a Conv1d of more than 64 channels may have padding. streaming_unpadded: the last
    streaming layer may have no padding. streaming_without_convolution: passthrough and linear layers may
    stream.
    """

    pipeline: bool
    depthwise: bool
    dilated_pools: bool
    binary_weights: bool
    next_layer: bool
    conditional_layers: bool
    read_gaps: bool
    bypass: bool
    read_ahead: bool
    calcx4: bool
    wide_pools: bool
    wide_operands: bool
    wide_padded_conv1d: bool
    streaming_unpadded: bool
    streaming_without_convolution: bool


@dataclass(frozen=True)
class ChipLimits:
    """How much one part's memories and register fields hold.

    counted_rows: rows or columns that the counters hold; counts_padding: on both sides, they count it as
    well. write_step: words from one position of an output to the next, in all passes. stream_start_bits,
    stream_row_bits: of the words that a streaming layer waits for before it begins, and at the end of each
    row. memory_parts: physical memories that each data memory consists of; what is read ahead lies in another
    one than what is written.
    """

    counted_rows: int
    counts_padding: bool
    write_step: int
    stream_start_bits: int
    stream_row_bits: int
    memory_parts: int


@dataclass(frozen=True)
class Chip:
    """One part.

    generation: 1 or 2, of the registers: which there are, what their fields mean, and what they count.
    core_hertz: of the processor beside the accelerator.  switch_delay: milliseconds that its load switches
    need.

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
    hertz: int
    """What the accelerator runs at unless its clock is divided."""

    peripheral_hertz: int
    """Half of the processor's clock, which the accelerator may run at as well."""

    generation: int
    core_hertz: int
    switch_delay: int
    features: ChipFeatures
    limits: ChipLimits

    def control_register(self, quadrant: int, number: int) -> int:
        """Return the address of a register that a quadrant has once.

        Their numbers are 0 control, 1 SRAM control, 2 layer count, 3 SRAM test.
        """
        return self.control + quadrant * self.quadrant_pitch + 4 * number

    def layer_register(self, quadrant: int, name: str, layer: int) -> int:
        """Return the address of a layer's register; IFRM, a quadrant's only one, has no layer."""
        base = self.control + quadrant * self.quadrant_pitch
        if name == "IFRM":
            return base + self.frame
        if name in self.stream_registers:
            return base + self.stream_registers[name] + 4 * layer
        return (
            base + self.registers_base + self.registers[name] * self.register_pitch + layer * self.layer_pitch
        )

    def has_stream_registers(self, layer: int) -> bool:
        """Whether the layer has the registers STREAM1 and STREAM2.

        The second generation has them only for the layers that can stream.

        What lies at the address of a later layer's is a register of the first layers, or of the FIFO.
        """
        return layer < (MAX_STREAMING_LAYERS if self.stream_registers else self.layers)

    def condition_register(self, quadrant: int, number: int) -> int:
        """Return the address of a register of the conditions under which layers run."""
        assert self.conditions is not None
        return self.control + quadrant * self.quadrant_pitch + self.conditions + 4 * number

    def kernel_address(self, processor: int, word: int) -> int:
        """Return the address of a word of a processor's weight memory; words are 16 bytes apart."""
        quadrant, p = divmod(processor, PER_QUADRANT)
        return self.kernels + quadrant * self.quadrant_pitch + p * self.kernel_pitch + 16 * word

    def kernel_capacity(self, processor: int) -> int:
        """Return words of a processor's weight memory."""
        return self.kernel_words if processor % PER_QUADRANT else self.first_kernel_words

    def bias_address(self, quadrant: int) -> int:
        """Return the address of a quadrant's bias memory: a byte in each 32-bit word."""
        return self.bias + quadrant * self.quadrant_pitch

    def data_address(self, processor: int, offset: int = 0) -> int:
        """Return the address of a byte offset in the data memory that a processor reads."""
        quadrant, p = divmod(processor, PER_QUADRANT)
        return self.data + quadrant * self.quadrant_pitch + p // PER_MEMORY * self.data_pitch + offset


MAX78000 = Chip(
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
    # The vendor's document says 1023, its tool accepts 1024: the counters hold the number less one.
    largest=1024,
    # Sixteen passes over 64 processors.
    channels=1024,
    flash=0x80000,
    sram=0x20000,
    hertz=50_000_000,
    peripheral_hertz=50_000_000,
    generation=1,
    core_hertz=100_000_000,
    switch_delay=0,
    features=ChipFeatures(
        pipeline=False,
        depthwise=False,
        dilated_pools=False,
        binary_weights=False,
        next_layer=False,
        conditional_layers=False,
        read_gaps=False,
        bypass=False,
        read_ahead=False,
        calcx4=False,
        wide_pools=False,
        wide_operands=False,
        wide_padded_conv1d=True,
        streaming_unpadded=False,
        streaming_without_convolution=True,
    ),
    limits=ChipLimits(
        counted_rows=1024,
        counts_padding=True,
        write_step=16,
        stream_start_bits=14,
        stream_row_bits=12,
        memory_parts=1,
    ),
)
