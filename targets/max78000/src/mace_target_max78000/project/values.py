"""What the project's templates are filled with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mace_core.errors import MaceError
from mace_target_max78000.device import FAST_FIFO, FIFO_STATUS, PER_QUADRANT, QUADRANTS, Device
from mace_target_max78000.image import Block, Image
from mace_target_max78000.network import Layer, Network, Operation
from mace_target_max78000.options import Options
from mace_target_max78000.project.layout import header, layout, own_sources
from mace_target_max78000.project.packing import Packed, pack
from mace_target_max78000.project.registers import names, told
from mace_target_max78000.project.table import table
from mace_target_max78000.project.unload import Results, results

FLASH, SRAM = 0x10000000, 0x20000000
DONE = 1 << 12 | 1
"""Bits of the control register that the interrupt's handler clears: finished, and enabled."""
STREAMING = 1 << 14


@dataclass(frozen=True)
class Input:
    """One block of input as the program has it.

    number: what its array is called by.  sample: the words that the program holds.  length: words that the network wants.
    value: the C expression of word i of a FIFO.
    """

    number: int
    address: int
    sample: tuple[int, ...]
    length: int
    value: str
    words_of: str


def _input(block: Block, options: Options) -> Input:
    number = block.processor if block.fifo is None else block.fifo
    place = f"data memory of processor {block.processor}" if block.fifo is None else f"FIFO {block.fifo}"
    sample, value = block.words, f"input_{number}[i]"
    if options.synthesize_input is not None:
        n = options.synthesize_words
        if block.fifo is None or len(sample) % n:
            raise MaceError("synthesize_input", f"{len(sample)} words of input in groups of {n}", "use a FIFO and a divisor")
        sample, value = sample[:n], f"input_{number}[i % {n}] + {_hex(options.synthesize_input)} * (i / {n})"
    return Input(number, block.address, sample, len(block.words), value, f"{len(block.words)} words for the {place}")


def values(image: Image, network: Network, options: Options, summary: str) -> dict[str, Any]:
    """All that the templates use."""
    known = names(image.device)
    return {
        "name": options.prefix,
        "device": image.device,
        "options": options,
        "summary": summary.splitlines(),
        "layers": [_told(i, layer) for i, layer in enumerate(network.layers)],
        "header": header(options),
        "weights": options.weight_filename,
        "sources": own_sources(layout(options)),
        "riscv_sources": own_sources(layout(options), riscv=True),
        "kernels": image.kernels,
        "packed": _packed(image, options) if options.table_driven and image.kernels else None,
        "bias": dict(sorted(image.bias.items())),
        "init": told(image.init, known),
        "start": told(image.start, known),
        "known_answer": image.known_answer,
        **_table(image, known, options),
        **_control(image, network),
        **_inputs(image, options),
        **_results(network, options),
        **_clock(image, options),
        **_memories(image.device, options),
        "hex": _hex,
        "array": _array,
        "bytes": _bytes,
    }


def _control(image: Image, network: Network) -> dict[str, Any]:
    """Quadrants, and what their control registers' bits are called by."""
    streaming = any(place.streaming for place in network.places)
    return {
        "quadrants": image.quadrants,
        "quadrant_mask": sum(1 << q for q in image.quadrants),
        "device_quadrants": QUADRANTS,
        "per_quadrant": PER_QUADRANT,
        "master": image.device.control_register(image.quadrants[0], 0),
        "streaming": streaming,
        "acknowledge": DONE | (STREAMING if streaming else 0),
    }


def _inputs(image: Image, options: Options) -> dict[str, Any]:
    """The blocks of input, and the FIFOs that they go through."""
    inputs = tuple(_input(block, options) for block in image.inputs)
    return {
        "inputs": inputs,
        "input_words": f"Input: {' + '.join(str(i.length) for i in inputs)} words",
        "fifo": options.fifo or options.fast_fifo,
        "fast_fifo": FAST_FIFO,
        "fifo_status": FIFO_STATUS,
        "fifo_full": [1 << i.number for i in inputs],
    }


def _results(network: Network, options: Options) -> dict[str, Any]:
    """The blocks of results; softmax wants 32-bit sums, those of narrow weights shifted up to those of 8 bits."""
    blocks = results(network)
    wide = bool(blocks) and blocks[0].width == 32
    last = network.layers[-1].weights
    return {
        "blocks": blocks,
        "functions": [_function(b, options) for b in blocks],
        "outputs": sum(b.channels * b.pixels for b in blocks),
        "unload_words": sum(b.size for b in blocks),
        "wide": wide,
        "results": "ml_data" if wide else "ml_data32",
        "softmax_shift": 8 - last.bits if wide and last is not None else 0,
    }


