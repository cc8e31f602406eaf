"""Facts of both parts against the vendor's documents, written down a second time: a wrong digit breaks every program."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest

from mace_frontend_ai8x.network import Operation
from mace_target_max78000 import device
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78002.device import MAX78002

# Address maps: the vendor's AHBAddresses; per-layer registers by their numbers there.
ADDRESSES = [
    (MAX78000, "control_register", (0, 0), 0x50100000),
    (MAX78000, "control_register", (1, 1), 0x50500004),
    (MAX78000, "control_register", (3, 3), 0x50D0000C),
    (MAX78002, "control_register", (0, 2), 0x51000008),
    (MAX78002, "control_register", (3, 0), 0x54000000),
    (MAX78000, "layer_register", (0, "RCNT", 0), 0x50100010),
    (MAX78000, "layer_register", (0, "RCNT", 31), 0x5010008C),
    (MAX78000, "layer_register", (2, "POST", 3), 0x50900010 + 15 * 0x80 + 12),
    (MAX78000, "layer_register", (0, "LCTL2", 1), 0x50100010 + 20 * 0x80 + 4),
    (MAX78000, "layer_register", (0, "FMAX", 31), 0x50100010 + 18 * 0x80 + 124),
    (MAX78000, "layer_register", (1, "IFRM", 0), 0x50500990),
    (MAX78002, "layer_register", (0, "NXTLYR", 0), 0x51100000),
    (MAX78002, "layer_register", (0, "POST", 127), 0x51100000 + 127 * 0x100 + 19 * 4),
    (MAX78002, "layer_register", (1, "STREAM1", 0), 0x52108000),
    (MAX78002, "layer_register", (0, "STREAM2", 7), 0x5110803C),
    (MAX78002, "layer_register", (0, "FMAX", 2), 0x51108048),
    (MAX78002, "layer_register", (3, "IFRM", 5), 0x54108060),
    (MAX78002, "condition_register", (0, 0), 0x51108080),
    (MAX78002, "condition_register", (2, 23), 0x53108080 + 92),
    (MAX78000, "kernel_address", (0, 0), 0x50180000),
    (MAX78000, "kernel_address", (17, 5), 0x50580000 + 0x4000 + 80),
    (MAX78002, "kernel_address", (63, 1), 0x54400000 + 15 * 0x20000 + 16),
    (MAX78000, "kernel_capacity", (0,), 768),
    (MAX78000, "kernel_capacity", (1,), 768),
    (MAX78002, "kernel_capacity", (0,), 5120),
    (MAX78002, "kernel_capacity", (15,), 4096),
    (MAX78002, "kernel_capacity", (48,), 5120),
    (MAX78000, "bias_address", (0,), 0x50108000),
    (MAX78000, "bias_address", (3,), 0x50D08000),
    (MAX78002, "bias_address", (1,), 0x52180000),
    (MAX78000, "data_address", (0,), 0x50400000),
    (MAX78000, "data_address", (3,), 0x50400000),
    (MAX78000, "data_address", (4, 8), 0x50408008),
    (MAX78000, "data_address", (63, 0x7FFC), 0x51018000 + 0x7FFC),
    (MAX78002, "data_address", (16, 4), 0x52800004),
    (MAX78002, "data_address", (15,), 0x51860000),
]

REGISTERS = {
    "MAX78000": (
        "RCNT CCNT ONED PRCNT PCCNT STRIDE WPTR_BASE WPTR_TOFFS WPTR_MOFFS WPTR_CHOFFS RPTR_BASE LCTL MCNT "
        "TPTR ENA POST STREAM1 STREAM2 FMAX - LCTL2"
    ),
    "MAX78002": (
        "NXTLYR RCNT CCNT ONED PRCNT PCCNT STRIDE WPTR_BASE WPTR_TOFFS WPTR_MOFFS WPTR_CHOFFS RPTR_BASE LCTL "
        "LCTL2 MCNT1 MCNT2 OCHAN TPTR ENA POST"
    ),
}

# name: MAX78000, MAX78002.
SIZES = {
    "layers": (32, 128),
    "mlator": (0x1000, 0x110000),
    "conditions": (None, 0x108080),
    "bias_bytes": (512, 2048),
    "tram": (0x50110000, 0x51200000),
    "tram_pitch": (0x4000, 0x10000),
    "tram_words": (3072, 12288),
    "data_bytes": (32 * 1024, 80 * 1024),
    "offset_bits": (13, 15),
    "largest": (1024, 2048),
    "channels": (1024, 1024),
    "flash": (512 * 1024, 2560 * 1024),
    "sram": (128 * 1024, 384 * 1024),
    "hertz": (50_000_000, 200_000_000),
    "peripheral_hertz": (50_000_000, 60_000_000),
    "core_hertz": (100_000_000, 120_000_000),
    "switch_delay": (0, 10),
    "generation": (1, 2),
}
LIMITS = {
    "counted_rows": (1024, 2048),
    "counts_padding": (True, False),
    "write_step": (16, 256),
    "stream_start_bits": (14, 15),
    "stream_row_bits": (12, 14),
    "memory_parts": (1, 5),
}
SECOND_ONLY = {
    "pipeline", "depthwise", "dilated_pools", "binary_weights", "next_layer", "conditional_layers", "read_gaps",
    "bypass", "read_ahead", "calcx4", "wide_pools", "wide_operands", "streaming_unpadded",
}  # fmt: skip
FIRST_ONLY = {"wide_padded_conv1d", "streaming_without_convolution"}

CONSTANTS = {
    "PROCESSORS": 64,
    "QUADRANTS": 4,
    "PER_QUADRANT": 16,
    "PER_MEMORY": 4,
    "KERNEL_BYTES": 9,
    "WORD_BYTES": 4,
    "LANES": 4,
    "FIFO_CHANNELS": 16,
    "WEIGHT_BITS": (1, 2, 4, 8),
    "SHIFTS": range(-15, 16),
    "UNIT_SHIFT": 7,
    "COPY_BITS": 2,
    "MAX_POOL": 16,
    "MAX_OPERANDS": 16,
    "MAX_OPERANDS_BEFORE_POOL": 2,
    "MAX_FLATTENED": 16384,
    "MAX_FLATTENED_POSITIONS": 256,
    "MAX_KERNEL_1D": 9,
    "MAX_DILATED_KERNEL_1D": 3,
    "MAX_STREAMING_LAYERS": 8,
    "MAX_STREAM_PASSES": 15,
    "MAX_STREAM_POSITIONS": 2097151,
    "STREAM_COLUMN_BITS": 5,
    "FIFO_CONTROL": 0x50000000,
    "FIFO_STATUS": 0x50000004,
    "FIFO_DATA": 0x50000008,
    "AON_CONTROL": 0x50001000,
    "FAST_FIFO": 0x400C0400,
    "KERNELS": {Operation.CONV2D: ((1, 1), (3, 3)), Operation.CONV_TRANSPOSE2D: ((3, 3),)},
    "MAX_PADS": {Operation.CONV1D: 3, Operation.CONV2D: 2, Operation.CONV_TRANSPOSE2D: 2},
}


@pytest.mark.parametrize(("chip", "method", "arguments", "address"), ADDRESSES)
def test_addresses(chip: Chip, method: str, arguments: tuple[object, ...], address: int) -> None:
    assert getattr(chip, method)(*arguments) == address


@pytest.mark.parametrize("chip", [MAX78000, MAX78002], ids=lambda c: c.name)
def test_register_numbers(chip: Chip) -> None:
    expected = {name: i for i, name in enumerate(REGISTERS[chip.name].split()) if name != "-"}
    assert dict(chip.registers) == expected


@pytest.mark.parametrize("number", [0, 1], ids=["MAX78000", "MAX78002"])
def test_sizes_features_and_limits(number: int) -> None:
    chip = (MAX78000, MAX78002)[number]
    assert {name: getattr(chip, name) for name in SIZES} == {n: both[number] for n, both in SIZES.items()}
    assert asdict(chip.limits) == {n: both[number] for n, both in LIMITS.items()}
    present = {field.name for field in fields(chip.features) if getattr(chip.features, field.name)}
    assert present == (SECOND_ONLY if number else FIRST_ONLY)


def test_what_both_parts_have_in_common() -> None:
    assert {name: getattr(device, name) for name in CONSTANTS} == CONSTANTS


@pytest.mark.parametrize(
    ("chip", "with_registers"), [(MAX78000, range(32)), (MAX78002, range(8))], ids=["first", "second"]
)
def test_layers_that_have_stream_registers(chip: Chip, with_registers: range) -> None:
    """Behind the eighth layer's of the second generation lie registers of another kind."""
    assert [n for n in range(40) if chip.has_stream_registers(n)] == list(with_registers)
