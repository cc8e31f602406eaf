"""Encodes the registers of a layer, as the first generation has them; the second overrides what differs.

Field meanings and formulas are those that the vendor's generated programs show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from mace_frontend_ai8x.network import LayerActivation, Operation
from mace_target_max78000.device import PER_MEMORY, Chip
from mace_target_max78000.encode.bias_memory import Bias
from mace_target_max78000.encode.hardware_layers import HardwareLayer
from mace_target_max78000.encode.streaming import StreamRegisters
from mace_target_max78000.encode.weight_runs import LANES, WeightRun, numbered_kernel
from mace_target_max78000.image import Write
from mace_target_max78000.options import Options

ORDER = (
    *(
        "NXTLYR",
        "RCNT",
        "CCNT",
        "PRCNT",
        "PCCNT",
        "STRIDE",
        "WPTR_BASE",
        "WPTR_TOFFS",
        "WPTR_MOFFS",
        "WPTR_CHOFFS",
        "RPTR_BASE",
    ),
    *(
        "LCTL",
        "LCTL2",
        "MCNT",
        "MCNT1",
        "MCNT2",
        "OCHAN",
        "ONED",
        "TPTR",
        "POST",
        "ENA",
        "STREAM1",
        "STREAM2",
        "FMAX",
        "IFRM",
    ),
)
"""The order in which a layer's registers are written."""

WEIGHT_SIZE: Mapping[int, int] = {0: 0, 8: 0, 1: 1, 2: 2, 4: 3}
"""Bits of a weight -> its code."""


@dataclass(frozen=True)
class RegisterPlan:
    """What the registers of all layers follow from.

    quadrants: in use, the first is the master.  runs: of weight memory, by layer.  bias: where each layer's
    lies.
    streams: by layer.
    """

    units: tuple[HardwareLayer, ...]
    quadrants: tuple[int, ...]
    runs: Mapping[int, WeightRun]
    bias: Mapping[int, Bias]
    streams: Mapping[int, StreamRegisters]
    options: Options
    device: Chip

    def row_memory(self, unit: HardwareLayer) -> int:
        """Return words of row memory that streaming layers before this one take."""
        return sum(u.tram * u.in_passes for u in self.units[: unit.index])