@dataclass(frozen=True)
class Memory:
    """Where a core's program and data lie: addresses and bytes."""

    flash: int
    flash_size: int
    sram: int
    sram_size: int


def _memories(device: Device, options: Options) -> dict[str, Any]:
    """All memory is the Cortex-M4's, unless the RISC-V core, which reaches the upper part only, has a program too."""
    whole = Memory(FLASH, device.flash, SRAM, device.sram)
    if not options.riscv:
        return {"arm": whole}
    flash, sram = device.flash // 2, device.sram // 2
    return {"arm": Memory(FLASH, flash, SRAM, sram), "riscv": Memory(FLASH + flash, flash, SRAM + sram, sram)}


def _packed(image: Image, options: Options) -> Packed:
    """All weights in a code; MaceError where what is asked beside it needs them as they are."""
    if options.compact_weights or options.verify_weights or not options.mexpress:
        raise MaceError("table_driven", "its weights are in a code, to be loaded in one way", "leave out the other options for weights")
    return pack(b"".join(np.array(chunk.words, ">u4").tobytes() for chunk in image.kernels))


def _table(image: Image, known: Mapping[int, str], options: Options) -> dict[str, Any]:
    """What cnn_configure consists of: a write for each register, or a table and what is not in it."""
    if not options.table_driven:
        return {"table": None, "configure": told(image.configure, known)}
    found = table(image.configure, image.device)
    return {"table": found, "configure": told(found.rest, known)}


def _clock(image: Image, options: Options) -> dict[str, Any]:
    """The accelerator's clock: half of the processor's, or on the second generation a PLL that only the inference takes undivided."""
    if not image.device.pipelined or not options.pipeline:
        return {"clock": "BOARD_CNN_CLOCK_PCLK, BOARD_CNN_CLOCK_DIV1", "clock_words": "half of the processor's", "fast_clock": False}
    fast = not options.max_speed
    divider = "BOARD_CNN_CLOCK_DIV4" if fast else "BOARD_CNN_CLOCK_DIV1"
    words = "PLL, 200 MHz for the inference" + (", a quarter before and after it" if fast else "")
    return {"clock": f"BOARD_CNN_CLOCK_IPLL, {divider}", "clock_words": words, "fast_clock": fast}


def _function(block: Results, options: Options) -> str:
    gathered = options.mlator and block.width == 8 and block.pixels % 4 == 0
    return "unload_gathered" if gathered else f"unload_{block.width}"


def _told(index: int, layer: Layer) -> str:
    """A layer in one line of words."""
    parts = [f"layer {index} ({layer.name}): {layer.channels} x {layer.dim[0]} x {layer.dim[1]}"]
    if layer.pool is not None:
        kind = "average" if layer.pool.average else "max"
        parts.append(f"{kind} pool {layer.pool.size[0]}x{layer.pool.size[1]} stride {layer.pool.stride}")
    if layer.eltwise is not None:
        parts.append(f"{layer.eltwise.name.lower()} of {layer.operands}")
    if layer.operation in (Operation.CONV2D, Operation.CONV_TRANSPOSE2D):
        parts.append(f"{layer.operation.value} {layer.kernel[0]}x{layer.kernel[1]} pad {layer.pad[0]}")
    elif layer.operation is Operation.CONV1D:
        parts.append(f"conv1d {layer.kernel[0]} pad {layer.pad[0]}")
    else:
        parts.append(layer.operation.value)
    if layer.activation.value != "none":
        parts.append(layer.activation.value)
    parts.append(f"{layer.out_channels} x {layer.out_dim[0]} x {layer.out_dim[1]}, {layer.width} bits")
    return ", ".join(parts)


def _hex(value: int) -> str:
    return f"0x{value:08x}"


def _array(words: tuple[int, ...]) -> str:
    """Words of a macro's array, eight to a line."""
    text = list(map("0x%08x".__mod__, words))
    return ", \\\n".join("  " + ", ".join(text[i : i + 8]) for i in range(0, len(text), 8))


def _bytes(values: bytes) -> str:
    """Bytes of a macro's array, sixteen to a line."""
    text = list(map("0x%02x".__mod__, values))
    return ", \\\n".join("  " + ", ".join(text[i : i + 16]) for i in range(0, len(text), 16))
