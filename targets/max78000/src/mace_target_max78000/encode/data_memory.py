"""Lays out data memory: where input and results lie, as words and addresses.

A word holds the same position of four consecutive channels, the lowest processor in the lowest byte; further
passes follow it. A block of results says where the words of one output lie, for the loops of cnn_unload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from mace_core.ir import Array
from mace_frontend_ai8x.network import Layer, LayerPlacement, Network, Unload
from mace_target_max78000.device import FIFO_DATA, PER_MEMORY, PER_QUADRANT, Chip
from mace_target_max78000.encode.hardware_layers import HardwareLayer, bits_of
from mace_target_max78000.image import Block, Check
from mace_target_max78000.options import Options


def make_input_blocks(
    unit: HardwareLayer, sample: Array, options: Options, device: Chip
) -> tuple[Block, ...]:
    """Return the sample as the first layer reads it: a block for each data memory, or for each FIFO."""
    pixels = (sample.reshape(sample.shape[0], -1) & 0xFF).astype(np.uint8)
    offset = unit.place.in_offset
    fifo = options.fifo or options.fast_fifo
    blocks = []
    for processor, words in _by_channel(unit, pixels) if unit.place.chw else _by_pixel(unit, pixels):
        number = processor // PER_QUADRANT if fifo else None
        address = FIFO_DATA + 4 * number if number is not None else device.data_address(processor, offset)
        blocks.append(Block(address, tuple(words.tolist()), processor, number))
    return tuple(blocks)


def _by_channel(unit: HardwareLayer, pixels: Array) -> Iterator[tuple[int, Array]]:
    """Yield four pixels of one channel to a word."""
    # Only one of the four processors of a memory can be used then (vendor's document, Channel Data
    # Formats).
    padded = np.pad(pixels, ((0, 0), (0, -pixels.shape[1] % 4)))
    yield from zip(unit.processors, padded.view("<u4"), strict=False)


def _by_pixel(unit: HardwareLayer, pixels: Array) -> Iterator[tuple[int, Array]]:
    """Yield four channels of one pixel to a word.

    All operands of a pass come first, then the next pass, then the next pixel.
    """
    passes, operands, count = unit.in_passes, unit.layer.operands, len(unit.processors)
    channels = pixels.shape[0] // operands
    by_operand = pixels.reshape(operands, channels, -1)
    padded = np.zeros((operands, passes * count, by_operand.shape[2]), np.uint8)
    padded[:, :channels] = by_operand
    # Passes of a position, and operands of a pass, lie in consecutive words of the same memory.
    ordered = padded.reshape(operands, passes, count, -1).transpose(2, 3, 1, 0)
    for _, members in groupby(enumerate(unit.processors), key=lambda pair: pair[1] // PER_MEMORY):
        words = np.zeros((*ordered.shape[1:], PER_MEMORY), np.uint8)
        group = list(members)
        for rank, processor in group:
            words[..., processor % PER_MEMORY] = ordered[rank]
        yield group[0][1], words.reshape(-1, PER_MEMORY).view("<u4").ravel()


def list_result_words(unit: HardwareLayer, output: Array, device: Chip) -> Iterator[tuple[Array, int, Array]]:
    """Yield where a layer's output lies, for each group of slots.

    These are the addresses of its words, the mask of bytes in use, and the words.
    output: int64 [channels, rows, columns].
    """
    channels, passes, slots = unit.layer.out_channels, unit.out_passes, unit.slots
    flat = output.reshape(channels, -1)
    padded = np.zeros((passes * len(slots), flat.shape[1]), np.int64)
    padded[:channels] = flat
    by_slot = padded.reshape(passes, len(slots), -1)
    width = unit.layer.width // 8
    step = passes * unit.write_step * width
    for _, members in groupby(enumerate(slots), key=lambda pair: pair[1] // PER_MEMORY):
        group = list(members)
        base = device.data_address(group[0][1], unit.place.out_offset)
        for e in range(passes):
            present = [(rank, slot) for rank, slot in group if e * len(slots) + rank < channels]
            index = np.arange(flat.shape[1]) * step + e * width * unit.write_step
            if not present:
                continue
            values = by_slot[e]
            if unit.layer.wide:
                # A 32-bit sum takes a word, so the four channels of a memory follow each other.
                for rank, slot in present:
                    yield base + 4 * (index + slot % PER_MEMORY), 0xFFFFFFFF, values[rank] & 0xFFFFFFFF
                continue
            word = sum((values[rank] & 0xFF) << 8 * (slot % PER_MEMORY) for rank, slot in present)
            mask = sum(0xFF << 8 * (slot % PER_MEMORY) for _, slot in present)
            yield base + 4 * index, mask, word


def make_known_answer(
    pairs: Sequence[tuple[HardwareLayer, Array]], options: Options, device: Chip
) -> tuple[Check, ...]:
    """Return the words that the program compares: of all output layers, consecutive ones together."""
    parts: list[tuple[Array, int, Array]] = []
    for unit, output in pairs:
        parts += list_result_words(unit, output, device)
    addresses = np.concatenate([a for a, _, _ in parts])
    masks = np.concatenate([np.full(a.size, m, np.int64) for a, m, _ in parts])
    words = np.concatenate([w for _, _, w in parts])
    # By mask first, because the program compares a run of words under one mask.
    order = np.lexsort((addresses, masks))
    addresses, masks, words = addresses[order], masks[order], words[order]
    limit = _lines(options)
    if limit is not None:
        addresses, masks, words = addresses[:limit], masks[:limit], words[:limit]
    breaks = np.flatnonzero((np.diff(addresses) != 4) | (np.diff(masks) != 0)) + 1
    runs = zip(np.split(addresses, breaks), np.split(masks, breaks), np.split(words, breaks), strict=True)
    return tuple(Check(int(a[0]), int(m[0]), tuple(w.tolist())) for a, m, w in runs)


def _lines(options: Options) -> int | None:
    """Return the limit of `max_checklines`; the vendor's tool checks one word more than its document says."""
    if options.max_checklines is None:
        return None
    return options.max_checklines + (not options.documented)