class LayerRegisters:
    """The first generation: 32 layers, one pass of counters over padded rows and columns."""

    def __init__(self, plan: RegisterPlan) -> None:
        self.plan = plan

    def writes(self) -> Iterator[Write]:
        """Every register of every layer and quadrant, in order; zeros are what the registers hold anyway."""
        zeros = self.plan.options.write_zero_registers
        for unit in self.plan.units:
            for quadrant in self.plan.quadrants:
                layers = {self.number(unit): self.layer(unit, quadrant)}
                if quadrant == self.plan.quadrants[0] and (registers_before := self.registers_before(unit)):
                    layers = {self.number(unit) - 1: registers_before, **layers}
                for name, (number, values) in product(ORDER, layers.items()):
                    if name in values and (values[name] or zeros):
                        yield Write(self.plan.device.layer_register(quadrant, name, number), values[name])

    def clear_unused(self) -> Iterator[Write]:
        """Yield zeros in the registers of all layers that the network leaves free."""
        device, last = self.plan.device, self.number(self.plan.units[-1])
        for number, quadrant, name in product(
            range(last + 1, device.layers), self.plan.quadrants, device.registers
        ):
            yield Write(device.layer_register(quadrant, name, number), 0)

    def registers_before(self, unit: HardwareLayer) -> dict[str, int]:
        """Return the registers of a layer that the hardware needs before this one; none if it needs none."""
        return {}

    def number(self, unit: HardwareLayer) -> int:
        """Return the number of the layer in hardware."""
        return unit.index

    def layer(self, unit: HardwareLayer, quadrant: int) -> dict[str, int]:
        """Return the values of one layer in one quadrant, by name."""
        return {
            **self.counts(unit),
            **self.pool(unit),
            **self.pointers(unit, quadrant),
            "RPTR_BASE": unit.place.in_offset // 4,
            **self.control(unit, quadrant),
            **self.kernels(unit),
            "ONED": self.one_dimensional(unit),
            "TPTR": self.row_pointer(unit),
            "POST": self.post(unit, quadrant),
            "ENA": self.enable(unit, quadrant),
            **self.stream(unit),
        }

    def counts(self, unit: HardwareLayer) -> dict[str, int]:
        """Return rows and columns with their padding."""
        # The low bits hold the padded count less one, bits 16 and 17 the padding on each side.
        axes = zip(("RCNT", "CCNT"), unit.in_dim, unit.pad, strict=True)
        return {name: count - 1 + 2 * pad | pad << 16 for name, count, pad in axes}

    def pool(self, unit: HardwareLayer) -> dict[str, int]:
        """Return the pool's window and stride."""
        size, dilation, _ = unit.layer.window
        rows, columns = ((s - 1) * d for s, d in zip(size, dilation, strict=True))
        return {"PRCNT": rows, "PCCNT": columns, "STRIDE": self.stride(unit)}

    def stride(self, unit: HardwareLayer) -> int:
        """Steps of the input window."""
        # A transposed convolution reads one position after another of data with zeros between.
        transposed = unit.layer.operation is Operation.CONV_TRANSPOSE2D
        return 0 if transposed else unit.layer.window[2] - 1

    def pointers(self, unit: HardwareLayer, quadrant: int) -> dict[str, int]:
        """Return where results are written."""
        memory, layer = self.plan.device.offset_bits, unit.layer
        # The number of the data memory lies above that of the word, so that one pointer reaches every
        # memory.
        base = (unit.place.out_offset // 4 - unit.ignored) | self.target(unit, quadrant) << memory
        step = layer.width // 8 * unit.write_step if unit.out_passes > 1 else 0
        return {
            "WPTR_BASE": base,
            "WPTR_TOFFS": self.time_step(unit),
            # a layer without weights leaves this register as it is, even where zeros are written
            **({"WPTR_MOFFS": 1 << memory} if unit.convolves else {}),
            "WPTR_CHOFFS": step,
        }

    def target(self, unit: HardwareLayer, quadrant: int) -> int:
        """Return the data memory that the first results go to."""
        if unit.convolves:
            return unit.slots[0] // PER_MEMORY
        inside = [p for p in unit.slots if p // 16 == quadrant]
        return inside[0] // PER_MEMORY if inside else 0

    def time_step(self, unit: HardwareLayer) -> int:
        """Return what a time slot adds to the write pointer."""
        if unit.convolves:
            return int(unit.pointwise and not unit.depthwise)
        # With processors of several memories, each time slot writes another memory. Those of one memory
        # write in one time slot; the step that they do not take is that of the vendor's programs.
        wide = len(unit.processors) > PER_MEMORY or (unit.layer.operands > 1 and unit.in_passes > 1)
        return 1 << self.plan.device.offset_bits if wide else 1 << self.plan.device.offset_bits - 2

    def control(self, unit: HardwareLayer, quadrant: int) -> dict[str, int]:
        """Return what kind of layer it is, and how many passes it makes."""
        return {
            "LCTL": self.kind(unit, quadrant),
            "LCTL2": self.passes(unit) | self.write_increment(unit) << 4 | self.span(unit) << 8,
        }

    def kind(self, unit: HardwareLayer, quadrant: int) -> int:
        """Return the layer control register."""
        layer, place = unit.layer, unit.place
        # Bits 5 and 11 let results go to other quadrants' memories; every program of the vendor sets
        # them. Bit 8 means "not average", so it is set without a pool as well.
        flags = (
            (True, 5),
            (place.chw, 6),
            (layer.pools, 7),
            (layer.pool is None or not layer.pool.average, 8),
            (layer.activation is LayerActivation.RELU, 9),
            (True, 11),
            (layer.wide, 16),
            (place.bypass, 30),
        )
        value = sum(1 << bit for flag, bit in flags if flag)
        return value | self.sources(unit, quadrant) << 12

    def sources(self, unit: HardwareLayer, quadrant: int) -> int:
        """Return the quadrants whose sums the master adds to its own.

        These have active processors, or hold the bias.
        """
        if quadrant != self.plan.quadrants[0] or not unit.convolves or unit.depthwise:
            return 0
        bias = self.plan.bias.get(unit.index)
        others = [q for q in self.plan.quadrants if q != quadrant]
        return sum(1 << q for q in others if unit.in_quadrant(q) or (bias is not None and bias.quadrant == q))

    def passes(self, unit: HardwareLayer) -> int:
        """Passes over the input beyond the first."""
        if unit.emulated_rows > 1:
            return 0
        # LCTL2 has four bits for passes; POST holds the rest of what a flattened layer counts.
        return unit.flattened - 1 & 15 if unit.layer.flatten else unit.in_passes - 1

    def write_increment(self, unit: HardwareLayer) -> int:
        """Return words between positions of the output beyond the first."""
        # Output passes lie word by word between two positions, which a passthrough layer's time slots
        # step over.
        return unit.out_passes * unit.write_step - 1 if unit.convolves else unit.place.write_gap

    def span(self, unit: HardwareLayer) -> int:
        """Weight bits from the first output slot's word to the last one."""
        if not unit.convolves:
            return 0
        return (unit.slots[-1] - unit.slots[0] // PER_MEMORY * PER_MEMORY) * unit.bits

    def first_kernel(self, unit: HardwareLayer) -> tuple[int, int]:
        """Return the number of the layer's first kernel, in bits, and bytes that are left over."""
        run = self.plan.runs.get(unit.index)
        # The register counts kernels of this layer's size from the beginning of the memory, not words;
        # bytes that are left over stand in ONED.
        kernel, rest = divmod(9 * run.column, unit.taps) if run else (0, 0)
        return 8 * numbered_kernel(kernel, unit, self.plan.device), rest

    def kernel_range(self, unit: HardwareLayer) -> tuple[int, int]:
        """Return the first and the last kernel, in bits."""
        first, _ = self.first_kernel(unit)
        count = (
            unit.layer.out_channels // unit.layer.groups
            if unit.place.bypass
            else unit.kernel_count + unit.skipped_kernels
        )
        last = (count - 1) * unit.bits
        if unit.place.calcx4 and unit.index == 0:
            # The first layer counts the kernels of one of the four memories, later layers those of all
            # four.
            last = -(-(last + unit.bits) // LANES) - unit.bits
        return first, first + last

    def kernels(self, unit: HardwareLayer) -> dict[str, int]:
        """Return which kernels are used."""
        if not unit.convolves:
            return {"MCNT": 0 if unit.emulated_rows > 1 else (unit.out_passes - 1) * 8}
        first, last = self.kernel_range(unit)
        return {"MCNT": first << 16 | last}

    def one_dimensional(self, unit: HardwareLayer) -> int:
        """Time slots, one-dimensional kernels and element-wise operations."""
        layer = unit.layer
        value = unit.timeslots(self.plan.quadrants) | self.first_kernel(unit)[1] << 4
        if layer.one_dimensional:
            # Bit 12 marks a Conv1d with its length before it; a length of 1 without that bit is a 1x1
            # kernel.
            value |= layer.kernel[0] << 8 | 1 << 12
        elif unit.pointwise or (not unit.convolves and layer.operands == 1):
            value |= 1 << 8
        if layer.eltwise is not None and layer.operands > 1:
            # Bit 13: operands are combined; 14 and 15: how; from 18 on: their number less one; 16: pools
            # come first; 17: a convolution follows.
            value |= 1 << 13 | layer.eltwise.value << 14 | layer.operands - 1 << 18
            value |= (layer.pools and layer.pool_first) << 16 | unit.convolves << 17
        return value

    def row_pointer(self, unit: HardwareLayer) -> int:
        """Row memory: its last word and where the layer's part begins."""
        if unit.joins:
            # The vendor's formula for flattened layers, with F values less one: words F to 2 F + 1.
            return unit.flattened - 1 << 16 | 2 * unit.flattened - 1
        if unit.layer.one_dimensional or (unit.pointwise and not (unit.place.streaming and unit.index)):
            return 0
        if unit.place.streaming and unit.index:
            before = self.plan.row_memory(unit)
            return unit.tram - 1 + before | before << 16
        return unit.tram - 1

    def post(self, unit: HardwareLayer, quadrant: int) -> int:
        """Bias, shift and activation."""
        layer, shift = unit.layer, unit.layer.shift
        # The shift is a magnitude of four bits with its direction in bit 17, set for shifts to the right.
        value = abs(shift) << 13 | (shift < 0) << 17 | WEIGHT_SIZE[unit.bits] << 22
        bias = self.plan.bias.get(unit.index)
        if bias is not None and quadrant in bias.offsets:
            value |= bias.offset(quadrant) | 1 << 12
        if not unit.convolves:
            # No sum joins the processors, so they write in turn: bit 24 gives them time slots, bit 25
            # writes one by one.
            value |= (1 if layer.operands > 1 else 3) << 24
        value |= (layer.activation is LayerActivation.ABS) << 26 | (
            layer.operation is Operation.CONV_TRANSPOSE2D
        ) << 28
        if unit.joins:
            value |= (unit.flattened - 1 >> 4) << 18 | 1 << 27
        return value

    def enable(self, unit: HardwareLayer, quadrant: int) -> int:
        """Processors, and weight memories, that take part."""
        mask = unit.in_quadrant(quadrant)
        # The upper half enables the processors' weight memories.
        return mask | mask << 16 if unit.convolves and not unit.place.bypass else mask

    def stream(self, unit: HardwareLayer) -> dict[str, int]:
        """When a layer begins, and when it waits.

        A layer that waits for nothing has zeros, which are written where all zeros are; its buffer and the
        size of the frame belong to the FIFO.
        """
        if not self.plan.device.has_stream_registers(self.number(unit)):
            return {}
        stream = self.plan.streams.get(unit.index, StreamRegisters())
        at_once = (self.plan.options.fifo_go and unit.index == self.plan.options.start_layer) << 25
        values = {
            "STREAM1": stream.start | at_once,
            "STREAM2": stream.rows << 16 | stream.columns << 4 | stream.passes,
        }
        values |= {"FMAX": stream.rollover} if stream.rollover else {}
        return values | ({"IFRM": stream.frame} if stream.frame else {})
