"""Registers of a layer that contradict each other, or ask for what the hardware does not have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from test_simulator import network

from mace_frontend_ai8x.network import (
    INPUT,
    Eltwise,
    Layer,
    LayerActivation,
    LayerPlacement,
    Network,
    Operation,
    Weights,
)
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.image import Write
from mace_target_max78000.options import Options
from mace_target_max78000.simulate import SimulationError
from mace_target_max78000.simulate.decode import decode
from mace_target_max78002.device import MAX78002

Registers = dict[int, dict[str, int]]


def single(layer: Layer, place: LayerPlacement, operands: int = 1) -> Network:
    sample = np.zeros((layer.channels * operands, *layer.dim), np.int64)
    return Network("single", (layer,), (place,), sample)


def copying(operands: int = 1) -> Network:
    """Four channels of 4x4 that are copied, or added."""
    eltwise = Eltwise.ADD if operands > 1 else None
    layer = Layer(
        "copy", Operation.PASSTHROUGH, (INPUT,), 4, (4, 4), 4, eltwise=eltwise, operands=operands, output=True
    )
    return single(layer, LayerPlacement(0xF, 0xF, out_offset=0x1000), operands)


def two_passes() -> Network:
    weights = Weights(np.ones((4, 68, 1, 1), np.int64))
    layer = Layer("wide", Operation.CONV2D, (INPUT,), 68, (4, 4), 4, weights=weights, bias=None, output=True)
    return single(layer, LayerPlacement((1 << 36) - 1, 0xF, out_offset=0x1000))


def registers_of(of: Network, device: Chip, layer: int) -> Registers:
    """What the program writes to a layer's registers, by quadrant."""
    image = synthesize(of, Options(), device).image
    values = {step.address: step.value for step in image.configure if isinstance(step, Write)}
    return {
        quadrant: {
            name: values.get(device.layer_register(quadrant, name, layer), 0)
            for name in (*device.registers, "STREAM1", "STREAM2", "FMAX")
        }
        for quadrant in image.quadrants
    }


def changed(registers: Registers, name: str, change: Callable[[int], int], where: Iterable[int]) -> Registers:
    return {
        quadrant: {**values, name: change(values[name])} if quadrant in where else values
        for quadrant, values in registers.items()
    }