@dataclass(frozen=True)
class ResultBlock:
    """One block: bytes channel by channel.

    Words as they lie in the memories, position by position the channels of each four slots.

    slots: of the channels of one pass, ascending; channel c lies in slot c % len, pass c // len.
    offset: bytes in each data memory.  pass_words, pixel_words: words from a pass or a pixel to the next.
    """

    slots: tuple[int, ...]
    channels: int
    pixels: int
    offset: int
    width: int
    pass_words: int
    pixel_words: int

    @property
    def groups(self) -> tuple[int, ...]:
        """How many channels are delivered together: all slots of one memory in one pass, for words.

        One channel for bytes.
        """
        if self.width == 8:
            return (1,) * self.channels
        places = [divmod(channel, len(self.slots)) for channel in range(self.channels)]
        keys = [(number, self.slots[rank] // PER_MEMORY) for number, rank in places]
        return tuple(len(list(members)) for _, members in groupby(keys))

    @property
    def words(self) -> str:
        """The block in words."""
        kind = "bytes" if self.width == 8 else "words"
        return f"{self.channels} channels of {self.pixels} {kind}, from offset 0x{self.offset:04x}"

    @property
    def size(self) -> int:
        """Words of 32 bits that the block takes once unloaded."""
        return -(-self.channels * self.pixels * self.width // 32)


def list_results(network: Network) -> tuple[ResultBlock, ...]:
    """Return the network's own blocks where it names some, else all of its output layers."""
    if network.unloads:
        return tuple(_listed_block(u) for u in network.unloads)
    pairs = zip(network.layers, network.places, strict=True)
    return tuple(_output(layer, place) for layer, place in pairs if layer.output)


def _listed_block(unload: Unload) -> ResultBlock:
    slots = bits_of(unload.processors)
    pixels = unload.dim[0] * unload.dim[1]
    return _block(slots, (unload.channels, pixels), (unload.offset, unload.width, unload.write_gap))


def _output(layer: Layer, place: LayerPlacement) -> ResultBlock:
    pixels = layer.out_dim[0] * layer.out_dim[1]
    return _block(
        bits_of(place.output_processors),
        (layer.out_channels, pixels),
        (place.out_offset, layer.width, place.write_gap),
    )


def _block(slots: tuple[int, ...], size: tuple[int, int], place: tuple[int, int, int]) -> ResultBlock:
    channels, pixels = size
    offset, width, gap = place
    passes = -(-channels // len(slots))
    step = width // 8 * (gap + 1)
    return ResultBlock(slots, channels, pixels, offset, width, pass_words=step, pixel_words=passes * step)
