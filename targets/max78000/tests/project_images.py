"""Images and projects made by hand, and an accelerator that remembers what a firmware writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mace_core.api import Compiler
from mace_core.registry import Registry
from mace_core.testing.requirements import require
from mace_frontend_ai8x.network import INPUT, Layer, LayerPlacement, Network, Operation, Weights
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.firmware import emit_project
from mace_target_max78000.firmware.layout import build_firmware
from mace_target_max78000.image import Block, Check, Chunk, Image, Poll, Write
from mace_target_max78000.options import Options
from mace_target_max78002.device import MAX78002

DEVICES = [MAX78000, MAX78002]
Build = Callable[[Image, Network, Options], bytes]
FIFO, STATUS, FAST_FIFO = 0x50000008, 0x50000004, 0x400C0410
DONE = 1 << 12
GO = 1


@dataclass
class Recorder:
    """Remembers what is written, and ends its network at once when the master's go bit comes, or with the last word of a FIFO."""

    device: Chip = MAX78000
    fifo_words: int = 0
    on_done: Callable[[], None] | None = None
    writes: list[tuple[int, int, int]] = field(default_factory=list)
    memory: dict[int, int] = field(default_factory=dict)

    def write(self, address: int, value: int, size: int = 4) -> None:
        self.writes.append((address, value, size))
        self.memory[address] = value
        fed = address in (FIFO, FAST_FIFO)
        self.fifo_words -= fed
        starts = address == self.device.control and value & GO
        if (starts and self.fifo_words <= 0) or (fed and self.fifo_words == 0):
            self.memory[self.device.control] |= DONE
            assert self.on_done is not None
            self.on_done()

    def read(self, address: int, size: int = 4) -> int:
        return self.memory.get(address, 0)


def list_writes(image: Image) -> Iterator[tuple[int, int, int]]:
    """What a program writes for an image up to the end of its start."""
    for steps in (image.init,):
        yield from ((s.address, s.value, 4) for s in steps if isinstance(s, Write))
    for chunk in image.kernels:
        yield (chunk.address | 1, 1, 1)
        yield from ((chunk.address + 4 * i, word, 4) for i, word in enumerate(chunk.words))
    for quadrant, values in sorted(image.bias.items()):
        yield from ((image.device.bias_address(quadrant) + 4 * i, byte, 4) for i, byte in enumerate(values))
    yield from ((s.address, s.value, 4) for s in image.configure if isinstance(s, Write))
    inputs = [
        (b.address + 4 * i, word, 4) for b in image.inputs if b.fifo is None for i, word in enumerate(b.words)
    ]
    start = [(s.address, s.value, 4) for s in image.start if isinstance(s, Write)]
    fifos = [b for b in image.inputs if b.fifo is not None]
    fed = [
        (b.address, words, 4)
        for row in zip(*(b.words for b in fifos), strict=True)
        for b, words in zip(fifos, row, strict=True)
    ]
    yield from (*inputs, *start, *fed)


def image_of(device: Chip) -> Image:
    """A program without a meaning: two quadrants, two runs of weights, bias, registers, two blocks of input that are their own results."""
    control = [device.control_register(q, 0) for q in (0, 1)]
    names = ("RCNT", "CCNT", "TPTR", "POST")
    registers = tuple(
        Write(device.layer_register(q, n, layer), 0x10203 * (layer + 1) + q)
        for layer in range(5)
        for q in (0, 1)
        for n in names
    )
    return Image(
        device=device,
        kernels=(
            Chunk(device.kernel_address(0, 0), (1, 2, 0xFFFFFFFF), processor=0, column=0, count=1),
            Chunk(
                device.kernel_address(17, 0) + 4 * 4, tuple(range(100, 109)), processor=17, column=4, count=4
            ),
        ),
        bias={0: bytes((5, 255, 7)), 1: bytes(range(20))},
        init=(
            Write(control[0], 8),
            Poll(control[0], 8),
            Write(0x50001000, 0),
            Write(device.control_register(1, 1), 0x40E),
        ),
        configure=registers,
        start=(Write(control[0], 0x100808), Write(control[1], 0x100809), Write(control[0], 0x100009)),
        inputs=(
            Block(device.data_address(0), (0x11, 0x12345678, 33), 0),
            Block(device.data_address(4), (7, 8), 4),
        ),
        known_answer=(
            Check(device.data_address(0), 0xFFFFFFFF, (0x11, 0x12345678)),
            Check(device.data_address(4), 0xFF, (7,)),
        ),
        quadrants=(0, 1),
    )


def network_of() -> Network:
    """A layer of three wide results in the memory that the input went to."""
    weights = Weights(np.ones((3, 4), np.int64))
    layer = Layer(
        "fc",
        Operation.LINEAR,
        (INPUT,),
        channels=4,
        dim=(1, 1),
        out_channels=3,
        weights=weights,
        wide=True,
        output=True,
    )
    return Network(
        "tiny", (layer,), (LayerPlacement(processors=15, output_processors=7),), np.zeros((4, 1, 1), np.int64)
    )


def fed_by_fifo(image: Image, fifos: int) -> Image:
    """The same program with all input by FIFOs."""
    blocks = tuple(
        Block(FIFO + 4 * n, tuple(range(10 * n, 10 * n + 6)), processor=16 * n, fifo=n) for n in range(fifos)
    )
    return replace(image, inputs=blocks, known_answer=())


def fed_by_fast_fifo(image: Image) -> Image:
    """The same program with its input by the FIFO of the RISC-V core."""
    return replace(image, inputs=(Block(FAST_FIFO, tuple(range(6)), processor=0, fifo=0),), known_answer=())


def strict(compiler: Compiler) -> Compiler:
    """A compiler that refuses what it warns of: our own sources must cause no warning."""
    return replace(compiler, flags=(*compiler.flags, "-Werror"))


def builder(name: str, folder: Path) -> Build:
    """A function that makes a firmware in the folder; the test is skipped where the compiler is not ready."""
    toolchain = Registry.load().toolchains[name]
    require(toolchain.missing("cortex-m4"))
    compiler = strict(toolchain.compiler("cortex-m4"))
    return lambda image, network, options: build_firmware(
        emit_project(image, network, options, "SUMMARY"), compiler, folder, options.define
    )