Case = tuple[Chip, Network, int, str, Callable[[int], int], str]
TWO, SUM, COPY, WIDE = network(), copying(2), copying(), two_passes()
CASES: list[Case] = [
    (MAX78000, TWO, 1, "LCTL", lambda v: v | 0x1000, "the master adds its own sums a second time"),
    (MAX78000, TWO, 0, "ONED", lambda v: v | 2 << 8, "a length of 2 without a one-dimensional kernel"),
    (MAX78000, TWO, 1, "LCTL2", lambda v: v + (1 << 8), "output channels of 17 bits with weights of 4"),
    (
        MAX78000,
        TWO,
        1,
        "LCTL2",
        lambda v: v & 0xFF | 508 << 8,
        "128 output channels in one pass, 64 slots exist",
    ),
    (MAX78000, TWO, 0, "RCNT", lambda _: 3 << 16 | 2, "-3 rows and 7 columns are left after padding"),
    (MAX78000, TWO, 1, "PRCNT", lambda _: 15, "a window of 16x2 does not fit 8x7 positions"),
    (MAX78000, TWO, 1, "PCCNT", lambda _: 7, "a window of 2x8 does not fit 8x7 positions"),
    (
        MAX78000,
        TWO,
        0,
        "POST",
        lambda v: v | 1 << 28,
        "a transposed convolution of 8x7 pooled positions; use even counts",
    ),
    (
        MAX78000,
        TWO,
        0,
        "POST",
        lambda v: v | 1 << 27,
        "row memory of a flattened layer of 1 values must be 0x1",
    ),
    (MAX78000, COPY, 0, "ENA", lambda _: 0x78, "results for 2 data memories in 1 time slot"),
    (MAX78000, COPY, 0, "POST", lambda v: v | 1 << 12, "a bias in a layer without weights"),
    (MAX78000, COPY, 0, "MCNT", lambda _: 8, "2 kernels or output passes, the input takes 1 pass"),
    (MAX78000, COPY, 0, "ONED", lambda v: v & ~0x100, "kernels of one value where it has no operands"),
    (MAX78000, SUM, 0, "ONED", lambda v: v | 0x100, "kernels of one value where it has no operands"),
    (MAX78000, SUM, 0, "ONED", lambda v: v | 1 << 17, "whether a convolution follows"),
    (MAX78000, SUM, 0, "ONED", lambda v: v | 1 << 16, "pooling comes first but is off"),
    (MAX78000, WIDE, 0, "MCNT", lambda v: v + 8, "9 kernels for 2 passes, expected a multiple"),
    (MAX78002, TWO, 0, "LCTL", lambda v: v | 1 << 17 | 1 << 26, "shifts of the read-ahead"),
    (MAX78002, TWO, 1, "POST", lambda v: v | 1 << 29, "5 kernels for 4 memories"),
    (MAX78002, TWO, 0, "LCTL", lambda v: v ^ 1 << 18, "the kernel is 3x4 here and 3x3 in ONED"),
    (MAX78002, TWO, 0, "LCTL", lambda v: v ^ 1 << 22, "the kernel is 4x3 here and 3x3 in ONED"),
    (MAX78002, TWO, 0, "OCHAN", lambda v: v + 1, "21 output channels where the other registers have 20"),
    (MAX78002, TWO, 1, "RCNT", lambda v: v + 1, "are no multiples of the step 2"),
    (MAX78002, TWO, 1, "CCNT", lambda v: v + 1, "are no multiples of the step 2"),
    (MAX78002, TWO, 1, "STRIDE", lambda v: v + 16, "are no multiples of the step 2"),
    (MAX78002, TWO, 1, "RCNT", lambda v: v + (1 << 16), "columns from the last window on"),
    (MAX78002, TWO, 1, "PRCNT", lambda v: v | 1 << 4, "is not dilated by"),
    (MAX78002, TWO, 1, "PCCNT", lambda v: v | 1 << 4, "is not dilated by"),
    (
        MAX78002,
        TWO,
        0,
        "RCNT",
        lambda v: v & ~(1 << 15) | 1 << 13,
        "a count of padding that is switched off",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{case[3]}-{i}" for i, case in enumerate(CASES)])
def test_registers_that_contradict_each_other(case: Case) -> None:
    device, of, layer, name, change, message = case
    registers = registers_of(of, device, layer)
    decode(device, layer, registers)
    where = tuple(registers)[:1] if "its own sums" in message else tuple(registers)
    with pytest.raises(SimulationError) as fault:
        decode(device, layer, changed(registers, name, change, where))
    assert re.search(rf"{re.escape(message)}\b", str(fault.value))


UNKNOWN_BITS = [
    *((MAX78000, "RCNT", bit) for bit in (10, 15, 18, 31)),
    *((MAX78000, name, 4) for name in ("PRCNT", "PCCNT", "STRIDE")),
    *((MAX78000, "LCTL", bit) for bit in (0, 4, 10, 17, 31)),
    *((MAX78000, "LCTL2", bit) for bit in (17, 31)),
    *((MAX78000, "ONED", bit) for bit in (14, 22)),
    *((MAX78000, "POST", bit) for bit in (29, 30, 31)),
    *((MAX78002, name, bit) for name in ("RCNT", "CCNT") for bit in (11, 12)),
    *((MAX78002, name, 8) for name in ("PRCNT", "PCCNT")),
    *((MAX78002, name, 19) for name in ("MCNT1", "MCNT2")),
    *((MAX78002, "LCTL2", bit) for bit in (21, 31)),
    (MAX78002, "OCHAN", 16),
    (MAX78002, "NXTLYR", 9),
]


@pytest.mark.parametrize(
    ("device", "name", "bit"), UNKNOWN_BITS, ids=[f"{d.name}-{n}-{b}" for d, n, b in UNKNOWN_BITS]
)
def test_bits_that_no_field_explains(device: Chip, name: str, bit: int) -> None:
    registers = registers_of(TWO, device, 0)
    with pytest.raises(SimulationError, match=f"{name}: .*bits {1 << bit:#x} mean nothing in this layer"):
        decode(device, 0, changed(registers, name, lambda value: value | 1 << bit, tuple(registers)))


@pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
def test_what_the_registers_of_a_convolution_say(device: Chip) -> None:
    first, second = (decode(device, i, registers_of(TWO, device, i)) for i in range(2))
    assert (first.reading.rows, first.reading.columns, first.reading.pad) == (8, 7, (1, 1))
    assert (second.reading.rows, second.reading.columns, second.reading.size) == (4, 3, (2, 2))
    assert (first.kernel.rows, first.kernel.columns, first.kernel.bits, first.kernel.count) == (3, 3, 8, 20)
    assert (second.kernel.bits, second.kernel.count) == (4, 5 * second.reading.passes)
    assert first.processors == (0, 1, 2)
    assert second.processors == tuple(range(20))
    assert (first.relu, second.relu) == (TWO.layers[0].activation is LayerActivation.RELU, False)
    assert second.sources == {1}
    assert (first.writing.slots, second.writing.slots) == (20, 5)
    assert second.reading.base == 0x800 // 4
    assert {b & 0x1FFF for b in second.writing.bases.values()} == {0x2000 // 4 & 0x1FFF}
