"""The MAX78002's table; source: the maker's AHB address tables and training-and-synthesis document."""

from __future__ import annotations

from mace_target_max78000.device import Device

MAX78002 = Device(
    name="MAX78002",
    quadrant_pitch=0x1000000,
    control=0x51000000,
    layers=128,
    registers={
        name: number
        for number, name in enumerate(
            (
                *(
                    "NXTLYR",
                    "RCNT",
                    "CCNT",
                    "ONED",
                    "PRCNT",
                    "PCCNT",
                    "STRIDE",
                    "WPTR_BASE",
                    "WPTR_TOFFS",
                    "WPTR_MOFFS",
                ),
                *(
                    "WPTR_CHOFFS",
                    "RPTR_BASE",
                    "LCTL",
                    "LCTL2",
                    "MCNT1",
                    "MCNT2",
                    "OCHAN",
                    "TPTR",
                    "ENA",
                    "POST",
                ),
            )
        )
    },
    registers_base=0x100000,
    register_pitch=4,
    layer_pitch=0x100,
    stream_registers={"STREAM1": 0x108000, "STREAM2": 0x108020, "FMAX": 0x108040},
    frame=0x108060,
    conditions=0x108080,
    mlator=0x110000,
    bias=0x51180000,
    bias_bytes=2048,
    tram=0x51200000,
    tram_pitch=0x10000,
    tram_words=12288,
    kernels=0x51400000,
    kernel_pitch=0x20000,
    kernel_words=4096,
    first_kernel_words=5120,
    data=0x51800000,
    data_pitch=0x20000,
    data_bytes=0x14000,
    offset_bits=15,
    largest=2048,
    channels=1024,
    flash=0x280000,
    sram=0x60000,
    pipelined=True,
    hertz=200_000_000,
    peripheral_hertz=60_000_000,
)
