"""Encodes the registers that differ in the second generation.

These hold counters that stop, dilated pools, jumps, and depthwise layers.
"""

from __future__ import annotations

from mace_frontend_ai8x.network import STOP
from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT
from mace_target_max78000.encode.hardware_layers import HardwareLayer
from mace_target_max78000.encode.layer_registers import LayerRegisters
from mace_target_max78000.encode.weight_runs import LANES

JUMP = 0x80
END = 0x100


class SecondGeneration(LayerRegisters):
    """128 layers in any order; counters hold where they stop and what comes next."""

    def resets(self, unit: HardwareLayer) -> bool:
        """Whether another layer must clear the sums first: an average pool behind a layer with operands."""
        pool = unit.layer.pool
        return (
            unit.index > 0
            and pool is not None
            and pool.average
            and self.plan.units[unit.index - 1].layer.operands > 1
        )

    def number(self, unit: HardwareLayer) -> int:
        """Return the number in hardware, with the inserted layers before it."""
        return unit.index + sum(self.resets(u) for u in self.plan.units[: unit.index + 1])

    def registers_before(self, unit: HardwareLayer) -> dict[str, int]:
        """Return a layer that only resets the sums of an average, in the first quadrant."""
        if not self.resets(unit):
            return {}
        registers = self.layer(unit, self.plan.quadrants[0])
        return {
            "RCNT": 1 << 16,
            "CCNT": 1 << 16,
            "STRIDE": 0x10,
            "WPTR_BASE": registers["WPTR_BASE"],
            "WPTR_TOFFS": registers["WPTR_TOFFS"],
            "RPTR_BASE": registers["RPTR_BASE"],
            "LCTL": 0x920,
            "ONED": 0x100,
            "POST": 0x03000000,
            "ENA": 1,
        }

    def layer(self, unit: HardwareLayer, quadrant: int) -> dict[str, int]:
        """Return the values of one layer in one quadrant, by name."""
        return {"NXTLYR": self.follows(unit), **super().layer(unit, quadrant)}

    def follows(self, unit: HardwareLayer) -> int:
        """Return which layer comes next, where it is not the next one."""
        units, then = self.plan.units, unit.place.next
        last = unit.index + 1 == len(units)
        if self.plan.options.link_layer:
            return END if last else JUMP | self.number(units[unit.index + 1])
        if then is None or then == unit.index + 1:
            conditional = unit.place.conditional_next
            return 0 if conditional is None else JUMP | self.number(units[conditional])
        if then == STOP:
            # After the last layer it stops anyway, and the vendor's programs leave the register zero.
            return 0 if last else END
        return JUMP | self.number(units[then])

    def counts(self, unit: HardwareLayer) -> dict[str, int]:
        """Return where the last window begins, padding, and the distance to the next row and column."""
        (rows, columns), (height, width) = unit.in_dim, unit.pad
        size, dilation, _ = unit.layer.window
        stride = unit.layer.window[2]
        last = [
            (n - s - d + 1) // stride * stride
            for n, s, d in zip((rows, columns), size, dilation, strict=True)
        ]
        if unit.layer.one_dimensional:
            last[1] = 0
        # The counter stops at the last window; the words from there to the next row of windows are
        # skipped at once.
        left = columns - last[1]
        words = (
            (left + (stride - 1) * columns) * (unit.place.read_gap + 1) * unit.layer.operands * unit.in_passes
        )
        return {
            "RCNT": last[0] | _padding(height) << 13 | words << 16,
            "CCNT": last[1] | _padding(width) << 13 | left << 16,
        }

    def pool(self, unit: HardwareLayer) -> dict[str, int]:
        """Return the pool's window, dilation and stride."""
        first = super().pool(unit)
        rows, columns = (d - 1 for d in unit.layer.window[1])
        return {**first, "PRCNT": first["PRCNT"] | rows << 4, "PCCNT": first["PCCNT"] | columns << 4}

    def stride(self, unit: HardwareLayer) -> int:
        """Steps of the input window, in positions and in words."""
        words = unit.layer.window[2] * unit.layer.operands * unit.in_passes * (unit.place.read_gap + 1)
        return super().stride(unit) | words << 4

    def target(self, unit: HardwareLayer, quadrant: int) -> int:
        """Return the data memory of the first results; in depthwise layers each quadrant's own."""
        if not self.scatters(unit):
            return super().target(unit, quadrant)
        # Channels are counted from the layer's first processor on, so that the quadrants after the first one
        # are ahead by the processors that the first one does not use
        first, unused = divmod(unit.processors[0], PER_QUADRANT)
        processors_ahead = (quadrant - first) * PER_QUADRANT - (unused if quadrant != first else 0)
        return (processors_ahead + unit.slots[0]) // PER_MEMORY

    def scatters(self, unit: HardwareLayer) -> bool:
        """Whether it is a depthwise layer whose results go to other memories than those that it reads."""
        return unit.depthwise and not unit.broadcast

    def pointers(self, unit: HardwareLayer, quadrant: int) -> dict[str, int]:
        """Return where results are written.

        Quadrants before the first one that a scattering layer reads in point nowhere.
        """
        pointers = super().pointers(unit, quadrant)
        nowhere = self.scatters(unit) and quadrant < unit.processors[0] // PER_QUADRANT
        return {**pointers, "WPTR_BASE": 0} if nowhere else pointers

    def time_step(self, unit: HardwareLayer) -> int:
        """Return what a time slot adds to the write pointer."""
        if self.scatters(unit) and not unit.layer.one_dimensional:
            return 1 << self.plan.device.offset_bits
        return super().time_step(unit)

    def control(self, unit: HardwareLayer, quadrant: int) -> dict[str, int]:
        """Return what kind of layer it is, its kernel's size, and how many passes it makes."""
        height, width = unit.layer.kernel
        # The size stands a second time in ONED; the vendor's programs write both.
        kernel = (width - 1) << 18 | (height - 1) << 22 if unit.convolves else 0
        kind = self.kind(unit, quadrant) | kernel | unit.broadcast << 29 | self.read_ahead_bits(unit)
        return {
            "LCTL": kind,
            "LCTL2": self.passes(unit) | self.write_increment(unit) << 4 | self.span(unit) << 12,
        }

    def read_ahead_bits(self, unit: HardwareLayer) -> int:
        """Return the switch of reading ahead, and how many further passes, or fours of them, are shifted."""
        shifts = (unit.in_passes - 1) // (4 if unit.tcalc else 1)
        return 1 << 17 | shifts << 26 if unit.place.read_ahead else 0

    def kernels(self, unit: HardwareLayer) -> dict[str, int]:
        """Return which kernels are used, and how many outputs each pass has."""
        slots = unit.timeslots(self.plan.quadrants)
        if not unit.convolves:
            channels = unit.layer.out_channels - 1 if unit.place.bypass else slots
            return {"MCNT2": (unit.out_passes - 1) * 8, "OCHAN": channels}
        first, last = self.kernel_range(unit)
        channels = (slots + 1) * unit.in_passes if unit.depthwise else unit.out_channel_count
        if unit.place.bypass:
            channels = unit.layer.out_channels
        return {"MCNT1": last, "MCNT2": first, "OCHAN": (channels - 1) // (LANES if unit.place.calcx4 else 1)}

    def post(self, unit: HardwareLayer, quadrant: int) -> int:
        """Bias, shift and activation."""
        depthwise = 1 << 24 | 1 << 30 if unit.depthwise else 0
        return super().post(unit, quadrant) | depthwise | unit.place.calcx4 << 29 | unit.tcalc << 31


def _padding(count: int) -> int:
    """Padding as three bits: one less than the count, and whether there is any."""
    return count - 1 | 4 if count else 0
